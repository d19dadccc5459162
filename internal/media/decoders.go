package media

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// codecSet has the codecs that ffmpeg can decode or encode. ffprobe also names others,
// and one such stream would end the whole transcode.
type codecSet map[string]codec

// codec lists the names of a codec's decoders and encoders.
type codec struct{ decoders, encoders []string }

// supports returns a stream's codec and whether ffmpeg can decode it.
func (c codecSet) supports(s *rawStream) (name string, ok bool) {
	name, known := s.codec()
	return name, known && len(c[name].decoders) > 0
}

// requiredCodecs lists the codecs, which must not be empty.
func (t Tools) requiredCodecs(ctx context.Context) (codecSet, error) {
	codecs, err := t.codecs(ctx)
	if err == nil && len(codecs) == 0 {
		return nil, errors.New("ffmpeg lists no codecs")
	}
	return codecs, err
}

func (t Tools) codecs(ctx context.Context) (codecSet, error) {
	text, err := t.ffmpegOutput(ctx, "-codecs")
	if err != nil {
		return nil, err
	}
	codecs := codecSet{}
	for line := range strings.Lines(text) {
		if name, c, ok := parseCodec(line); ok {
			codecs[name] = c
		}
	}
	return codecs, nil
}

// parseCodec reads a line of ffmpeg's list, such as
// " DEV.LS h264  H.264 (decoders: h264 h264_qsv ) (encoders: libx264 )".
func parseCodec(line string) (name string, c codec, ok bool) {
	f := strings.Fields(line)
	if len(f) < 2 || len(f[0]) != 6 {
		return "", codec{}, false
	}
	if f[0][0] == 'D' {
		c.decoders = coders(f[1], line, "(decoders: ")
	}
	if f[0][1] == 'E' {
		c.encoders = coders(f[1], line, "(encoders: ")
	}
	return f[1], c, len(c.decoders)+len(c.encoders) > 0
}

// coders reads the decoders or encoders of a codec. The line names them only if one has
// a name other than the codec's.
func coders(codec, line, prefix string) []string {
	if _, rest, ok := strings.Cut(line, prefix); ok {
		names, _, _ := strings.Cut(rest, ")")
		return strings.Fields(names)
	}
	return []string{codec}
}

// probedInputOptions restricts ffmpeg to the container and the codecs that the
// probe found, out of several hundred. An Info of an older version has no
// codecs; then all are allowed.
func probedInputOptions(info *Info, codecs codecSet) []string {
	options := resyncOptions(info.Container)
	if info.Container != "" {
		options = append(options, "-format_whitelist", info.Container)
	}
	var names []string
	for _, name := range info.Codecs {
		for _, related := range append(relatedCodecs[name], name) {
			names = append(names, codecs[related].decoders...)
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
