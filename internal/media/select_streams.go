package media

import (
	"cmp"
	"slices"
	"strings"
)

// maxAudio limits the audio renditions of one source.
const maxAudio = 8

// chooseVideo selects the video stream. It ignores covers, thumbnails, and
// streams without a size or without packets. It returns nil for audio alone.
func chooseVideo(raw *rawProbe, tracks map[int]*trackTiming, info *Info, decoders decoderSet) (*rawStream, error) {
	var candidates []*rawStream
	var unsupported string
	info.chooseCover(raw, decoders)
	for i := range raw.Streams {
		s := &raw.Streams[i]
		if s.Type != "video" || s.Disposition.Cover != 0 {
			continue
		}
		codec, ok := decoders.supports(s)
		if !ok {
			unsupported = codec
			continue
		}
		track := tracks[s.Index]
		if s.Disposition.Thumbs != 0 || s.Width <= 0 || s.Height <= 0 || track == nil || track.packets == 0 {
			continue
		}
		candidates = append(candidates, s)
	}
	hasVideo := func(sized bool) bool {
		return slices.ContainsFunc(raw.Streams, func(s rawStream) bool {
			d := s.Disposition
			return s.Type == "video" && d.Cover == 0 && d.Thumbs == 0 && s.Width > 0 == sized && (!sized || s.Height > 0)
		})
	}
	switch {
	case len(candidates) > 0:
		return mainVideo(candidates, tracks), nil
	case unsupported != "":
		return nil, reject("", "the video codec %q is not supported; send H.264, HEVC, VP9 or AV1", unsupported)
	case raw.rejectedSize != "" && hasVideo(false):
		return nil, pictureTooLarge(raw.rejectedSize)
	case hasVideo(true):
		// Publishing the audio alone would surprise the sender.
		return nil, reject("", "the video has no frames; send an intact copy")
	}
	return nil, nil
}

// minorShare is the share of the most frames, and of the longest duration,
// below which a stream is secondary: the still picture of a motion photo, or a
// preview. Two versions of one video differ by less.
const minorShare = 0.5

// mainVideo selects, among the streams with many frames and a long duration,
// the default one, and then the largest one. Disposition and size come second
// because cameras mark and enlarge the still picture.
func mainVideo(candidates []*rawStream, tracks map[int]*trackTiming) *rawStream {
	candidates = mostOf(candidates, func(s *rawStream) float64 { return float64(tracks[s.Index].packets) })
	candidates = mostOf(candidates, func(s *rawStream) float64 { return tracks[s.Index].duration() })
	return slices.MinFunc(candidates, func(a, b *rawStream) int {
		return cmp.Or(cmp.Compare(b.Disposition.Default, a.Disposition.Default),
			cmp.Compare(b.Width*b.Height, a.Width*a.Height))
	})
}

// warnOfOtherVideos warns of videos that are left out, but not of covers and previews.
func warnOfOtherVideos(raw *rawProbe, tracks map[int]*trackTiming, info *Info) {
	for i := range raw.Streams {
		s := &raw.Streams[i]
		track, isPreview := tracks[s.Index], s.Disposition.Cover != 0 || s.Disposition.Thumbs != 0
		if s.Type != "video" || s.Index == info.Video.Index || track == nil || isPreview {
			continue
		}
		// Where clocks start again, a few frames may be the end of the recording.
		if float64(track.packets) >= minorShare*float64(info.Video.Frames) || hasTimestampJumps(info.Container) {
			info.warn("the video stream %d (%.1f s) is left out; only one is published", s.Index, track.duration())
		}
	}
}

// mostOf keeps the items whose value is at least minorShare of the highest.
func mostOf[T any](items []T, value func(T) float64) []T {
	highest := 0.0
	for _, item := range items {
		highest = max(highest, value(item))
	}
	return slices.DeleteFunc(slices.Clone(items), func(item T) bool { return value(item) < minorShare*highest })
}

// chooseCover selects the front cover, or else the first cover, that can be
// decoded.
func (i *Info) chooseCover(raw *rawProbe, decoders decoderSet) {
	hasFront := false
	for j := range raw.Streams {
		s := &raw.Streams[j]
		if s.Type != "video" || s.Disposition.Cover == 0 {
			continue
		}
		_, ok := decoders.supports(s)
		switch front := strings.EqualFold(s.tag("comment"), "Cover (front)"); {
		case !ok || s.Width <= 0 || s.Height <= 0 || s.Width*s.Height > maxPixels:
			i.warn("the cover picture (stream %d) is left out: it is too large or cannot be read", s.Index)
		case i.Cover < 0, front && !hasFront:
			i.Cover, hasFront = s.Index, front
		}
	}
}

// chooseAudio selects the decodable audio streams and sorts them by rankAudio.
// Players start with the first.
func chooseAudio(raw *rawProbe, tracks map[int]*trackTiming, info *Info, decoders decoderSet) {
	streams := map[int]*rawStream{}
	longest := 0.0
	for i := range raw.Streams {
		s := &raw.Streams[i]
		track := tracks[s.Index]
		if s.Type != "audio" || track == nil || track.packets == 0 {
			continue
		}
		codec, ok := decoders.supports(s)
		if !ok {
			info.warn("the audio stream %d (%.1f s) is left out: codec %q is not supported", s.Index, track.duration(), codec)
			continue
		}
		rate, _ := s.Rate.seconds()
		if s.Channels <= 0 || rate < 1 {
			info.warn("the audio stream %d (%.1f s) is left out: it has no channels or no sampling rate", s.Index, track.duration())
			continue
		}
		streams[s.Index], longest = s, max(longest, track.duration())
		info.Audio = append(info.Audio, Audio{
			Index: s.Index, Codec: codec, Channels: s.Channels, Layout: knownValue(s.Layout), Rate: int(rate),
			Language: languageTag(s.tag("language")), Title: title(s), Role: s.audioRole(),
			Start: track.first, Duration: track.duration(),
		})
	}
	info.joinMonoTracks(streams)
	slices.SortStableFunc(info.Audio, func(a, b Audio) int {
		return rankAudio(streams[a.Index], a.Duration, longest) - rankAudio(streams[b.Index], b.Duration, longest)
	})
	if info.Video == nil && len(info.Audio) > 0 {
		first := info.Audio[0].Index
		info.Audio = slices.DeleteFunc(info.Audio, func(a Audio) bool { return !raw.sharesProgramme(a.Index, first) })
		raw.keepProgramme(first, tracks, info)
	}
	if n := len(info.Audio); n > maxAudio {
		info.Audio = info.Audio[:maxAudio]
		info.warn("only %d of %d audio streams are used", maxAudio, n)
	}
	for i := range info.Audio {
		info.Audio[i].Default = i == 0
	}
}

// rankAudio orders audio streams; lower is better. A stream less than half as
// long as the longest is a jingle or damaged. Commentaries and descriptions
// come late unless they are marked as default.
func rankAudio(s *rawStream, duration, longest float64) int {
	d := s.Disposition
	switch {
	case duration < minorShare*longest:
		return 3
	case d.Default != 0:
		return 0
	case d.Comment != 0 || d.Impaired != 0:
		return 2
	}
	return 1
}

// pictureSubtitles are subtitles that are pictures, by ffmpeg's names.
var pictureSubtitles = map[string]string{
	"hdmv_pgs_subtitle": "PGS", "dvd_subtitle": "VobSub", "dvb_subtitle": "DVB subtitles", "xsub": "XSUB",
}

// textSubtitles are subtitles that are text, or, of teletext, made of it.
var textSubtitles = []string{
	"subrip", "srt", "ass", "ssa", "webvtt", "mov_text", "text", "ttml", "microdvd", "sami", "subviewer", teletext,
}

const teletext = "dvb_teletext"

// subtitleLanguage is the language of a stream. Of teletext there is one for each page; if they differ, it is unknown.
func subtitleLanguage(s *rawStream) string {
	pages := slices.Compact(strings.Split(s.tag("language"), ","))
	if len(pages) > 1 {
		return ""
	}
	return languageTag(pages[0])
}

func chooseSubtitles(raw *rawProbe, info *Info, decoders decoderSet) {
	for i := range raw.Streams {
		s := &raw.Streams[i]
		codec, _ := s.codec()
		if s.Type == "data" && s.Tag == "stpp" { // ffmpeg does not know TTML in MP4
			codec = "ttml"
		} else if s.Type != "subtitle" {
			continue
		}
		if len(info.Subtitles) == maxSubtitles {
			info.warn("only the first %d subtitle streams are used", maxSubtitles)
			return
		}
		switch name := pictureSubtitles[codec]; {
		case codec == teletext && len(decoders[codec]) == 0:
			info.warn("the subtitle stream %d is left out: this ffmpeg cannot read teletext; install one with libzvbi", s.Index)
		case codec == teletext && (raw.joins != nil || raw.jumpsTooOften):
			info.warn("the subtitle stream %d is left out: the clock of the file jumps, and when its text is shown is not known", s.Index)
		case slices.Contains(textSubtitles, codec):
			info.Subtitles = append(info.Subtitles, Subtitle{
				Index: s.Index, Codec: codec, Language: subtitleLanguage(s), Title: title(s),
				Forced: s.Disposition.Forced != 0, SDH: s.Disposition.SDH != 0,
			})
		case name != "":
			info.warn("the subtitle stream %d is left out: %s are pictures, and captions must be text; attach a file", s.Index, name)
		default:
			info.warn("the subtitle stream %d is left out: %s is not text", s.Index, codec)
		}
	}
}
