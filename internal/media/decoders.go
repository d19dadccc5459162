package media

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// decodable is the decoders that ffmpeg has for each codec. ffprobe names codecs
// that it has none for, and one such stream would end the whole transcode.
type decoderSet map[string][]string

// codec is the codec's name and whether it can be decoded here.
func (d decoderSet) supports(s *rawStream) (name string, ok bool) {
	name, known := s.codec()
	return name, known && len(d[name]) > 0
}

// decodable is what ffmpeg can decode, which must be something.
func (t Tools) requiredDecoders(ctx context.Context) (decoderSet, error) {
	d, err := t.decoders(ctx)
	if err == nil && len(d) == 0 {
		return nil, errors.New("ffmpeg names no decoders")
	}
	return d, err
}

func (t Tools) decoders(ctx context.Context) (decoderSet, error) {
	text, err := t.ffmpegOutput(ctx, "-codecs")
	if err != nil {
		return nil, err
	}
	d := decoderSet{}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 1 && len(f[0]) == 6 && f[0][0] == 'D' {
			d[f[1]] = parseDecoders(f[1], line)
		}
	}
	return d, nil
}

// asProbed are the options for a source that was probed: nothing but the container
// and the decoders of the codecs that were found in it may be opened, out of several
// hundred. Where an older version has probed it, the codecs are not known.
func probedInputOptions(info *Info, can decoderSet) []string {
	options := resyncOptions(info.Container)
	if info.Container != "" {
		options = append(options, "-format_whitelist", info.Container)
	}
	var names []string
	for _, codec := range info.Codecs {
		names = append(names, can[codec]...)
		for _, alike := range relatedCodecs[codec] {
			names = append(names, can[alike]...)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > 0 {
		options = append(options, "-codec_whitelist", strings.Join(names, ","))
	}
	return options
}

// taken are the codecs for which ffmpeg takes another at first: transport and program
// streams name a family only.
var relatedCodecs = map[string][]string{
	"mp1": {"mp2", "mp3"}, "mp2": {"mp1", "mp3"}, "mp3": {"mp1", "mp2"},
	"mpeg1video": {"mpeg2video"}, "mpeg2video": {"mpeg1video"},
	"ac3": {"eac3"}, "eac3": {"ac3"}, "aac": {"aac_latm"}, "aac_latm": {"aac"},
}

// decodersOf reads the names of a codec's decoders from its line in ffmpeg's list,
// which has them only where there is another than the one of the codec's name.
func parseDecoders(codec, line string) []string {
	if _, rest, ok := strings.Cut(line, "(decoders: "); ok {
		names, _, _ := strings.Cut(rest, ")")
		return strings.Fields(names)
	}
	return []string{codec}
}

// chooseAudio takes what can be decoded, in the order of rankAudio: players begin
// with the first.
func chooseAudio(raw *rawProbe, tracks map[int]*trackTiming, info *Info, can decoderSet) {
	streams := map[int]*rawStream{}
	longest := 0.0
	for i := range raw.Streams {
		s := &raw.Streams[i]
		tr := tracks[s.Index]
		if s.Type != "audio" || tr == nil || tr.packets == 0 {
			continue
		}
		name, isKnown := can.supports(s)
		if !isKnown {
			info.warn("the audio stream %d is left out: codec %q is not supported", s.Index, name)
			continue
		}
		rate, _ := s.Rate.seconds()
		if s.Channels <= 0 || rate < 1 {
			info.warn("the audio stream %d is left out: it has no channels or no sampling rate", s.Index)
			continue
		}
		streams[s.Index], longest = s, max(longest, tr.duration())
		info.Audio = append(info.Audio, Audio{
			Index: s.Index, Codec: name, Channels: s.Channels, Layout: knownValue(s.Layout), Rate: int(rate),
			Language: language(s.tag("language")), Title: title(s),
			Start: tr.first, Duration: tr.duration(),
		})
	}
	slices.SortStableFunc(info.Audio, func(a, b Audio) int {
		return rankAudio(streams[a.Index], a.Duration, longest) - rankAudio(streams[b.Index], b.Duration, longest)
	})
	if n := len(info.Audio); n > maxAudio {
		info.Audio = info.Audio[:maxAudio]
		info.warn("only %d of %d audio streams are used", maxAudio, n)
	}
	for i := range info.Audio {
		info.Audio[i].Default = i == 0
	}
}

func chooseSubtitles(raw *rawProbe, info *Info) {
	for i := range raw.Streams {
		s := &raw.Streams[i]
		if s.Type != "subtitle" {
			continue
		}
		name, _ := s.codec()
		if len(info.Subtitles) == maxSubtitles {
			info.warn("only the first %d subtitle streams are named", maxSubtitles)
			return
		}
		switch name {
		case "subrip", "srt", "ass", "ssa", "webvtt", "mov_text", "text", "ttml", "microdvd", "sami", "subviewer":
			info.Subtitles = append(info.Subtitles, Subtitle{
				Index: s.Index, Codec: name, Language: language(s.tag("language")), Title: title(s),
				Forced: s.Disposition.Forced != 0,
			})
		default:
			info.warn("the subtitle stream %d is left out: %s is not text", s.Index, name)
		}
	}
}

// language keeps tags that look like one; others would end up in playlists.
func language(tag string) string {
	tag = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(tag)), "_", "-")
	if tag == "und" || len(tag) < 2 || len(tag) > 16 {
		return ""
	}
	for _, r := range tag {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' {
			return ""
		}
	}
	return tag
}
