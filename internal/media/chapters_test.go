package media

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cuelight/cuelight/internal/media/captions"
)

// withChapters makes a clip of five seconds with chapters, whose times are seconds.
func withChapters(t *testing.T, name, args string, chapters []captions.Chapter) string {
	t.Helper()
	text := strings.Builder{}
	text.WriteString(";FFMETADATA1\n")
	for _, c := range chapters {
		fmt.Fprintf(&text, "[CHAPTER]\nTIMEBASE=1/1000\nSTART=%.0f\nEND=%.0f\ntitle=%s\n", c.Start*1000, c.End*1000, c.Title)
	}
	file := filepath.Join(t.TempDir(), "chapters.txt")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return makeClip(t, name, testPictures+"5"+testTones+"5 -f ffmetadata -i "+file+" -map 0 -map 1 -map_chapters 2"+h264+"-c:a aac "+args)
}

func TestProbe_ReadsChapters(t *testing.T) {
	t.Parallel()
	chapters := []captions.Chapter{
		{Start: 0, End: 1.5, Title: `Über "<b>" & --> 1`}, {Start: 1.5, End: 3, Title: ""}, {Start: 3, End: 60, Title: strings.Repeat("x", 3000)},
		{Start: 70, End: 80, Title: "after the end"},
	}
	want := []captions.Chapter{
		{Start: 0, End: 1.5, Title: `Über "<b>" & --> 1`}, {Start: 1.5, End: 3, Title: "Chapter 2"},
		{Start: 3, End: 5, Title: strings.Repeat("x", 199) + "…"},
	}
	late := slices.Clone(chapters)
	for i := range late {
		late[i].Start, late[i].End = late[i].Start+71, late[i].End+71
	}
	for name, c := range map[string]struct {
		args     string
		chapters []captions.Chapter
	}{
		"a.mkv": {"", chapters}, "a.mp4": {"-movflags +use_metadata_tags", chapters[:3]}, "late.mkv": {"-output_ts_offset 71", late},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			info, err := fastTools.Probe(t.Context(), withChapters(t, name, c.args, c.chapters))
			if err != nil {
				t.Fatal(err)
			}
			for i, c := range info.Chapters { // the sound may begin and end some milliseconds earlier or later
				info.Chapters[i].Start, info.Chapters[i].End = math.Round(c.Start*20)/20, math.Round(c.End*20)/20
			}
			if diff := cmp.Diff(want, info.Chapters); diff != "" {
				t.Errorf("start %v: %s", info.Start, diff)
			}
		})
	}
}

func TestProbe_AcceptsTooManyChapters(t *testing.T) {
	t.Parallel()
	for n, c := range map[int]struct {
		want    int
		warning string
	}{
		1200: {1000, "only the first 1000 of the chapters are kept"},
		5000: {0, "the chapters are left out: there are too many of them"},
	} {
		chapters := make([]captions.Chapter, n)
		for i := range chapters {
			chapters[i] = captions.Chapter{Start: float64(i) / 1000, End: float64(i+1) / 1000, Title: strings.Repeat("x", 1000)}
		}
		info, err := fastTools.Probe(t.Context(), withChapters(t, "a.mkv", "", chapters))
		if err != nil {
			t.Fatal(err)
		}
		if len(info.Chapters) != c.want || !slices.Contains(info.Warnings, c.warning) {
			t.Errorf("%d chapters: %d, %q; want %d, %s", n, len(info.Chapters), info.Warnings, c.want, c.warning)
		}
	}
}

func TestWriteManifests_WritesChapters(t *testing.T) {
	t.Parallel()
	out := sampleOutput()
	if text := multivariantPlaylist(out, nil); strings.Contains(text, "SESSION-DATA") {
		t.Errorf("without chapters:\n%s", text)
	}
	out.Chapters = []captions.Chapter{{Start: 0, End: 2.1, Title: "A & B", Language: "de"}, {Start: 2.1, End: 5.004, Title: "C"}}
	want := "#EXT-X-SESSION-DATA:DATA-ID=\"com.apple.hls.chapters\",URI=\"gen/chapters.json\"\n"
	if text := RebaseMaster(multivariantPlaylist(out, nil), "gen/"); strings.Count(text, want) != 1 {
		t.Errorf("no %s in\n%s", want, text)
	}
	dir := t.TempDir()
	if err := writeChapters(dir, out.Chapters); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"chapters.vtt": "WEBVTT\n\n00:00:00.000 --> 00:00:02.100\nA &amp; B\n\n00:00:02.100 --> 00:00:05.004\nC\n",
		"chapters.json": `[
  {
    "chapter": 1,
    "start-time": 0,
    "duration": 2.1,
    "titles": [
      {
        "language": "de",
        "title": "A \u0026 B"
      }
    ]
  },
  {
    "chapter": 2,
    "start-time": 2.1,
    "duration": 2.904,
    "titles": [
      {
        "language": "und",
        "title": "C"
      }
    ]
  }
]
`,
	} {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s: %v\n%s", name, err, got)
		}
	}
}
