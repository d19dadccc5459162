package console

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// screen understands as much of a terminal as a block makes use of.
type screen struct {
	lines []string
	at    int
}

var control = regexp.MustCompile(`^\x1b\[(\d*)([AJK])`)

func (s *screen) write(t *testing.T, text string) {
	t.Helper()
	column := 0
	for len(text) > 0 {
		for len(s.lines) <= s.at {
			s.lines = append(s.lines, "")
		}
		if m := control.FindStringSubmatch(text); m != nil {
			switch n, _ := strconv.Atoi(m[1]); m[2] {
			case "A":
				s.at -= n
			case "J":
				s.lines = s.lines[:s.at]
			case "K":
				s.lines[s.at] = s.lines[s.at][:column]
			}
			text = text[len(m[0]):]
			continue
		}
		switch text[0] {
		case '\r':
			column = 0
		case '\n':
			s.at, column = s.at+1, 0
		case 0x1b:
			t.Fatalf("an unknown control: %q", text[:min(8, len(text))])
		default:
			line := s.lines[s.at]
			s.lines[s.at] = line[:min(column, len(line))] + text[:1] + line[min(column+1, len(line)):]
			column++
		}
		text = text[1:]
	}
}

func (s *screen) String() string { return strings.TrimRight(strings.Join(s.lines, "\n"), "\n") }

func TestScreen_IsRedrawnBelowPrintedText(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := &Screen{Out: &Stream{Writer: &out, fd: -1}}
	s := &screen{}
	see := func(want string) {
		t.Helper()
		s.write(t, out.String())
		out.Reset()
		if got := s.String(); got != want {
			t.Errorf("the screen shows\n%s\nwant\n%s", got, want)
		}
	}
	b.Print("begun")
	b.Draw([]string{"a 10%", "b 20%"})
	see("begun\na 10%\nb 20%")
	b.Draw([]string{"a 15%", "b 20%", "c"})
	see("begun\na 15%\nb 20%\nc")
	b.Draw([]string{"a"})
	see("begun\na")
	b.Print("b is done")
	see("begun\nb is done")
	b.Draw([]string{"a 99%"})
	see("begun\nb is done\na 99%")
	b.Clear()
	see("begun\nb is done")
	b.Clear()
	if out.Len() > 0 {
		t.Errorf("nothing to clear, yet it wrote %q", &out)
	}
}

func TestScreen_DoesNotRedrawTheSameLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := &Screen{Out: &Stream{Writer: &out, fd: -1}}
	b.Draw([]string{"a"})
	b.Draw([]string{"a"})
	out.Reset()
	b.Draw([]string{"a"})
	if out.Len() > 0 {
		t.Errorf("it wrote %q", &out)
	}
}

func TestScreen_StaysWithinTheTerminal(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := &Screen{Out: &Stream{Writer: &out, fd: -1}} // 80 by 24
	var lines []string
	for i := range 100 {
		lines = append(lines, fmt.Sprint(i, strings.Repeat("x", 200)))
	}
	b.Draw(lines)
	s := &screen{}
	s.write(t, out.String())
	shown := strings.Split(s.String(), "\n")
	if len(shown) != 23 || shown[22] != "... and 78 more" {
		t.Errorf("%d lines, the last %q", len(shown), shown[len(shown)-1])
	}
	for _, line := range shown {
		if len(line) > 79 {
			t.Errorf("a line of %d columns", len(line))
		}
	}
}

func TestRows_FitEveryWidth(t *testing.T) {
	t.Parallel()
	all := []ProgressRow{
		{Label: "holiday.mp4", Stage: "transcode", Percent: 42.4, Speed: 1.84, Remaining: 31 * time.Second},
		{Label: strings.Repeat("日本", 40), Stage: "ingest", Percent: -1, Note: "fetching", Elapsed: 70 * time.Second},
		{Label: "c", Stage: "publish", Percent: 100},
		{
			Label: "film.mkv", Stage: "transcode", Percent: 34, Counts: "41/121 parts", Others: "2 running on 2 hosts", Speed: 3.1,
			Remaining: 754 * time.Second,
		},
	}
	s := &Stream{fd: -1}
	for width := 40; width < 200; width++ {
		for _, line := range s.Rows(all, width) {
			if Width(line) > width-1 {
				t.Errorf("%d columns at a width of %d: %q", Width(line), width, line)
			}
		}
	}
	want := "holiday.mp4  transcode  ########............  42%  1.84x  0:31 left"
	if got := s.Rows(all[:1], 80)[0]; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for width, want := range map[int]string{
		120: "film.mkv  transcode  #######.............  34%  41/121 parts, 2 running on 2 hosts  3.10x  12:34 left",
		90:  "film.mkv  transcode   34%  41/121 parts, 2 running on 2 hosts  3.10x  12:34 left",
		80:  "film.mkv  transcode  #######.............  34%  41/121 parts  3.10x  12:34 left",
	} {
		if got := s.Rows(all[3:], width)[0]; got != want {
			t.Errorf("at a width of %d: got  %q\nwant %q", width, got, want)
		}
	}
	s.unicode = true
	got := s.Rows(all[:1], 80)[0]
	if !strings.Contains(got, "████████░░░░░░░░░░░░") {
		t.Errorf("got %q", got)
	}
}
