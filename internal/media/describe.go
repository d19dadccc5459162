package media

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxSide and maxPixels bound what is decoded at all; a frame above costs
	// gigabytes before anything can be scaled down.
	maxSide   = 16384
	maxPixels = 100_000_000
	// maxDuration is a week, for which the names of segments have room, in
	// seconds. Tools.MaxDuration is checked beside it.
	maxDuration = 7 * 24 * 3600.0
	// maxLead is how much sound before the first frame is cut off, in seconds,
	// for a picture that starts at once: mostly what an encoder put there to
	// prime its decoder.
	maxAudioLead = 0.1
	// maxAudio bounds the audio renditions of one source.
	maxAudio = 8
)

// describe turns what ffprobe said into an Info, or refuses the source.
func describe(raw *rawProbe, tracks map[int]*trackTiming, size int64, can decoderSet) (*Info, error) {
	info := &Info{
		Version: InfoVersion, Container: raw.Format.Name, Size: size, Cover: -1,
		Audio: []Audio{}, Subtitles: []Subtitle{}, Warnings: []string{},
	}
	for i := range raw.Streams {
		if name, known := can.supports(&raw.Streams[i]); known && !slices.Contains(info.Codecs, name) {
			info.Codecs = append(info.Codecs, name)
		}
	}
	info.HeaderDuration, _ = raw.Format.Duration.seconds()
	if refused := rejectEncrypted(raw); refused != nil {
		return nil, refused
	}
	video, err := chooseVideo(raw, tracks, info, can)
	if err != nil {
		return nil, err
	}
	if video != nil {
		if info.Video, err = describeVideo(video, tracks[video.Index], info); err != nil {
			return nil, err
		}
	}
	chooseAudio(raw, tracks, info, can)
	chooseSubtitles(raw, info)
	if info.Video == nil && len(info.Audio) == 0 {
		return nil, rejectNoStreams(raw, can)
	}
	measureDuration(info, raw, tracks)
	if v := info.Video; v != nil && planTiming(info).dropsFrames && v.MinGap < 1/maxRateWithSlack {
		info.warn("frames that follow another within less than 1/60 s are left out: the source shows up to %.4g a second", 1/v.MinGap)
	}
	if err := checkDuration(info.Duration, maxDuration); err != nil {
		return nil, err
	}
	return info, nil
}

// checkDuration refuses what lasts too long. A file of a few bytes can hold
// frames for days, and would take the place of others for as long.
func checkDuration(seconds, most float64) error {
	if seconds <= most {
		return nil
	}
	return &RejectedError{Reason: fmt.Sprintf("the source lasts %s; %s are the most", formatHours(seconds), formatHours(most))}
}

func formatHours(seconds float64) string {
	return strconv.FormatFloat(math.Round(seconds/36)/100, 'f', -1, 64) + " hours"
}

func rejectEncrypted(raw *rawProbe) *RejectedError {
	for _, s := range raw.Streams {
		if s.Tag == "encv" || s.Tag == "enca" {
			return &RejectedError{Reason: "the " + s.Type + " is encrypted"}
		}
	}
	return nil
}

func rejectNoStreams(raw *rawProbe, can decoderSet) *RejectedError {
	for _, s := range raw.Streams {
		if name, known := can.supports(&s); s.Type == "audio" && !known {
			return &RejectedError{Reason: fmt.Sprintf("the audio codec %q is not supported", name)}
		}
	}
	return &RejectedError{Reason: "the file has neither video nor audio in it"}
}

// hasEmptyVideo reports whether somebody would expect a picture here, so that
// publishing the sound alone would be a surprise.
func hasEmptyVideo(raw *rawProbe) bool {
	return slices.ContainsFunc(raw.Streams, func(s rawStream) bool {
		return s.Type == "video" && s.Disposition.Cover == 0 && s.Disposition.Thumbs == 0 && s.Width > 0 && s.Height > 0
	})
}

// hasUnsizedVideo reports whether there is a video stream whose size ffprobe does
// not know.
func hasUnsizedVideo(raw *rawProbe) bool {
	return slices.ContainsFunc(raw.Streams, func(s rawStream) bool {
		return s.Type == "video" && s.Disposition.Cover == 0 && s.Disposition.Thumbs == 0 && s.Width <= 0
	})
}

func pictureTooLarge(size string) *RejectedError {
	return &RejectedError{Reason: fmt.Sprintf("the picture is too large: %s pixels; %d million are the most", size, maxPixels/1_000_000)}
}

func describeVideo(s *rawStream, tr *trackTiming, info *Info) (*Video, error) {
	if s.Width > maxSide || s.Height > maxSide || s.Width*s.Height > maxPixels {
		return nil, pictureTooLarge(fmt.Sprintf("%dx%d", s.Width, s.Height))
	}
	codec, _ := s.codec()
	v := &Video{
		Index: s.Index, Codec: codec, Profile: knownValue(s.Profile), CodedWidth: s.Width, CodedHeight: s.Height, SAR: 1,
		Frames: tr.packets, Keyframes: tr.keyframes, MaxGap: tr.maxGap, MinGap: tr.minGap, Start: tr.first, Duration: tr.duration(),
		Skipped:     skippedTime(tr, info),
		PixelFormat: knownValue(s.PixelFormat), Matrix: knownValue(s.Matrix), Primaries: knownValue(s.Primaries), Transfer: knownValue(s.Transfer),
		FullRange: s.Range == "pc" || strings.HasPrefix(s.PixelFormat, "yuvj"),
	}
	v.Interlaced = s.FieldOrder != "" && s.FieldOrder != "unknown" && s.FieldOrder != "progressive"
	v.taggedProgressive = s.FieldOrder == "progressive"
	v.TopFirst = s.FieldOrder == "tt" || s.FieldOrder == "bt"
	v.Alpha = hasAlphaChannel(s)
	switch v.Transfer {
	case "smpte2084":
		v.HDR = "pq"
	case "arib-std-b67":
		v.HDR = "hlg"
	}
	if v.Duration > 0 {
		v.FPS = float64(v.Frames) / v.Duration
	} else {
		v.FPS = parseRatio(s.AverageRate)
	}
	if err := applySideData(s, v, info); err != nil {
		return nil, err
	}
	if err := displaySize(s, v, info); err != nil {
		return nil, err
	}
	return v, nil
}

func applySideData(s *rawStream, v *Video, info *Info) error {
	for _, d := range s.SideData {
		if d.Matrix != "" {
			var ok bool
			if v.Rotation, v.Mirrored, ok = parseDisplayMatrix(d.Matrix); !ok {
				info.warn("the file asks for a rotation that is not a quarter turn; it is ignored")
			}
		}
		if d.DoViProfile == 5 || d.DoViProfile > 0 && d.Compatibility != nil && *d.Compatibility == 0 && d.DoViProfile != 7 {
			return &RejectedError{Reason: fmt.Sprintf("the video is Dolby Vision profile %d, whose colours have no standard form", d.DoViProfile)}
		}
	}
	return nil
}

// displaySize applies pixel shape and rotation.
func displaySize(s *rawStream, v *Video, info *Info) error {
	switch sar := parseRatio(s.SAR); {
	case sar == 0:
	case sar < 0.05 || sar > 20:
		info.warn("the file claims pixels %.3g times as wide as high; they are taken for square", sar)
	default:
		v.SAR = sar
	}
	w, h := v.CodedWidth, v.CodedHeight
	// Only ever stretched, as players do: no line of the picture gets lost.
	if v.SAR >= 1 {
		w = int(math.Round(float64(w) * v.SAR))
	} else {
		h = int(math.Round(float64(h) / v.SAR))
	}
	if v.Rotation == 90 || v.Rotation == 270 {
		w, h = h, w
	}
	v.Width, v.Height = w, h
	if _, _, ok := fitH264(w, h); !ok {
		return &RejectedError{Reason: fmt.Sprintf("the picture is %dx%d pixels: too narrow to be shown", w, h)}
	}
	return nil
}

// hasAlpha knows the pixel formats with transparency, and WebM's way of hiding
// it in a second layer.
func hasAlphaChannel(s *rawStream) bool {
	for _, prefix := range []string{"yuva", "gbrap", "rgba", "bgra", "argb", "abgr", "ya8", "ya16", "pal8"} {
		if strings.HasPrefix(s.PixelFormat, prefix) {
			return true
		}
	}
	return s.tag("alpha_mode") == "1"
}

// known drops ffprobe's words for "the file does not say".
func knownValue(s string) string {
	if s == "unknown" || s == "reserved" || s == "unspecified" {
		return ""
	}
	return s
}

// measure fills in the times of the whole source.
func measureDuration(info *Info, raw *rawProbe, tracks map[int]*trackTiming) {
	start, end := math.Inf(1), math.Inf(-1)
	take := func(index int) {
		start, end = min(start, tracks[index].first), max(end, tracks[index].end)
	}
	if info.Video != nil {
		take(info.Video.Index)
	}
	longest := 0.0
	for _, a := range info.Audio {
		take(a.Index)
		longest = max(longest, a.Duration)
	}
	if info.Video != nil {
		longest = max(longest, info.Video.Duration)
	}
	if v := info.Video; v != nil && v.Start-start <= maxAudioLead {
		start = v.Start
	}
	info.Start, info.FormatStart = start, start
	if v, ok := raw.Format.Start.seconds(); ok {
		info.FormatStart = v
	}
	info.Duration = end - start
	if hasTimestampJumps(info.Container) && info.Duration > longest+maxForwardJump {
		// Programs with clocks of their own: their distance means nothing.
		info.Duration = longest
	}
	// Some headers count from zero, some from the first frame.
	h := info.HeaderDuration
	off := min(math.Abs(h-info.Duration), math.Abs(h-end))
	switch {
	case raw.truncated && h > info.Duration && off > missingSeconds/2:
		info.warn("the file is truncated: of %.1f s it has %.1f s in it", h, info.Duration)
	case raw.truncated:
		info.warn("the file is truncated: its end is missing")
	case h > 0 && off > max(1, 0.05*h):
		info.warn("the file claims to last %.1f s, but has %.1f s in it", h, info.Duration)
	}
}

func (i *Info) warn(format string, args ...any) {
	i.Warnings = appendWarning(i.Warnings, fmt.Sprintf(format, args...))
}
