package media

import (
	"io"
	"math"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text from a source ends up in the database, in API responses and in
// metadata.json, so its length is limited where it is read.
const (
	// maxStringBytes limits each string of ffprobe's output, maxTitleBytes a title.
	maxStringBytes = 1 << 10
	maxTitleBytes  = 256
	// maxSubtitles and maxWarnings limit lists.
	maxSubtitles = 64
	maxWarnings  = 64
)

// stringLimiter cuts every string of the JSON that passes through it, so that a
// title of many megabytes takes no memory here.
type stringLimiter struct {
	next io.Writer

	inside   bool // within a string
	escape   int  // remaining bytes of an escape sequence
	size     int  // of the string so far
	dropping bool // the rest of the string
	out      []byte
}

// Write passes b on, without the bytes that exceed the limit of a string.
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

// keep reports whether to keep a byte. It never splits a character or an escape
// sequence.
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

// title returns a stream's title as one line, safe for playlists and pages.
func title(s *rawStream) string { return plainText(s.tag("title")) }

func plainText(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
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

// appendWarning appends a warning, or, at the limit, one that says so.
func appendWarning(list []string, text string) []string {
	switch {
	case len(list) < maxWarnings:
		return append(list, text)
	case len(list) == maxWarnings:
		return append(list, "more warnings are not listed")
	}
	return list
}

var pixelLimitMessage = regexp.MustCompile(`Picture size (\d+x\d+) exceeds specified max pixel count`)

// parseRejectedSize finds the size of a picture that exceeded the pixel limit.
func parseRejectedSize(tail string) string {
	if m := pixelLimitMessage.FindStringSubmatch(tail); m != nil {
		return m[1]
	}
	return ""
}

// languageTag returns a valid language tag in lower case, or "". Other text must not
// reach playlists.
func languageTag(tag string) string {
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

// round3 rounds to milliseconds.
func round3(v float64) float64 { return math.Round(v*1000) / 1000 }
