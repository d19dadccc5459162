package media

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxSide and maxPixels limit what is decoded. A larger frame takes gigabytes
	// of memory before it can be scaled down.
	maxSide   = 16384
	maxPixels = 100_000_000
	// maxDuration is a week in seconds, the limit of the segment names. The
	// limit Tools.MaxDuration applies as well.
	maxDuration = 7 * 24 * 3600.0
	// minJPEGs is how many pictures a bare sequence of JPEGs has. Cameras store a second one in a picture's file.
	minJPEGs = 5
	// maxAudioLead is how many seconds of audio before the first frame are cut
	// off so that the picture starts at once. Such audio is mostly encoder delay.
	maxAudioLead = 0.1
	// maxAssumedRate is the highest frame rate that is believed of a stream without timestamps.
	maxAssumedRate = 300
)

// describe makes an Info of ffprobe's output, or rejects the source.
func describe(raw *rawProbe, tracks map[int]*trackTiming, size int64, decoders decoderSet) (*Info, error) {
	info := &Info{
		Version: InfoVersion, Container: raw.Format.Name, Size: size, Cover: -1,
		Audio: []Audio{}, Subtitles: []Subtitle{}, Warnings: []string{},
	}
	for i := range raw.Streams {
		if codec, ok := decoders.supports(&raw.Streams[i]); ok && !slices.Contains(info.Codecs, codec) {
			info.Codecs = append(info.Codecs, codec)
		}
	}
	info.HeaderDuration, _ = raw.Format.Duration.seconds()
	if rejected := rejectEncrypted(raw); rejected != nil {
		return nil, rejected
	}
	warnOfJoins(raw, info)
	if err := describeVideos(raw, tracks, info, decoders); err != nil {
		return nil, err
	}
	isJPEG := info.Container == "jpeg_pipe" || info.Container == "mjpeg"
	if isJPEG && info.Video != nil && info.Video.Frames < minJPEGs {
		return nil, reject("", "the file is a picture; send a video or audio file")
	}
	chooseAudio(raw, tracks, info, decoders)
	if err := checkClocks(info, tracks); err != nil {
		return nil, err
	}
	chooseSubtitles(raw, info, decoders)
	if info.Video == nil && len(info.Audio) == 0 {
		return nil, rejectNoStreams(raw, decoders)
	}
	measureDuration(info, raw, tracks)
	if v := info.Video; v != nil && planTiming(info).dropsFrames && v.MinGap < 1/maxRateWithSlack {
		info.warn("the source shows up to %.4g a second; frames above 60 a second are left out", 1/v.MinGap)
	}
	if err := checkDuration(info.Duration, maxDuration); err != nil {
		return nil, err
	}
	return info, nil
}

// describeVideos describes the chosen video, and leaves out the others.
func describeVideos(raw *rawProbe, tracks map[int]*trackTiming, info *Info, decoders decoderSet) error {
	video, err := chooseVideo(raw, tracks, info, decoders)
	if err != nil || video == nil {
		return err
	}
	if info.Video, err = describeVideo(video, tracks[video.Index], info); err != nil {
		return err
	}
	raw.keepProgramme(video.Index, tracks, info)
	warnOfOtherVideos(raw, tracks, info)
	return nil
}

// checkDuration rejects a source that is too long. A file of a few bytes can
// declare days, and would occupy a slot for as long.
func checkDuration(seconds, limit float64) error {
	if seconds <= limit {
		return nil
	}
	return reject("", "the source lasts %s; the limit is %s", formatHours(seconds), formatHours(limit))
}

func formatHours(seconds float64) string {
	return strconv.FormatFloat(math.Round(seconds/36)/100, 'f', -1, 64) + " hours"
}

func rejectEncrypted(raw *rawProbe) *RejectedError {
	for _, s := range raw.Streams {
		if s.Tag == "encv" || s.Tag == "enca" {
			return reject("", "the %s is encrypted; send a copy without encryption", s.Type)
		}
	}
	return nil
}

func rejectNoStreams(raw *rawProbe, decoders decoderSet) *RejectedError {
	for _, s := range raw.Streams {
		if name, known := decoders.supports(&s); s.Type == "audio" && !known {
			return reject("", "the audio codec %q is not supported; send AAC, MP3, Opus or FLAC", name)
		}
	}
	return reject("", "the file has neither video nor audio")
}

func pictureTooLarge(size string) *RejectedError {
	return reject("", "the picture is too large: %s pixels; the limit is %d million; send a smaller version",
		size, maxPixels/1_000_000)
}

func describeVideo(s *rawStream, track *trackTiming, info *Info) (*Video, error) {
	if s.Width > maxSide || s.Height > maxSide || s.Width*s.Height > maxPixels {
		return nil, pictureTooLarge(fmt.Sprintf("%dx%d", s.Width, s.Height))
	}
	codec, _ := s.codec()
	v := &Video{
		Index: s.Index, Codec: codec, Profile: knownValue(s.Profile), CodedWidth: s.Width, CodedHeight: s.Height, SAR: 1,
		Frames: track.packets, Keyframes: track.keyframes, MaxGap: track.maxGap, MinGap: track.minGap,
		Start: track.first, Duration: track.duration(), Repeated: track.repeated,
		Skipped:     skippedTime(track, info),
		PixelFormat: knownValue(s.PixelFormat), Matrix: knownValue(s.Matrix),
		Primaries: knownValue(s.Primaries), Transfer: knownValue(s.Transfer),
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
	if !track.stamped {
		v.assumeRate(s, track)
	}
	for _, unknown := range v.colours().unknown {
		info.warn("the colours may be wrong: ffmpeg cannot convert the source's %s", unknown)
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

// assumeRate gives a stream without timestamps, such as a file of H.264 alone, the rate that it says, or 25 frames a
// second.
func (v *Video) assumeRate(s *rawStream, track *trackTiming) {
	v.AssumedRate = s.AverageRate
	rate := parseRatio(v.AssumedRate)
	if byLength := standardRate(1 / track.lastDur); rate == 25 && track.lastDur > 0 {
		// ffmpeg 7 always says 25, but knows how long the frames last. The factor makes 30000/1001 exact.
		v.AssumedRate, rate = fmt.Sprintf("%.0f/1001000", 1001000*byLength), byLength
	}
	if rate < 1 || rate > maxAssumedRate {
		v.AssumedRate, rate = "25/1", 25
	}
	track.end = float64(track.packets) / rate
	track.maxGap, track.minGap = 1/rate, 1/rate
	v.Duration, v.MaxGap, v.MinGap = track.end, track.maxGap, track.minGap
}

func applySideData(s *rawStream, v *Video, info *Info) error {
	for _, d := range s.SideData {
		if d.Matrix != "" {
			var ok bool
			if v.Rotation, v.Mirrored, ok = parseDisplayMatrix(d.Matrix); !ok {
				info.warn("the file's rotation is not a quarter turn; it is ignored")
			}
		}
		if d.DoViProfile == 5 || d.DoViProfile > 0 && d.Compatibility != nil && *d.Compatibility == 0 && d.DoViProfile != 7 {
			return reject("", "the video is Dolby Vision profile %d, whose colours cannot be converted; "+
				"send it as HDR10, HLG or SDR", d.DoViProfile)
		}
	}
	return nil
}

// displaySize applies the sample aspect ratio and the rotation.
func displaySize(s *rawStream, v *Video, info *Info) error {
	switch sar := parseRatio(s.SAR); {
	case sar == 0:
	case sar < 0.05 || sar > 20:
		info.warn("the file claims pixels %.3g times as wide as high; they are treated as square", sar)
	default:
		v.SAR = sar
	}
	w, h := v.CodedWidth, v.CodedHeight
	// Only stretch, as players do, so that no line of the picture is lost.
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
		return reject("", "the picture is %dx%d pixels, which is too narrow to encode", w, h)
	}
	return nil
}

// hasAlphaChannel reports transparency, from the pixel format or from WebM's tag
// for an alpha layer.
func hasAlphaChannel(s *rawStream) bool {
	for _, prefix := range []string{"yuva", "gbrap", "rgba", "bgra", "argb", "abgr", "ya8", "ya16", "pal8"} {
		if strings.HasPrefix(s.PixelFormat, prefix) {
			return true
		}
	}
	return s.tag("alpha_mode") == "1"
}

// knownValue replaces ffprobe's values for "unknown" by "".
func knownValue(s string) string {
	if s == "unknown" || s == "reserved" || s == "unspecified" {
		return ""
	}
	return s
}

// measureDuration sets the times of the whole source.
func measureDuration(info *Info, raw *rawProbe, tracks map[int]*trackTiming) {
	start, end := math.Inf(1), math.Inf(-1)
	include := func(index int) {
		start, end = min(start, tracks[index].first), max(end, tracks[index].end)
	}
	if info.Video != nil {
		include(info.Video.Index)
	}
	longest := 0.0
	for _, a := range info.Audio {
		include(a.Index)
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
		// The streams have independent clocks, so their distance means nothing.
		info.Duration = longest
	}
	// Some headers count from zero, some from the first frame.
	header := info.HeaderDuration
	difference := min(math.Abs(header-info.Duration), math.Abs(header-end))
	switch {
	case raw.truncated && header > info.Duration && difference > missingSeconds/2:
		info.warn("the file is truncated: it has %.1f of %.1f s", info.Duration, header)
	case raw.truncated:
		info.warn("the file is truncated: its end is missing")
	case header > 0 && info.Joins == nil && difference > max(1, 0.05*header):
		info.warn("the file claims to last %.1f s, but has %.1f s", header, info.Duration)
	}
}
