package media

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// playlist is a media playlist as ffmpeg writes it.
type playlist struct {
	target   int
	init     string
	segments []playlistEntry
	ended    bool
}

type playlistEntry struct {
	name     string
	duration float64
}

// parsePlaylist parses a finished media playlist. It accepts only what ffmpeg writes
// for this package: one initialization segment, and segments in the playlist's
// directory.
func parsePlaylist(text string) (*playlist, error) {
	p := &playlist{}
	var duration float64
	pending := false
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimRight(line, "\r")
		tag, value, _ := strings.Cut(line, ":")
		switch {
		case i == 0 && line != "#EXTM3U":
			return nil, fmt.Errorf("line 1: no #EXTM3U")
		case line == "" || i == 0:
		case p.ended:
			return nil, fmt.Errorf("line %d: text after #EXT-X-ENDLIST", i+1)
		case tag == "#EXT-X-TARGETDURATION":
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 {
				return nil, fmt.Errorf("line %d: target duration %q", i+1, value)
			}
			p.target = n
		case tag == "#EXT-X-MAP":
			name, ok := strings.CutPrefix(value, `URI="`)
			name, closed := strings.CutSuffix(name, `"`)
			if !ok || !closed || !isPlainName(name) || p.init != "" {
				return nil, fmt.Errorf("line %d: header %q", i+1, value)
			}
			p.init = name
		case tag == "#EXTINF":
			d, err := strconv.ParseFloat(strings.TrimSuffix(value, ","), 64)
			if err != nil || math.IsNaN(d) || d < 0 || d > maxTimestamp || pending {
				return nil, fmt.Errorf("line %d: duration %q", i+1, value)
			}
			duration, pending = d, true
		case line == "#EXT-X-ENDLIST":
			p.ended = true
		case strings.HasPrefix(line, "#"):
		default:
			if !pending || !isPlainName(line) {
				return nil, fmt.Errorf("line %d: segment %q", i+1, line)
			}
			p.segments = append(p.segments, playlistEntry{line, duration})
			pending = false
		}
	}
	return p, p.check(pending)
}

// errEmptyRendition means that ffmpeg ended a rendition before it wrote a segment.
var errEmptyRendition = errors.New("it has no segments")

func (p *playlist) check(pending bool) error {
	switch {
	case pending || !p.ended:
		return fmt.Errorf("it is not complete: #EXT-X-ENDLIST is missing")
	case len(p.segments) == 0:
		return errEmptyRendition
	case p.init == "":
		return fmt.Errorf("it has no #EXT-X-MAP")
	}
	return nil
}

// isPlainName reports whether a name is that of a finished file in the playlist's
// directory.
func isPlainName(name string) bool {
	return name != "" && name[0] != '.' && !strings.ContainsAny(name, "/\\:?#%\"") && !strings.HasSuffix(name, ".tmp")
}

// playlist renders the media playlist with the measured durations. ffmpeg writes
// wrong durations for its last segments, and for sources whose frames have no
// duration.
func (s *renditionFiles) playlist() string {
	var b strings.Builder
	target := 1
	for _, g := range s.segments {
		target = max(target, int(math.Round(s.seconds(g.length))))
	}
	fmt.Fprintf(&b, "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:%d\n#EXT-X-MEDIA-SEQUENCE:0\n", target)
	fmt.Fprintf(&b, "#EXT-X-PLAYLIST-TYPE:VOD\n#EXT-X-INDEPENDENT-SEGMENTS\n#EXT-X-MAP:URI=\"%s\"\n", s.init)
	for _, g := range s.segments {
		fmt.Fprintf(&b, "#EXTINF:%.6f,\n%s\n", s.seconds(g.length), g.name)
	}
	b.WriteString("#EXT-X-ENDLIST\n")
	return b.String()
}

// bandwidth measures a rendition as RFC 8216 defines it: the peak is the highest rate
// of any run of segments that lasts between half and one and a half target
// durations, the average is over all.
func bandwidth(s *renditionFiles) (peak, average int64) {
	total, length := int64(0), 0.0
	for _, g := range s.segments {
		total += g.bytes
		length += s.seconds(g.length)
	}
	if length <= 0 {
		return 0, 0
	}
	average = int64(math.Ceil(float64(total) * 8 / length))
	peak = average
	shortest, longest := 0.5*float64(s.target), 1.5*float64(s.target)
	for i := range s.segments {
		bytes, seconds := int64(0), 0.0
		for _, g := range s.segments[i:] {
			bytes += g.bytes
			seconds += s.seconds(g.length)
			if seconds > longest {
				break
			}
			if seconds >= shortest {
				peak = max(peak, int64(math.Ceil(float64(bytes)*8/seconds)))
			}
		}
	}
	return peak, average
}
