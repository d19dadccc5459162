package ui

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode"

	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
)

func iso(t time.Time) string      { return t.UTC().Format(time.RFC3339) }
func absolute(t time.Time) string { return t.UTC().Format("2 Jan 2006, 15:04:05 UTC") }
func short(t time.Time) string    { return t.UTC().Format("2 Jan 15:04:05") }

// formatDuration formats a duration with two or three digits. The limits are those where
// rounding reaches the next unit.
func formatDuration(d time.Duration) string {
	switch d = d.Abs(); {
	case d == 0:
		return "0 s"
	case d < time.Millisecond:
		return fmt.Sprintf("%.2g ms", d.Seconds()*1e3)
	case d < 9950*time.Microsecond:
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

// formatClock formats seconds as a player does.
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

// count formats a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return formatInt(n) + " " + noun + "s"
}

// approximate formats a count that ends at [report.MaxCount].
func approximate(n int) string {
	if n < report.MaxCount {
		return formatInt(n)
	}
	return formatInt(n) + "+"
}

// formatInt groups digits by thousands.
func formatInt(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// publicSource returns a source without its secrets.
func publicSource(source string) string { return printable(redact.Shown(source)) }

// videoTitle returns the title that the submitter gave a task, or else the name of its
// source.
func videoTitle(t store.Task) string { return titleOr(t.Title(), t.Source) }

func titleOr(title, source string) string { return cmp.Or(printable(title), sourceName(source)) }

// sourceName returns the last part of a source.
func sourceName(source string) string { return printable(redact.Name(source)) }

// printable replaces invisible characters and those that change how others are shown.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || unicode.IsPrint(r) {
			return r
		}
		return '\uFFFD'
	}, strings.ReplaceAll(s, "\r\n", "\n"))
}

// firstLine returns the first line that is not blank.
func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return printable(strings.TrimSpace(line))
}

// shellCommand returns a command line of cuelight, quoted for a shell.
func shellCommand(args ...string) string {
	words := []string{"cuelight"}
	for _, a := range args {
		if a == "" || strings.ContainsFunc(a, func(r rune) bool { return !strings.ContainsRune(shellSafe, r) }) {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}

const shellSafe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@%+,"
