package captions

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// WholeName is the file with all cues, in the directory that Write fills.
	WholeName = "captions.vtt"
	// PlaylistName is the playlist of its segments.
	PlaylistName = "captions.m3u8"
	// SegmentSeconds is the length of a segment: ten of the video's. Two hours are 120 small files.
	SegmentSeconds = 60
)

// Fit returns the cues of a video that lasts so many seconds, sorted by time. It adds shift to all times, leaves out
// what is not shown at all, and ends at the end of the video.
func Fit(cues []Cue, shift time.Duration, seconds float64) []Cue {
	end := time.Duration(math.Floor(seconds*1000)) * time.Millisecond
	var fitted []Cue
	for _, c := range cues {
		c.Start = max(0, (c.Start + shift).Round(time.Millisecond))
		c.End = min(end, (c.End + shift).Round(time.Millisecond))
		if c.Start < c.End {
			fitted = append(fitted, c)
		}
	}
	slices.SortStableFunc(fitted, func(a, b Cue) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End)) })
	return fitted
}

// WebVTT returns the cues as one file.
func WebVTT(cues []Cue) []byte {
	var b bytes.Buffer
	b.WriteString("WEBVTT\n")
	for _, c := range cues {
		c.write(&b)
	}
	return b.Bytes()
}

func (c Cue) write(b *bytes.Buffer) {
	settings := ""
	if c.IsTop {
		settings = " line:0"
	}
	fmt.Fprintf(b, "\n%s --> %s%s\n%s\n", timestamp(c.Start), timestamp(c.End), settings, c.Text)
}

func timestamp(t time.Duration) string {
	ms := t.Milliseconds()
	return fmt.Sprintf("%02d:%02d:%02d.%03d", ms/3_600_000, ms/60_000%60, ms/1000%60, ms%1000)
}

// Write writes the cues into the new directory dir: whole, and as segments with a playlist. A cue that is shown across the
// end of a segment is in both, as RFC 8216 asks for.
func Write(dir string, cues []Cue, seconds float64) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("write captions: %w", err)
	}
	files := map[string][]byte{WholeName: WebVTT(cues)}
	var list strings.Builder
	fmt.Fprintf(&list, "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:%d\n#EXT-X-MEDIA-SEQUENCE:0\n#EXT-X-PLAYLIST-TYPE:VOD\n",
		int(min(SegmentSeconds, math.Ceil(seconds))))
	for i := 0; float64(i*SegmentSeconds) < seconds; i++ {
		name := fmt.Sprintf("seg-%05d.vtt", i)
		files[name] = segment(cues, time.Duration(i)*SegmentSeconds*time.Second)
		fmt.Fprintf(&list, "#EXTINF:%.6f,\n%s\n", min(SegmentSeconds, seconds-float64(i*SegmentSeconds)), name)
	}
	list.WriteString("#EXT-X-ENDLIST\n")
	files[PlaylistName] = []byte(list.String())
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return fmt.Errorf("write captions: %w", err)
		}
	}
	return nil
}

// segment returns the segment from a time on. Its times count from the start of the video, where the clocks of video and
// sound are 0, too.
func segment(cues []Cue, from time.Duration) []byte {
	b := bytes.NewBufferString("WEBVTT\nX-TIMESTAMP-MAP=MPEGTS:0,LOCAL:00:00:00.000\n")
	for _, c := range cues {
		if c.Start < from+SegmentSeconds*time.Second && c.End > from {
			c.write(b)
		}
	}
	return b.Bytes()
}
