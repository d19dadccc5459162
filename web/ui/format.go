package ui

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"

	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/store"
)

// span is a duration in words as long as needed to know what it means.
func formatDuration(d time.Duration) string {
	switch d = d.Abs(); {
	case d == 0:
		return "0 s"
	case d < time.Millisecond:
		return fmt.Sprintf("%.2g ms", d.Seconds()*1e3)
	case d < 9950*time.Microsecond: // what is rounded up has its digits, too
		return fmt.Sprintf("%.1f ms", d.Seconds()*1e3)
	case d < 999500*time.Microsecond:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1e3)
	case d < 9950*time.Millisecond:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d m %02d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %02d m", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// clock is a number of seconds as a player shows it.
func formatClock(seconds float64) string {
	if seconds < 0 || math.IsNaN(seconds) || seconds > 1e7 {
		return ""
	}
	s := int(seconds + 0.5)
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// size is a number of bytes in words.
func formatBytes(n int64) string {
	const k = 1024
	switch {
	case n < k:
		return fmt.Sprintf("%d bytes", n)
	case n < k*k:
		return fmt.Sprintf("%.1f KiB", float64(n)/k)
	case n < k*k*k:
		return fmt.Sprintf("%.1f MiB", float64(n)/(k*k))
	}
	return fmt.Sprintf("%.2f GiB", float64(n)/(k*k*k))
}

// many is a number of things.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return formatInt(n) + " " + thing + "s"
}

// about is how many there are, where not more than [store.CountAtMost] are counted:
// beyond that it is an estimate.
func approximate(n int) string {
	switch {
	case n < store.CountAtMost:
		return formatInt(n)
	case n == store.CountAtMost:
		return formatInt(n) + "+"
	}
	unit := 1
	for n/unit >= 1000 {
		unit *= 10
	}
	return "≈ " + formatInt((n+unit/2)/unit*unit)
}

// number is grouped in thousands.
func formatInt(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// shownSource is a source's public form, for people.
func publicSource(source string) string { return printable(redact.Source(source)) }

// called is what to call a task: what its submitter does, or else its source.
func videoTitle(t store.Task) string { return cmp.Or(printable(t.Title()), sourceName(t.Source)) }

// title is what to call a video: the last part of where it came from.
func sourceName(source string) string { return printable(redact.Name(source)) }

// printable replaces what would not be seen, or would make something else be seen.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, strings.ReplaceAll(s, "\r\n", "\n"))
}

// firstLine is the first line that says something.
func firstLine(s string) string {
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			return printable(line)
		}
	}
	return ""
}
