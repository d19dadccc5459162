package console

import (
	"regexp"
	"strings"
	"testing"
	"time"
)

func FuzzFit(f *testing.F) {
	f.Add("holiday.mp4", 5)
	f.Add("日本語の長い名前.mp4", 8)
	f.Add("e\u0301e\u0301e\u0301", 2)
	f.Add("a\xff\xfeb", 3)
	f.Add("", 0)
	f.Fuzz(func(t *testing.T, s string, n int) {
		if n < 0 || n > 1000 {
			return
		}
		if got := Fit(s, n); Width(got) != n {
			t.Errorf("%q is %q in %d columns, and takes %d", s, got, n, Width(got))
		}
		if got := Clip(s, n); Width(got) > n || !strings.HasPrefix(s, got) {
			t.Errorf("%q is %q in %d columns", s, got, n)
		}
	})
}

var (
	spanForm  = regexp.MustCompile(`^(\d+ms|\d+(\.\d)?s|\d+m\d\ds|\d+h\d\dm|\d+d)$`)
	clockForm = regexp.MustCompile(`^(\d{1,2}|\d+:\d\d):\d\d$`)
	bytesForm = regexp.MustCompile(`^(-?\d{1,4} B|\d{1,4}\.\d [KMGTPE]iB|-\d+ B)$`)
)

func FuzzDurationAndSize(f *testing.F) {
	for _, n := range []int64{0, 1, -1, 999999999, 9999999999, 59999999999, 3599999999999, 1 << 62, -1 << 63, 1<<63 - 1} {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, n int64) {
		if got := Duration(time.Duration(n)); !spanForm.MatchString(got) {
			t.Errorf("%d ns is shown as %q", n, got)
		}
		if got := remaining(time.Duration(n)); n >= 0 && !clockForm.MatchString(got) {
			t.Errorf("%d ns left is shown as %q", n, got)
		}
		if got := Size(n); !bytesForm.MatchString(got) {
			t.Errorf("%d bytes are shown as %q", n, got)
		}
	})
}

func FuzzShellQuote(f *testing.F) {
	f.Add("/srv/films/one.mkv")
	f.Add("it's $HOME; `rm`")
	f.Add("a\nb\t\x1b[m\\n'")
	f.Add("~x")
	f.Add("")
	f.Add("a\xffb")
	f.Fuzz(func(t *testing.T, s string) {
		if strings.ContainsRune(s, 0) {
			return // no argument has one
		}
		got := ShellQuote(s)
		if back, ok := shellRead(got); !ok || back != s {
			t.Errorf("%q is written %s, which a shell reads as %q, %t", s, got, back, ok)
		}
	})
}

// shellRead reads one word as bash does, of the kinds of quotes that bash has:
// none, '…' and $'…'.
func shellRead(word string) (string, bool) {
	var b strings.Builder
	for word != "" {
		switch {
		case strings.HasPrefix(word, "$'"):
			rest, ok := readANSI(&b, word[2:])
			if !ok {
				return "", false
			}
			word = rest
		case word[0] == '\'':
			text, rest, ok := strings.Cut(word[1:], "'")
			if !ok {
				return "", false
			}
			b.WriteString(text)
			word = rest
		case word[0] == '\\' && len(word) > 1:
			b.WriteByte(word[1])
			word = word[2:]
		case strings.IndexByte(" \t\n\r\"$`&|;<>()*?[]{}!#~\\", word[0]) >= 0:
			return "", false
		default:
			b.WriteByte(word[0])
			word = word[1:]
		}
	}
	return b.String(), true
}

func readANSI(b *strings.Builder, word string) (rest string, ok bool) {
	escapes := map[byte]byte{'\\': '\\', '\'': '\'', 'n': '\n', 't': '\t', 'e': 0x1b, 'r': '\r'}
	for i := 0; i < len(word); i++ {
		switch word[i] {
		case '\'':
			return word[i+1:], true
		case '\\':
			if i++; i == len(word) || escapes[word[i]] == 0 {
				return "", false
			}
			b.WriteByte(escapes[word[i]])
		default:
			b.WriteByte(word[i])
		}
	}
	return "", false
}
