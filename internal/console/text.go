package console

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/width"

	"github.com/cuelight/cuelight/internal/usererr"
)

func runeWidth(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// Width returns how many columns s takes on a terminal.
func Width(s string) int {
	n := 0
	for _, r := range s {
		n += runeWidth(r)
	}
	return n
}

// Fit makes s exactly n columns wide. It pads s or cuts out its middle, because both the
// beginning and the end of a name distinguish it from others.
func Fit(s string, n int) string {
	w := Width(s)
	if w <= n {
		return s + strings.Repeat(" ", n-w)
	}
	if n <= 1 {
		return strings.Repeat("~", max(n, 0))
	}
	runes := []rune(s)
	headMost, tailMost := (n-1+1)/2, (n-1)/2
	head, tail := 0, len(runes)
	hw, tw := 0, 0
	for head < len(runes) && hw+runeWidth(runes[head]) <= headMost {
		hw += runeWidth(runes[head])
		head++
	}
	for tail > head && tw+runeWidth(runes[tail-1]) <= tailMost {
		tail--
		tw += runeWidth(runes[tail])
	}
	return string(runes[:head]) + "~" + string(runes[tail:]) + strings.Repeat(" ", n-1-hw-tw)
}

// Clip cuts s to at most n columns.
func Clip(s string, n int) string {
	w := 0
	for i, r := range s {
		if w += runeWidth(r); w > n {
			return s[:i]
		}
	}
	return s
}

// Duration returns a duration in two units at most.
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// remaining returns the time left: 0:31, 12:05, 1:02:03.
func remaining(d time.Duration) string {
	s := int(d.Round(time.Second).Seconds())
	if s < 3600 {
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// Size returns a number of bytes with its unit.
func Size(n int64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n)/1024, 0
	for v >= 1024 && unit < 5 {
		v, unit = v/1024, unit+1
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGTPE"[unit])
}

// Plural returns "1 task" or "2 tasks".
func Plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// ShellQuote quotes s as one word of a shell.
func ShellQuote(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-./:=@%+,", r)
	}) < 0 {
		return s
	}
	if usererr.Printable(s) != s {
		return "$'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`, "\t", `\t`, "\x1b", `\e`).Replace(s) + "'"
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
