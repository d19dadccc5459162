package captions

import (
	"cmp"
	"encoding/json"
	"fmt"
	"html"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

const (
	// MaxChapters is the most chapters that a video has.
	MaxChapters = 1000
	// maxTitle is the longest title of a chapter, in characters.
	maxTitle = 200
	// openEnd is the end of the last chapter of a file that names none, in seconds: longer than any video.
	openEnd = 1e6
)

// Chapter is a named part of a video. Its times are seconds from the start of the video.
type Chapter struct {
	Start float64 `json:"start"`
	End   float64 `json:"end"`
	Title string  `json:"title"`
	// Language of the title is a BCP 47 tag; empty if unknown.
	Language string `json:"language,omitempty"`
}

// ParseChapters reads a file with chapters: WebVTT, or lines of a time and a title, such as "01:30 The harbour". The language, a
// BCP 47 tag, helps to recognise the encoding; it may be empty. An [*Error] says what is wrong.
func ParseChapters(data []byte, language string) ([]Chapter, error) {
	text, err := decode(data, language)
	if err != nil {
		return nil, err
	}
	read := readChapterLines
	if strings.HasPrefix(text, "WEBVTT") {
		read = readChapterCues
	}
	all, err := read(text)
	if err != nil {
		return nil, err
	}
	switch {
	case len(all) == 0:
		return nil, &Error{Reason: "there is no chapter in the file"}
	case len(all) > MaxChapters:
		return nil, &Error{Reason: fmt.Sprintf("the file has %d chapters; %d are allowed", len(all), MaxChapters)}
	}
	for i := range all {
		all[i].Language = language
	}
	return FitChapters(all, 0, openEnd), nil
}

// cueTag is a tag in the text of a cue.
var cueTag = regexp.MustCompile(`<[^>]*>`)

func readChapterCues(text string) (all []Chapter, err error) {
	cues, err := Parse(WholeName, []byte(text), "")
	for _, c := range cues {
		title := html.UnescapeString(cueTag.ReplaceAllString(c.Text, ""))
		all = append(all, Chapter{Start: c.Start.Seconds(), End: c.End.Seconds(), Title: title})
	}
	return all, err
}

// chapterLine has hours, minutes, seconds and a title. Minutes without hours may be more than 59.
var chapterLine = regexp.MustCompile(`^(?:(\d{1,3}):([0-5]?\d)|(\d{1,4})):([0-5]\d(?:[.,]\d{1,3})?)[\s–—-]+(\S.*)$`)

func readChapterLines(text string) (all []Chapter, err error) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		part := chapterLine.FindStringSubmatch(line)
		if part == nil {
			return nil, &Error{number, fmt.Sprintf("%.60q is not a time and a title, such as 01:30 The harbour", line)}
		}
		hours, _ := strconv.Atoi(part[1])
		minutes, _ := strconv.Atoi(part[2] + part[3])
		seconds, _ := strconv.ParseFloat(strings.Replace(part[4], ",", ".", 1), 64)
		start := float64(hours*3600+minutes*60) + seconds
		if n := len(all); n > 0 && start <= all[n-1].Start {
			return nil, &Error{number, "the chapter does not begin after the one before it"}
		}
		all = append(all, Chapter{Start: start, Title: part[5]})
	}
	return all, nil
}

// FitChapters returns the chapters of a video that lasts so many seconds, sorted by time. It adds shift to all times, and leaves out
// what is not within the video. A chapter without an end, or that overlaps the next one, ends where that begins. One without a
// title gets a number.
func FitChapters(all []Chapter, shift, seconds float64) (fitted []Chapter) {
	all = slices.SortedStableFunc(slices.Values(all), func(a, b Chapter) int { return cmp.Compare(a.Start, b.Start) })
	for i, c := range all {
		next := math.Inf(1)
		if i+1 < len(all) {
			next = all[i+1].Start
		}
		if c.End <= c.Start || c.End > next {
			c.End = next
		}
		c.Start = max(0, inMillis(c.Start+shift))
		c.End = min(math.Floor(seconds*1000)/1000, inMillis(c.End+shift))
		if c.Start < c.End {
			c.Title = cmp.Or(cleanTitle(c.Title), fmt.Sprintf("Chapter %d", len(fitted)+1))
			fitted = append(fitted, c)
		}
	}
	return fitted
}

func inMillis(seconds float64) float64 { return math.Round(seconds*1000) / 1000 }

// cleanTitle makes a title one line without control characters.
func cleanTitle(title string) string {
	title = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, title)
	title = strings.Join(strings.Fields(title), " ")
	if runes := []rune(title); len(runes) > maxTitle {
		title = string(runes[:maxTitle-1]) + "…"
	}
	return title
}

// ChaptersWebVTT returns the chapters as a WebVTT file, for a text track of the kind chapters.
func ChaptersWebVTT(all []Chapter) []byte {
	var cues []Cue
	for _, c := range all {
		duration := func(seconds float64) time.Duration { return time.Duration(math.Round(seconds*1000)) * time.Millisecond }
		cues = append(cues, Cue{Start: duration(c.Start), End: duration(c.End), Text: escape(c.Title)})
	}
	return WebVTT(cues)
}

// ChaptersJSON returns the chapters as Apple's players read them, by the session data com.apple.hls.chapters of HLS.
func ChaptersJSON(all []Chapter) ([]byte, error) {
	type title struct {
		Language string `json:"language"`
		Title    string `json:"title"`
	}
	type entry struct {
		Chapter  int     `json:"chapter"`
		Start    float64 `json:"start-time"`
		Duration float64 `json:"duration"`
		Titles   []title `json:"titles"`
	}
	entries := make([]entry, len(all))
	for i, c := range all {
		entries[i] = entry{i + 1, c.Start, inMillis(c.End - c.Start), []title{{cmp.Or(c.Language, "und"), c.Title}}}
	}
	return json.MarshalIndent(entries, "", "  ")
}
