package captions

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/asticode/go-astisub"
)

const (
	// MaxBytes is the largest file that Parse reads.
	MaxBytes = 8 << 20
	maxCues  = 100_000
)

// Cue is a text, and when it is shown, counted from the start of the video.
type Cue struct {
	Start, End time.Duration
	// Text is the payload of a WebVTT cue: lines, of which none is empty, with the tags i, b, u and v.
	Text string
	// IsTop means that the text stands at the top of the picture instead of the bottom.
	IsTop bool
}

// Error says why a file cannot be read.
type Error struct {
	Line   int // 0: unknown
	Reason string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Reason
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Reason)
}

// ErrNoText is the [Error] of a file without text.
var ErrNoText = &Error{Reason: "there is no text with a time in the file"}

// Extensions are the endings of the names of files that Parse reads.
var Extensions = []string{".srt", ".vtt", ".ass", ".ssa", ".ttml", ".dfxp", ".xml"}

// Parse reads a file. The ending of its name says the format. The language, a BCP 47 tag, helps to recognise
// the encoding; it may be empty.
func Parse(name string, data []byte, language string) ([]Cue, error) {
	text, err := decode(data, language)
	if err != nil {
		return nil, err
	}
	ext := strings.ToLower(path.Ext(name))
	read, err := reader(ext, text)
	if err != nil {
		return nil, err
	}
	subtitles, err := read()
	if err != nil {
		return nil, err
	}
	unescape := func(text string) string { return text }
	if ext == ".vtt" || ext == ".srt" {
		unescape = html.UnescapeString // the library knows few of the names
	}
	cues := make([]Cue, 0, len(subtitles.Items))
	for _, item := range subtitles.Items {
		cue := cueOf(item, unescape)
		if cue.Text == "" || cue.End <= cue.Start {
			continue
		}
		if n := len(cues) - 1; n >= 0 && cues[n].goesOn(cue) {
			cues[n].End = max(cues[n].End, cue.End)
			continue
		}
		cues = append(cues, cue)
	}
	switch {
	case len(cues) == 0:
		return nil, ErrNoText
	case len(cues) > maxCues:
		return nil, &Error{Reason: fmt.Sprintf("the file has %d texts; %d are allowed", len(cues), maxCues)}
	}
	return cues, nil
}

// goesOn reports whether the next cue is the same text: documents of TTML repeat what is shown across their ends, and teletext repeats
// pages.
func (c Cue) goesOn(next Cue) bool {
	return next.Text == c.Text && next.IsTop == c.IsTop && next.Start >= c.Start && next.Start <= c.End
}

// reader returns the function that reads a format.
func reader(ext, text string) (func() (*astisub.Subtitles, error), error) {
	in := bytes.NewBufferString(text)
	switch ext {
	case ".srt":
		return guarded(func() (*astisub.Subtitles, error) { return astisub.ReadFromSRT(in) }), nil
	case ".vtt":
		if first, _, _ := strings.Cut(text, "\n"); !strings.HasPrefix(first, "WEBVTT") {
			return nil, &Error{1, "a WebVTT file begins with WEBVTT"}
		}
		return guarded(func() (*astisub.Subtitles, error) { return astisub.ReadFromWebVTT(in) }), nil
	case ".ass", ".ssa":
		return guarded(func() (*astisub.Subtitles, error) {
			return astisub.ReadFromSSAWithOptions(in, astisub.SSAOptions{})
		}), nil
	case ".ttml", ".dfxp", ".xml":
		return guarded(func() (*astisub.Subtitles, error) { return readTTML(text) }), nil
	}
	return nil, &Error{Reason: fmt.Sprintf("the ending %q is not that of a subtitle file; allowed: %s", ext, strings.Join(Extensions, " "))}
}

// documentEnd ends a TTML document. A track of an MP4 file has several, one after another.
var documentEnd = regexp.MustCompile(`</(\w+:)?tt\s*>`)

func readTTML(text string) (*astisub.Subtitles, error) {
	all, from := astisub.NewSubtitles(), 0
	ends := documentEnd.FindAllStringIndex(text, -1)
	if len(ends) == 0 {
		return nil, errors.New("there is no TTML document")
	}
	for _, end := range ends {
		s, err := astisub.ReadFromTTML(strings.NewReader(text[from:end[1]]))
		if err != nil {
			return nil, err
		}
		all.Items, from = append(all.Items, s.Items...), end[1]
	}
	return all, nil
}

// guarded makes a panic of the library, which some invalid files cause, an error like others.
func guarded(read func() (*astisub.Subtitles, error)) func() (*astisub.Subtitles, error) {
	return func() (s *astisub.Subtitles, err error) {
		defer func() {
			if recover() != nil {
				err = &Error{Reason: "a text has no valid time"}
			}
		}()
		if s, err = read(); err != nil {
			return nil, explain(err)
		}
		return s, nil
	}
}

var (
	libraryLine = regexp.MustCompile(`line (\d+):? ?`)
	libraryTime = regexp.MustCompile(`^parsing \w+ duration (.*?)\s+failed: `)
)

// explain finds the line in an error of the library.
func explain(err error) error {
	text := strings.ReplaceAll(err.Error(), "astisub: ", "")
	e := &Error{Reason: text}
	if at := libraryLine.FindStringSubmatchIndex(text); at != nil {
		e.Line, _ = strconv.Atoi(text[at[2]:at[3]])
		e.Reason = text[:at[0]] + text[at[1]:]
	}
	if wrong := libraryTime.FindStringSubmatch(e.Reason); wrong != nil {
		e.Reason = fmt.Sprintf("%q is not a time", wrong[1])
	}
	return e
}

// overrides are instructions of ASS, which SubRip files contain, too. The alignments 7 to 9 are at the top.
var (
	overrides  = regexp.MustCompile(`\{\\[^}]*\}`)
	topAligned = regexp.MustCompile(`\\an[789]\b|\\a(5|6|7)\b`)
)

func cueOf(item *astisub.Item, unescape func(string) string) Cue {
	c := Cue{Start: item.StartAt, End: item.EndAt}
	var lines []string
	for _, line := range item.Lines {
		var text strings.Builder
		for _, part := range line.Items {
			style := styleOf(part.InlineStyle)
			if style.isDrawing {
				continue
			}
			c.IsTop = c.IsTop || style.isTop || topAligned.MatchString(strings.Join(overrides.FindAllString(part.Text, -1), ""))
			text.WriteString(style.wrap(escape(unescape(overrides.ReplaceAllString(part.Text, "")))))
		}
		// A line of a part may be several, and an empty one would end the cue.
		for _, l := range strings.FieldsFunc(text.String(), func(r rune) bool { return r == '\n' || r == '\r' }) {
			if l = strings.TrimSpace(l); l != "" {
				if line.VoiceName != "" {
					l = "<v " + escape(line.VoiceName) + ">" + l
				}
				lines = append(lines, l)
			}
		}
	}
	if s := item.InlineStyle; s != nil && isTopLine(s.WebVTTLine) {
		c.IsTop = true
	}
	if r := item.Region; r != nil && r.InlineStyle != nil && r.InlineStyle.TTMLDisplayAlign != nil {
		c.IsTop = c.IsTop || *r.InlineStyle.TTMLDisplayAlign == "before"
	}
	c.Text = strings.Join(lines, "\n")
	return c
}

// isTopLine reports whether WebVTT's line setting is in the upper half: a small number of lines, or per cent.
func isTopLine(setting string) bool {
	number, _, _ := strings.Cut(setting, ",")
	percent, isPercent := strings.CutSuffix(number, "%")
	n, err := strconv.ParseFloat(percent, 64)
	return err == nil && n >= 0 && (isPercent && n < 50 || !isPercent && n < 7)
}

// style is what is kept of the style of a part of a line.
type style struct{ italic, bold, underline, isTop, isDrawing bool }

func styleOf(s *astisub.StyleAttributes) (kept style) {
	if s == nil {
		return kept
	}
	is := func(v *bool) bool { return v != nil && *v }
	kept.italic = s.SRTItalics || s.WebVTTItalics || is(s.SSAItalic) || s.TTMLFontStyle != nil && *s.TTMLFontStyle == "italic"
	kept.bold = s.SRTBold || s.WebVTTBold || is(s.SSABold) || s.TTMLFontWeight != nil && *s.TTMLFontWeight == "bold"
	kept.underline = s.SRTUnderline || s.WebVTTUnderline || is(s.SSAUnderline)
	for _, tag := range s.WebVTTTags {
		kept.italic, kept.bold = kept.italic || tag.Name == "i", kept.bold || tag.Name == "b"
		kept.underline = kept.underline || tag.Name == "u"
	}
	kept.isTop = topAligned.MatchString(s.SSAEffect)
	kept.italic = kept.italic || strings.Contains(s.SSAEffect, `\i1`)
	kept.isDrawing = drawing.MatchString(s.SSAEffect)
	return kept
}

// drawing begins vector graphics in ASS.
var drawing = regexp.MustCompile(`\\p[1-9]`)

func (s style) wrap(text string) string {
	for _, tag := range []struct {
		is   bool
		name string
	}{{s.underline, "u"}, {s.bold, "b"}, {s.italic, "i"}} {
		if tag.is && strings.TrimSpace(text) != "" {
			text = "<" + tag.name + ">" + text + "</" + tag.name + ">"
		}
	}
	return text
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "\x00", "", "\t", " ", "\u00a0", "&nbsp;", "\\h", " ")

// escape makes a text part of a cue's payload. The arrow "-->" would end the cue.
func escape(text string) string { return escaper.Replace(text) }
