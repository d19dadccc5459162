package media

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const svtAV1 = "libsvtav1"

// hevcAV1Encoders make the renditions of HEVC and AV1. Those of devices come first, and are used with the H.264 encoder of the same
// device.
//
// The encoders in software have the quality of the H.264 rung of the same size at about the same numbers, see docs/performance.md.
var hevcAV1Encoders = []videoEncoder{
	{
		name: "hevc_nvenc", codec: hevcCodec, device: nvidiaDevice, quality: hardwareEncoders[0].quality,
		pixels: []string{"-pix_fmt", "yuv420p"}, cuts: []string{"-no-scenecut", "1"}, forced: []string{"-forced-idr", "1"},
		more: []string{"-bf", "0", "-a53cc", "0"},
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
		forced: []string{"-idr_interval", "0"}, more: []string{"-bf", "0", "-sei", "hdr"}, upload: "format=nv12,hwupload",
	},
	{
		name: "libx265", codec: hevcCodec,
		quality: func(s encoderSettings) []string {
			// A keyframe must not refer back over its segment's start, no message may depend on the version, and the parameter
			// sets belong into the header alone.
			params := "open-gop=0:scenecut=0:info=0:repeat-headers=0:log-level=error:fps=" + xmlRate(s.rate)
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
			num, den, _ := strings.Cut(xmlRate(s.rate), "/")
			return []string{
				"-preset", strconv.Itoa(av1Preset(s.preset)), "-crf", strconv.Itoa(av1Quality(s.crf)),
				"-svtav1-params", "fps-num=" + num + ":fps-denom=" + cmp.Or(den, "1"),
			}
		},
		pixels: []string{"-pix_fmt", "yuv420p"}, forced: []string{"-flags", "+cgop"},
	},
}

// Encodable returns options without what this ffmpeg cannot make of a source, and a warning for each.
func (t Tools) Encodable(ctx context.Context, info *Info, o LadderOptions) (LadderOptions, []string, error) {
	if info.Video == nil || len(o.Codecs) == 0 && !o.HDR {
		return o, nil, nil
	}
	c, err := t.capabilities(ctx)
	if err != nil {
		return o, nil, fmt.Errorf("list encoders: %w", err)
	}
	var encodable, warnings []string
	for _, codec := range o.Codecs {
		name, reason := libx264.encoderOf(Rung{Codec: codec}, c).name, ""
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
	o.Codecs = encodable
	if reason := o.withoutHDR(info, c); reason != "" {
		o.HDR, warnings = false, append(warnings, "the renditions are SDR: "+reason)
	}
	return o, warnings, nil
}

// withoutHDR says why HDR that is asked for cannot be kept.
func (o LadderOptions) withoutHDR(info *Info, c capabilities) string {
	switch v := info.Video; {
	case !o.HDR || v.HDR == "":
		return ""
	case len(o.Codecs) == 0:
		return "HDR needs the codec hevc or av1"
	case min(v.Width, v.Height) < int(rungTolerance*minFurtherSize):
		return fmt.Sprintf("only renditions from %dp on have HDR", minFurtherSize)
	case !c.zscale:
		return "this ffmpeg has no zscale filter"
	case planTiming(info).repeatedFrames > 0:
		return "frames are repeated in it"
	}
	return ""
}

// av1Quality is the quantizer, up to 63, at which AV1 looks as H.264 does with a CRF.
func av1Quality(crf int) int { return min(crf*7/5, 63) }

// av1Preset is SVT-AV1's preset for one of x264: 8 for veryfast takes about three times its time, and half of its bits.
func av1Preset(preset string) int {
	presets := []string{"placebo", "veryslow", "slower", "slow", "medium", "fast", "faster", "veryfast"}
	if i := slices.Index(presets, preset); i >= 0 {
		return 1 + i
	}
	return 10
}
