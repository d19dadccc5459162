package usererr

import (
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestPrintable_QuotesControlSequences(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"holiday.mp4":          "holiday.mp4",
		"日本 é.mp4":             "日本 é.mp4",
		"\x1b[2Jboo":           `"\x1b[2Jboo"`,
		"a\nb":                 `"a\nb"`,
		"bad\xff":              `"bad\xff"`,
		"\u202etxt.exe":        `"\u202etxt.exe"`,
		"replacement\ufffd ok": "replacement\ufffd ok",
	} {
		if got := Printable(in); got != want {
			t.Errorf("printable(%q) is %s, want %s", in, got, want)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("Ferien Größe 日本.mp4")
	f.Add("\x1b[2J")
	f.Add("a\xffb\u202e\u2028")
	f.Add("\ufffd")
	f.Fuzz(func(t *testing.T, s string) {
		for what, got := range map[string]string{"shown": Printable(s), "first line": FirstLine(s)} {
			if !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%s of %q is %q", what, s, got)
			}
		}
		if got := Printable(s); got != s {
			if back, err := strconv.Unquote(got); err != nil || back != s {
				t.Errorf("%q is shown as %s, which is %q, %v", s, got, back, err)
			}
		}
	})
}
