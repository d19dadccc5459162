package media

import (
	"context"
	"fmt"
	"slices"
	"strconv"
)

const svtAV1 = "libsvtav1"

// secondEncoders make the renditions of HEVC and AV1. Those of devices come first, and are used with the H.264 encoder of the same
// device.
//
// The encoders in software have the quality of the H.264 rung of the same size at about the same numbers, see docs/performance.md.
var secondEncoders = []videoEncoder{
	{
		name: "hevc_nvenc", codec: hevcCodec, device: nvidiaDevice, quality: hardwareEncoders[0].quality,
		pixels: []string{"-pix_fmt", "yuv420p"}, cuts: []string{"-no-scenecut", "1"}, forced: []string{"-forced-idr", "1"},
		more: []string{"-bf", "0"},
	},
	{
		name: "av1_nvenc", codec: av1Codec, device: nvidiaDevice,
		quality: func(s encoderSettings) []string {
			return []string{"-rc", "vbr", "-cq", strconv.Itoa(av1Quality(s.crf)), "-b:v", "0"}
		},
		pixels: []string{"-pix_fmt", "yuv420p"}, cuts: []string{"-no-scenecut", "1"}, forced: []string{"-forced-idr", "1"},
		more: []string{"-bf", "0"},
	},
	{
		name: "hevc_qsv", codec: hevcCodec, device: intelDevice, quality: hardwareEncoders[1].quality,
		pixels: []string{"-pix_fmt", "nv12"}, cuts: []string{"-adaptive_i", "0"},
		forced: []string{"-forced_idr", "1", "-idr_interval", "0", "-flags", "+cgop"}, more: []string{"-bf", "0"},
	},
	{
		name: "hevc_vaapi", codec: hevcCodec, device: renderDevice, quality: hardwareEncoders[2].quality,
		forced: []string{"-idr_interval", "0"}, more: []string{"-bf", "0"}, upload: "format=nv12,hwupload",
	},
	{
		name: "libx265", codec: hevcCodec,
		quality: func(s encoderSettings) []string {
			// A keyframe must not refer back over its segment's start, no message may depend on the version, and the parameter
			// sets belong into the header alone. x265 takes the frame rate for its rate control from no other place.
			params := "open-gop=0:scenecut=0:info=0:repeat-headers=0:log-level=error:fps=" + s.fps
			if s.threads > 0 {
				params += fmt.Sprintf(":pools=%d", s.threads)
			}
			return []string{"-preset", s.preset, "-crf", strconv.Itoa(s.crf), "-x265-params", params}
		},
		pixels: []string{"-pix_fmt", "yuv420p"}, forced: []string{"-forced-idr", "1"},
	},
	{
		name: svtAV1, codec: av1Codec,
		quality: func(s encoderSettings) []string {
			return []string{"-preset", strconv.Itoa(av1Preset(s.preset)), "-crf", strconv.Itoa(av1Quality(s.crf))}
		},
		pixels: []string{"-pix_fmt", "yuv420p"}, forced: []string{"-flags", "+cgop"},
	},
}

// EncodableCodecs returns those of the codecs in which this ffmpeg can make further renditions of a source, and a warning for each
// of the others.
func (t Tools) EncodableCodecs(ctx context.Context, info *Info, codecs []string) (encodable, warnings []string, err error) {
	if info.Video == nil || len(codecs) == 0 {
		return nil, nil, nil
	}
	c, err := t.capabilities(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("list encoders: %w", err)
	}
	for _, codec := range codecs {
		name, reason := libx264.encoderOf(codec, c).name, ""
		switch {
		case !slices.Contains(c.encoders, name):
			reason = "this ffmpeg has no encoder " + name
		case name == svtAV1 && !c.forcesAV1 && planTiming(info).framesPerSegment(info.Video) == 0:
			reason = "the time between its frames varies, for which ffmpeg 7 is needed"
		default:
			encodable = append(encodable, codec)
			continue
		}
		warnings = append(warnings, fmt.Sprintf("there are no renditions in %s: %s", codecName(codec), reason))
	}
	return encodable, warnings, nil
}

// av1Quality is the quantizer, up to 63, at which AV1 looks as H.264 does with a CRF.
func av1Quality(crf int) int { return min(crf*5/4, 63) }

// av1Preset is SVT-AV1's preset for one of x264: 10 for veryfast takes about twice its time.
func av1Preset(preset string) int {
	presets := []string{"placebo", "veryslow", "slower", "slow", "medium", "fast", "faster", "veryfast"}
	if i := slices.Index(presets, preset); i >= 0 {
		return 3 + i
	}
	return 11
}
