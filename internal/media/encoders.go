package media

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	softwareEncoder = "libx264"
	// allHardware stands for all hardware encoders in Tools.Encoders.
	allHardware = "hardware"
)

// videoEncoder is one of ffmpeg's video encoders. Its options make the same video for players, whichever
// of a codec it is: the profile of all decoders, a limited bitrate, keyframes exactly where they are forced, from which decoding can
// begin, and no others before the next forced one. Captions inside the pictures are left out: they are published as text.
type videoEncoder struct {
	name    string
	codec   string // of the rungs
	device  deviceKind
	quality func(s encoderSettings) []string
	pixels  []string // the pixel format, unless upload sets it
	cuts    []string // no keyframes at changes of scene
	forced  []string // a forced keyframe is an IDR picture
	more    []string
	upload  string // the filter that copies frames to the device
}

// encoderSettings are what differs between renditions and sources.
type encoderSettings struct {
	preset    string // of libx264
	crf       int
	lookahead int // frames, for middlePresets
	bitrate   int // the limit, in bits per second
	level     string
	hdr       string // of the rung
	// rate is frames a second, for encoders whose rate control does not use the times of frames: behind filters, ffmpeg 7 does not know it.
	rate      float64
	threads   int    // 0: the encoder's choice
	keyframes string // ffmpeg's -force_key_frames; empty if the encoder ignores it
	interval  int    // the highest number of frames between two keyframes
}

// hardwareEncoders are in the order in which "hardware" prefers them: a card of its own before the graphics of
// the processor, and Quick Sync before VA-API, which reaches the same circuits of Intel with fewer of their modes.
//
// They decode and scale nothing, because frames must be those that libx264 would get. They use no B-frames:
// NVENC computes decoding times in ticks of the time base and Quick Sync from a constant frame rate, so that
// with our fine time base and irregular frames a picture would be shown before it is decoded. Their presets
// are the drivers' defaults. The number of reference frames is limited to what the level allows.
//
// All have been checked against the options of ffmpeg, but never run on a device.
var hardwareEncoders = []videoEncoder{
	{
		name: "h264_nvenc", device: nvidiaDevice,
		quality: func(s encoderSettings) []string {
			// Without -b:v 0, the default bitrate would limit the quality.
			return []string{"-rc", "vbr", "-cq", strconv.Itoa(s.crf), "-b:v", "0"}
		},
		pixels: []string{"-pix_fmt", "yuv420p"}, cuts: []string{"-no-scenecut", "1"}, forced: []string{"-forced-idr", "1"},
		more: []string{"-bf", "0", "-dpb_size", strconv.Itoa(maxReferences), "-a53cc", "0"},
	},
	{
		name: "h264_qsv", device: intelDevice,
		quality: func(s encoderSettings) []string {
			// A bitrate equal to the limit would select a constant bitrate.
			return []string{"-global_quality", strconv.Itoa(s.crf), "-b:v", strconv.Itoa(s.bitrate / 4 * 3), "-look_ahead", "0"}
		},
		pixels: []string{"-pix_fmt", "nv12"}, cuts: []string{"-adaptive_i", "0"},
		forced: []string{"-forced_idr", "1", "-idr_interval", "0", "-flags", "+cgop"},
		more:   []string{"-bf", "0", "-refs", strconv.Itoa(maxReferences), "-a53cc", "0"},
	},
	{
		name: "h264_vaapi", device: renderDevice,
		quality: func(s encoderSettings) []string {
			// Left to itself, ffmpeg may choose a mode without a limit.
			return []string{
				"-rc_mode", "QVBR", "-global_quality", strconv.Itoa(s.crf), "-b:v", strconv.Itoa(s.bitrate / 4 * 3),
			}
		},
		// It makes an IDR picture of each forced keyframe, and no other keyframes.
		forced: []string{"-idr_interval", "0"}, upload: "format=nv12,hwupload",
		more: []string{"-bf", "0", "-sei", "identifier+timing+recovery_point"}, // all but captions, which old versions do not know
	},
}

var libx264 = videoEncoder{
	name: softwareEncoder,
	quality: func(s encoderSettings) []string {
		args := []string{"-preset", s.preset, "-crf", strconv.Itoa(s.crf)}
		if slices.Contains(middlePresets, s.preset) {
			args = append(args, "-aq-mode", "2", "-rc-lookahead", strconv.Itoa(s.lookahead), "-trellis", "1")
		}
		return args
	},
	pixels: []string{"-pix_fmt", "yuv420p"}, cuts: []string{"-sc_threshold", "0"}, forced: []string{"-forced-idr", "1"},
	more: []string{"-a53cc", "0"},
}

// middlePresets need 5 to 30 % fewer bits for the same SSIM if they distribute them by the variance of the picture, look ahead as
// far as medium does, and optimise the quantisation. Faster ones cannot use it, and slower ones do more.
var middlePresets = []string{"veryfast", "faster", "fast", "medium"}

// args are the options of the encoder for one rendition.
func (e videoEncoder) args(s encoderSettings) []string {
	args := slices.Concat([]string{"-c:v", e.name}, e.quality(s),
		[]string{"-maxrate", strconv.Itoa(s.bitrate), "-bufsize", strconv.Itoa(2 * s.bitrate)}, e.profileArgs(s), e.pixelArgs(s.hdr), e.cuts,
		[]string{"-g", strconv.Itoa(s.interval)})
	if s.keyframes != "" {
		args = append(args, "-force_key_frames", s.keyframes)
	}
	return slices.Concat(args, e.forced, e.more)
}

// profileArgs name the profile of all decoders. Only H.264 has a level that its encoders would exceed.
func (e videoEncoder) profileArgs(s encoderSettings) []string {
	switch {
	case e.codec == h264Codec:
		return []string{"-profile:v", "high", "-level:v", e.levelArg(s.level)}
	case e.codec == hevcCodec && s.hdr != "":
		return []string{"-profile:v", "main10", "-tag:v", "hvc1"}
	case e.codec == hevcCodec:
		return []string{"-profile:v", "main", "-tag:v", "hvc1"}
	}
	return nil
}

// pixelArgs are the format of the pixels, and their colours.
func (e videoEncoder) pixelArgs(hdr string) []string {
	if transfer, ok := hdrTransfers[hdr]; ok {
		return []string{
			"-pix_fmt", "yuv420p10le", "-color_primaries", "bt2020", "-color_trc", transfer, "-colorspace", "bt2020nc", "-color_range", "tv",
		}
	}
	return slices.Concat(e.pixels, []string{
		"-color_primaries", "bt709", "-color_trc", "bt709", "-colorspace", "bt709", "-color_range", "tv",
	})
}

// levelArg is the level as the encoder wants it. Quick Sync has no option of its own, and the general one
// is ten times the number.
func (e videoEncoder) levelArg(level string) string {
	if e.device == intelDevice {
		return strconv.Itoa(levelNumber(level))
	}
	return level
}

// levelNumber is ten times an H.264 level.
func levelNumber(level string) int {
	whole, tenth, _ := strings.Cut(level, ".")
	n, _ := strconv.Atoi(whole)
	m, _ := strconv.Atoi(tenth)
	return 10*n + m
}

// isHardware reports whether the encoder needs a device.
func (e videoEncoder) isHardware() bool { return e.device != "" }

// The sides in pixels that every hardware encoder accepts. The oldest NVENC wants a width of 145, others
// 128 in each direction; many end at 4096.
const (
	minHardwareSide = 160
	maxHardwareSide = 4096
)

// accepts reports whether the encoder can make all renditions.
func (e videoEncoder) accepts(video []renditionJob) bool {
	return !e.isHardware() || !slices.ContainsFunc(video, func(j renditionJob) bool {
		return min(j.rung.Width, j.rung.Height) < minHardwareSide || max(j.rung.Width, j.rung.Height) > maxHardwareSide
	})
}

// findHardware returns a hardware encoder by its name.
func findHardware(name string) (e videoEncoder, ok bool) {
	i := slices.IndexFunc(hardwareEncoders, func(e videoEncoder) bool { return e.name == name })
	if i < 0 {
		return e, false
	}
	return hardwareEncoders[i], true
}

// encoderOf returns the encoder for a rung: that of the same device, if this ffmpeg has it, or else, and for HDR, the one in software.
func (e videoEncoder) encoderOf(r Rung, c capabilities) videoEncoder {
	if r.Codec == e.codec {
		return e
	}
	i := slices.IndexFunc(hevcAV1Encoders, func(s videoEncoder) bool {
		isPossible := s.device == e.device && slices.Contains(c.encoders, s.name) && r.HDR == ""
		return s.codec == r.Codec && (!s.isHardware() || isPossible)
	})
	return hevcAV1Encoders[i]
}

// ParseEncoders checks a list for Tools.Encoders and returns it with "hardware" replaced by all hardware
// encoders, without repetitions, and with libx264 at its end.
func ParseEncoders(names []string) ([]string, error) {
	var all, list []string
	for _, e := range hardwareEncoders {
		all = append(all, e.name)
	}
	for _, name := range append(slices.Clone(names), softwareEncoder) {
		add := []string{name}
		if name == allHardware {
			add = all
		} else if !slices.Contains(all, name) && name != softwareEncoder {
			return nil, fmt.Errorf("unknown encoder %q; allowed: %s, %s, %s", name, softwareEncoder,
				strings.Join(all, ", "), allHardware)
		}
		for _, name := range add {
			if !slices.Contains(list, name) {
				list = append(list, name)
			}
		}
	}
	return list[:slices.Index(list, softwareEncoder)+1], nil // libx264 always works, so nothing comes after it
}

// wantedHardware lists the hardware encoders of Tools.Encoders, the preferred one first.
func (t Tools) wantedHardware() ([]videoEncoder, error) {
	names, err := ParseEncoders(t.Encoders)
	if err != nil {
		return nil, err
	}
	var wanted []videoEncoder
	for _, name := range names {
		if e, ok := findHardware(name); ok {
			wanted = append(wanted, e)
		}
	}
	return wanted, nil
}

// chooseEncoder returns the first encoder of Tools.Encoders that this ffmpeg has, whose device is there and
// has not failed lately, and that can make the renditions.
func (t Tools) chooseEncoder(video []renditionJob, c capabilities) (videoEncoder, *device, error) {
	wanted, err := t.wantedHardware()
	if err != nil || len(video) == 0 {
		return libx264, nil, err
	}
	for _, e := range wanted {
		if !slices.Contains(c.encoders, e.name) || !e.accepts(video) || t.Cache.isEncoderPaused(e.name) {
			continue
		}
		if d := t.findDevice(e.device); d != nil {
			return e, d, nil
		}
	}
	return libx264, nil, nil
}
