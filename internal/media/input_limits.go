package media

import (
	"io"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A file may claim anything about itself, at any length. Values taken from it end
// up in the database, in answers of the API and in metadata.json, so they are
// bounded where they are read.
const (
	// stringBytes bounds each string of ffprobe's answer, titleBytes a title.
	maxStringBytes = 1 << 10
	maxTitleBytes  = 256
	// maxSubtitles and maxWarnings bound lists.
	maxSubtitles = 64
	maxWarnings  = 64
)

// stringCutter passes JSON on with every string cut to stringBytes, so that a
// title of many megabytes takes no memory here.
type stringLimiter struct {
	next io.Writer

	inside   bool // a string
	escape   int  // bytes of an escape sequence that are still to come
	size     int  // of the string so far
	dropping bool // the rest of the string is left out
	out      []byte
}

func (c *stringLimiter) Write(b []byte) (int, error) {
	c.out = c.out[:0]
	for _, ch := range b {
		if c.keep(ch) {
			c.out = append(c.out, ch)
		}
	}
	if _, err := c.next.Write(c.out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// keep decides about one byte. Bytes that belong together, a character of several
// bytes or an escape sequence, are kept or left out as a whole.
func (c *stringLimiter) keep(ch byte) bool {
	switch {
	case !c.inside:
		c.inside = ch == '"'
		c.size, c.dropping = 0, false
		return true
	case c.escape > 0:
		c.escape--
		if c.escape == 0 && ch == 'u' {
			c.escape = -4
		}
		c.size++
	case c.escape < 0:
		c.escape++
		c.size++
	case ch == '"':
		c.inside = false
		return true
	default:
		if utf8.RuneStart(ch) && c.size >= maxStringBytes {
			c.dropping = true
		}
		if ch == '\\' {
			c.escape = 1
		}
		c.size++
	}
	return !c.dropping
}

// title is a stream's title in one line that is fit for playlists and pages.
func title(s *rawStream) string {
	text := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s.tag("title"), "\uFFFD"))
	text = strings.TrimSpace(text)
	if len(text) <= maxTitleBytes {
		return text
	}
	cut := maxTitleBytes
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return strings.TrimSpace(text[:cut]) + "…"
}

// addWarning appends a warning, or, where there are too many, one that says so.
func appendWarning(list []string, text string) []string {
	switch {
	case len(list) < maxWarnings:
		return append(list, text)
	case len(list) == maxWarnings:
		return append(list, "there are more warnings than are listed here")
	}
	return list
}

var pixelLimitMessage = regexp.MustCompile(`Picture size (\d+x\d+) exceeds specified max pixel count`)

// tooLarge finds the size of a picture that the limit on pixels kept from being
// decoded.
func parseRejectedSize(tail string) string {
	if m := pixelLimitMessage.FindStringSubmatch(tail); m != nil {
		return m[1]
	}
	return ""
}
