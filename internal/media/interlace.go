package media

import (
	"context"
	"math"
	"slices"
)

const (
	// interlacedShare is the share of frames that must look interlaced if the
	// header says so; 3:2 pulldown has two in five. Without a header it is
	// interlacedShareUnknown. If the header says progressive, nearly all must,
	// because moving patterns may look interlaced.
	interlacedShare, interlacedShareUnknown, interlacedShareProgressive = 0.3, 0.5, 0.95
	// sameFieldOrderShare is the share of those frames with the same field order.
	sameFieldOrderShare = 0.9
	// telecinedShare is the share of the frames of every sample that must repeat the fields that 3:2 pulldown repeats. In other
	// sources it is 0.6.
	telecinedShare = 0.95
	// filmRate is the frame rate of telecined films, telecinedRate that of their video.
	filmRate, telecinedRate = 24000.0 / 1001, 30000.0 / 1001
	// minDetectedFrames is how many frames idet must have an opinion of.
	minDetectedFrames = 8
)

// mayBeInterlaced reports whether to decode a longer sample: the header says
// interlaced, or codec and size are in use for interlaced video.
func mayBeInterlaced(v *Video) bool {
	if v.Interlaced {
		return true
	}
	if v.FPS > 31 {
		return false
	}
	switch v.CodedHeight {
	case 480, 486, 512, 576, 608, 1080, 1088:
	default:
		return false
	}
	switch v.Codec {
	case "mpeg2video", "h264", "hevc", "mpeg4", "vc1", "dvvideo", "prores", "dnxhd",
		"mjpeg", "ffv1", "huffyuv", "rawvideo", "v210":
		return true
	}
	return false
}

// fieldOrder decides from the frames whether the video is interlaced. A still
// picture shows nothing; then the header decides.
func (s frameSample) fieldOrder(v *Video) (interlaced, topFirst bool) {
	required := interlacedShareUnknown
	switch {
	case v.Interlaced:
		required = interlacedShare
	case v.taggedProgressive:
		required = interlacedShareProgressive
	}
	detected := s.top + s.bottom + s.progressive
	if detected < minDetectedFrames {
		return v.Interlaced, v.TopFirst
	}
	interlaced = s.top+s.bottom >= required*detected
	if !v.Interlaced && max(s.top, s.bottom) < sameFieldOrderShare*(s.top+s.bottom) {
		interlaced = false // real fields have one order throughout; patterns have none
	}
	return interlaced, interlaced && s.top >= s.bottom
}

// packetsAreFields reports whether two packets make a frame, as in interlaced
// H.264 broadcasts. It requires an interlaced header: in other sources the
// frames of the sample may just come more slowly than elsewhere.
func (s frameSample) packetsAreFields(v *Video) bool {
	if !v.Interlaced || s.frames < sampleFrames/4 {
		return false
	}
	packetsPerFrame := (s.last - s.first) * v.FPS / float64(s.frames-1)
	return math.Abs(packetsPerFrame-2) < 0.1
}

// isTelecined reports whether, of five frames, one repeats the top field of the one before, and another one the bottom field.
func (s frameSample) isTelecined() bool {
	for _, cadence := range []string{"nntnb", "nnbnt"} {
		for shift := range cadence {
			same := 0
			for i, repeat := range s.repeats {
				if repeat == cadence[(i+shift)%len(cadence)] {
					same++
				}
			}
			if len(s.repeats) > sampleFrames/2 && float64(same) >= telecinedShare*float64(len(s.repeats)) {
				return true
			}
		}
	}
	return false
}

// mayBeTelecined reports whether frames follow each other as evenly as finding the film needs, in a format that the filters know.
func (v *Video) mayBeTelecined() bool {
	return standardRate(v.FPS) == telecinedRate && v.MaxGap*v.FPS < 1.5 && slices.Contains([]string{"yuv420p", "yuv422p"}, v.PixelFormat)
}

// isTelecinedThroughout looks at further places: a recording may have films and video in turns.
func (t Tools) isTelecinedThroughout(ctx context.Context, source string, info *Info) (bool, error) {
	for _, share := range []float64{0.1, 0.5, 0.7, 0.9} {
		if (1-share)*info.Duration < 2.5 {
			break // too few frames are left
		}
		frames, _, err := t.decodeFrames(ctx, source, info, share*info.Duration, true)
		if err != nil || !frames.isTelecined() {
			return false, err
		}
	}
	return true, nil
}
