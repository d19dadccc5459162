package media

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// decoderSet lists ffmpeg's decoders of each codec. ffprobe also names codecs
// without a decoder, and one such stream would end the whole transcode.
type decoderSet map[string][]string

// supports returns a stream's codec and whether ffmpeg can decode it.
func (d decoderSet) supports(s *rawStream) (codec string, ok bool) {
	codec, known := s.codec()
	return codec, known && len(d[codec]) > 0
}

// requiredDecoders lists the decoders, which must not be empty.
func (t Tools) requiredDecoders(ctx context.Context) (decoderSet, error) {
	d, _, err := t.codecs(ctx)
	if err == nil && len(d) == 0 {
		return nil, errors.New("ffmpeg lists no decoders")
	}
	return d, err
}

// codecs lists ffmpeg's decoders of each codec, and its encoders.
func (t Tools) codecs(ctx context.Context) (decoders decoderSet, encoders []string, err error) {
	text, err := t.ffmpegOutput(ctx, "-codecs")
	if err != nil {
		return nil, nil, err
	}
	decoders = decoderSet{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 || len(f[0]) != 6 {
			continue
		}
		if f[0][0] == 'D' {
			decoders[f[1]] = parseCoders(f[1], line, "decoders")
		}
		if f[0][1] == 'E' {
			encoders = append(encoders, parseCoders(f[1], line, "encoders")...)
		}
	}
	return decoders, encoders, nil
}

// parseCoders reads a codec's decoders or encoders from its line in ffmpeg's list. The
// line names them only if the codec has one with a name other than its own.
func parseCoders(codec, line, kind string) []string {
	if _, rest, ok := strings.Cut(line, "("+kind+": "); ok {
		names, _, _ := strings.Cut(rest, ")")
		return strings.Fields(names)
	}
	return []string{codec}
}

// probedInputOptions restricts ffmpeg to the container and the codecs that the
// probe found, out of several hundred. An Info of an older version has no
// codecs; then all are allowed.
func probedInputOptions(info *Info, decoders decoderSet) []string {
	options := resyncOptions(info.Container)
	if info.Container != "" {
		options = append(options, "-format_whitelist", info.Container)
	}
	if info.Video != nil && info.Video.AssumedRate != "" {
		options = append(options, "-r", info.Video.AssumedRate)
	}
	var names []string
	for _, codec := range info.Codecs {
		names = append(names, decoders[codec]...)
		for _, related := range relatedCodecs[codec] {
			names = append(names, decoders[related]...)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > 0 {
		options = append(options, "-codec_whitelist", strings.Join(names, ","))
	}
	return options
}

// relatedCodecs are codecs that ffmpeg may try first for another, because
// transport and program streams name only a family.
var relatedCodecs = map[string][]string{
	"mp1": {"mp2", "mp3"}, "mp2": {"mp1", "mp3"}, "mp3": {"mp1", "mp2"},
	"mpeg1video": {"mpeg2video"}, "mpeg2video": {"mpeg1video"},
	"ac3": {"eac3"}, "eac3": {"ac3"}, "aac": {"aac_latm"}, "aac_latm": {"aac"},
}
