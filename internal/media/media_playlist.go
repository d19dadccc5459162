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
	next     *float64 // duration of the next segment
}

type playlistEntry struct {
	name     string
	duration float64
}

// parsePlaylist parses a finished media playlist. It accepts only what ffmpeg writes
// for this package: one initialization segment, and segments in the playlist's
// directory.
func parsePlaylist(text string) (*playlist, error) {
	lines := strings.Split(text, "\n")
	if strings.TrimRight(lines[0], "\r") != "#EXTM3U" {
		return nil, fmt.Errorf("line 1: no #EXTM3U")
	}
	p := &playlist{}
	for i, line := range lines[1:] {
		if err := p.addLine(strings.TrimRight(line, "\r")); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+2, err)
		}
	}
	switch {
	case p.next != nil || !p.ended:
		return p, fmt.Errorf("it is not complete: #EXT-X-ENDLIST is missing")
	case len(p.segments) == 0:
		return p, errEmptyRendition
	case p.init == "":
		return p, fmt.Errorf("it has no #EXT-X-MAP")
	}
	return p, nil
}

// errEmptyRendition means that ffmpeg ended a rendition before it wrote a segment.
var errEmptyRendition = errors.New("it has no segments")

func (p *playlist) addLine(line string) error {
	tag, value, _ := strings.Cut(line, ":")
	switch {
	case line == "":
	case p.ended:
		return fmt.Errorf("text after #EXT-X-ENDLIST")
	case tag == "#EXT-X-TARGETDURATION":
		n, err := strconv.Atoi(value)
		if err != nil || n < 0 {
			return fmt.Errorf("target duration %q", value)
		}
		p.target = n
	case tag == "#EXT-X-MAP":
		name, ok := strings.CutPrefix(value, `URI="`)
		name, closed := strings.CutSuffix(name, `"`)
		if !ok || !closed || !isPlainName(name) || p.init != "" {
			return fmt.Errorf("header %q", value)
		}
		p.init = name
	case tag == "#EXTINF":
		d, err := strconv.ParseFloat(strings.TrimSuffix(value, ","), 64)
		if err != nil || math.IsNaN(d) || d < 0 || d > maxTimestamp || p.next != nil {
			return fmt.Errorf("duration %q", value)
		}
		p.next = &d
	case line == "#EXT-X-ENDLIST":
		p.ended = true
	case strings.HasPrefix(line, "#"):
	case p.next == nil || !isPlainName(line):
		return fmt.Errorf("segment %q", line)
	default:
		p.segments = append(p.segments, playlistEntry{line, *p.next})
		p.next = nil
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
// duration. The target duration is at least that of the whole video.
func (s *renditionFiles) playlist(target int) string {
	var b strings.Builder
	target = max(target, 1)
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
