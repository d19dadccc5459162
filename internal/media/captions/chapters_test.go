package captions_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/encoding/charmap"

	"github.com/cuelight/cuelight/internal/media/captions"
)

func TestParseChapters_ReadsLinesAndWebVTT(t *testing.T) {
	t.Parallel()
	latin, err := charmap.Windows1252.NewEncoder().String("00:00 Über den Fjord\n")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text string
		want []captions.Chapter
	}{
		"lines": {
			"\ufeff00:00 Intro\r\n\r\n  1:30 - The  harbour \n75:00\tTwo --> three <b>\n1:20:05.25 – 9 lives\n",
			[]captions.Chapter{
				{Start: 0, End: 90, Title: "Intro"}, {Start: 90, End: 4500, Title: "The harbour"},
				{Start: 4500, End: 4805.25, Title: "Two --> three <b>"}, {Start: 4805.25, End: 1e6, Title: "9 lives"},
			},
		},
		"WebVTT": {
			"WEBVTT\n\n1\n00:00.000 --> 00:10.500\n<b>In</b>tro &amp;\nmore\n\n00:20.000 --> 00:40.000\nlast\n\n00:10.000 --> 00:15.000\nsecond\n",
			[]captions.Chapter{
				{Start: 0, End: 10, Title: "Intro & more"}, {Start: 10, End: 15, Title: "second"}, {Start: 20, End: 40, Title: "last"},
			},
		},
		"Windows-1252": {latin, []captions.Chapter{{Start: 0, End: 1e6, Title: "Über den Fjord"}}},
		"a control character and a long title": {
			"0:01 a\x1bb" + strings.Repeat("é", 300), []captions.Chapter{{Start: 1, End: 1e6, Title: "a b" + strings.Repeat("é", 196) + "…"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := captions.ParseChapters([]byte(c.text), "")
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Error(err, diff)
			}
			// The file that is kept of it says the same.
			again, err := captions.ParseChapters(captions.ChaptersWebVTT(got), "")
			if diff := cmp.Diff(c.want, again); err != nil || diff != "" {
				t.Error(err, diff)
			}
		})
	}
}

func TestParseChapters_NamesTheWrongLine(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range captions.MaxChapters + 1 {
		fmt.Fprintf(&many, "%d:%02d chapter\n", i/60, i%60)
	}
	for name, c := range map[string]struct {
		text, want string
		line       int
	}{
		"no time":                {"00:00 Intro\nChapters:\n", "is not a time and a title, such as", 2},
		"a time that is none":    {"00:75 Intro\n", `"00:75 Intro" is not a time`, 1},
		"no title":               {"00:00 Intro\n\n00:30\n", `"00:30" is not a time and a title`, 3},
		"an earlier time":        {"00:30 A\n00:20 B\n", "does not begin after the one before it", 2},
		"the same time":          {"00:30 A\n00:30 B\n", "does not begin after the one before it", 2},
		"a wrong time in WebVTT": {"WEBVTT\n\n00:00.000 --> 00:0x.000\nA\n", `"00:0x.000" is not a time`, 3},
		"another kind of file":   {"a\n\x00\x01", "the encoding of the file is not recognised", 2},
		"nothing":                {"\n", "there is no chapter in the file", 0},
		"WebVTT without a cue":   {"WEBVTT\n", "there is no text with a time", 0},
		"too many":               {many.String(), "the file has 1001 chapters; 1000 are allowed", 0},
		"too many bytes":         {strings.Repeat("x", captions.MaxBytes+1), "8388608 are allowed", 0},
	} {
		_, err := captions.ParseChapters([]byte(c.text), "")
		if wrong, ok := errors.AsType[*captions.Error](err); !ok || wrong.Line != c.line || !strings.Contains(wrong.Reason, c.want) {
			t.Errorf("%s: %v; want line %d: %s", name, err, c.line, c.want)
		}
	}
}

func TestFitChapters_KeepsWhatIsWithinTheVideo(t *testing.T) {
	t.Parallel()
	all := []captions.Chapter{
		{Start: 110.0004, End: 112, Title: "cut at the end"}, {Start: 90, End: 95, Title: "before the start"},
		{Start: 120, Title: "after the end"},
		{Start: 95, End: 103, Title: "cut at the start"}, {Start: 103, End: 109, Title: "overlaps"}, {Start: 105, Title: " \n"},
	}
	got := captions.FitChapters(all, -100, 11.5)
	want := []captions.Chapter{
		{Start: 0, End: 3, Title: "cut at the start"}, {Start: 3, End: 5, Title: "overlaps"}, {Start: 5, End: 10, Title: "Chapter 3"},
		{Start: 10, End: 11.5, Title: "cut at the end"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
