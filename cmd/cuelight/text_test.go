package main

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

func TestSourceOf_ReturnsAbsoluteUTF8(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]string{
		"a.mp4":                     "/wd/a.mp4",
		"./a.mp4":                   "/wd/a.mp4",
		"../a.mp4":                  "/wd/../a.mp4",
		"/x/../a.mp4":               "/x/../a.mp4",
		"-a.mp4":                    "/wd/-a.mp4",
		"a%41.mp4":                  "/wd/a%41.mp4",
		"file.mp4:1":                "/wd/file.mp4:1",
		"a\xff b%.mp4":              "file:///wd/a%FF%20b%25.mp4",
		"https://example.org/a?b=c": "https://example.org/a?b=c",
		"HTTPS://example.org/\xff":  "HTTPS://example.org/%FF",
		"http://e/\ufffd":           "http://e/\ufffd",
		"file:///x/a%20b":           "file:///x/a%20b",
		"1://x":                     "/wd/1://x",
		"://x":                      "/wd/://x",
	} {
		if got, err := sourceOf(arg, "/wd"); err != nil || got != want {
			t.Errorf("sourceOf(%q) is %q, %v; want %q", arg, got, err, want)
		}
	}
	if _, err := sourceOf("", "/wd"); err == nil {
		t.Error("an empty name is accepted")
	}
}

func TestByteSize_ParsesUnits(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]byteSize{
		"0": 0, "12": 12, "12B": 12, "1k": 1 << 10, "500M": 500 << 20, "20GiB": 20 << 30, "1.5 GB": 3 << 29, "2T": 2 << 40,
	} {
		var got byteSize
		if err := got.Set(in); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "lots", "-1", "1X", "M", "1e300", "NaN", "Inf"} {
		var got byteSize
		if err := got.Set(in); err == nil {
			t.Errorf("%q is read as %d", in, got)
		}
	}
	if got := (new(byteSize)); got.Set("100GiB") != nil || got.String() != "100GiB" {
		t.Errorf("100GiB is written %s", got)
	}
}

func TestParseTime_AcceptsTimesAndDelays(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]time.Time{
		"":                          {},
		"90m":                       now.Add(90 * time.Minute),
		"2030-01-31T08:00:00Z":      time.Date(2030, 1, 31, 8, 0, 0, 0, time.UTC),
		"2030-01-31T08:00:00+02:00": time.Date(2030, 1, 31, 6, 0, 0, 0, time.UTC),
		"2030-01-31 08:00":          time.Date(2030, 1, 31, 8, 0, 0, 0, time.Local),
	} {
		if got, err := parseTime(in, now); err != nil || !got.Equal(want) {
			t.Errorf("%q is %v, %v; want %v", in, got, err, want)
		}
	}
}

func TestLabels_AreRefusedIfNoTaskCouldAskForThem(t *testing.T) {
	t.Parallel()
	var got labels
	if err := errors.Join(got.Set("gpu,rack=7"), got.Set("north")); err != nil || !slices.Equal(got, labels{"gpu", "rack=7", "north"}) {
		t.Errorf("read %q, %v", got, err)
	}
	for _, in := range []string{"", "a b", "a,", ",a", "a;b", " a", "ü", strings.Repeat("x", 101)} {
		if err := got.Set(in); err == nil {
			t.Errorf("%q is accepted", in)
		}
	}
}

func TestProgressRow_OmitsTheStepCount(t *testing.T) {
	t.Parallel()
	for note, want := range map[string]string{"probing 3": "probing", "probing": "probing", "h264": "h264", "sent 1.5 MiB": "sent 1.5 MiB"} {
		if got := progressRow(store.Running{Percent: -1, Note: note}, "").String(); got != want {
			t.Errorf("%q is shown as %q, want %q", note, got, want)
		}
	}
}

func TestProgress_ShowsADivisionOnlyIntoSeveralParts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		parts int
		want  string
	}{
		"one part": {1, "a.mp4: transcode started\na.mp4: transcode completed in 2.0s\n"},
		"two parts": {2, "a.mp4: transcode started\na.mp4: transcode divided into 2 parts\n" +
			"a.mp4: transcode part 1 of 2 started\na.mp4: transcode part 1 of 2 completed in 2.0s\n" +
			"a.mp4: transcode part 2 of 2 started\na.mp4: transcode part 2 of 2 completed in 2.0s\n" +
			"a.mp4: transcode joins its 2 parts\na.mp4: transcode completed in 1.0s\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			p := newProgress(&console.Stream{Writer: &out}, false, func(store.ID) string { return "a.mp4" })
			task := store.ID{1}
			show := func(e stages.Event) {
				e.Task, e.Stage, e.Attempt = task, "transcode", 1
				p.event(e)
			}
			show(stages.Event{Kind: stages.StageStarted})
			show(stages.Event{Kind: stages.StageDivided, Count: c.parts})
			for n := range c.parts {
				show(stages.Event{Kind: stages.StageStarted, Part: n + 1, Parts: c.parts})
				show(stages.Event{Kind: stages.PartCompleted, Part: n + 1, Parts: c.parts, Duration: 2 * time.Second})
			}
			show(stages.Event{Kind: stages.StageStarted, Parts: c.parts})
			show(stages.Event{Kind: stages.StageCompleted, Parts: c.parts, Duration: time.Second})
			if out.String() != c.want {
				t.Errorf("it printed\n%s", out.String())
			}
		})
	}
}

func TestNearest_SuggestsSimilarWords(t *testing.T) {
	t.Parallel()
	known := []string{"status", "stage", "source", "data-dir"}
	for word, want := range map[string]string{
		"statsu": "status", "stag": "stage", "datadir": "data-dir", "colour": "", "x": "", "state": "stage",
		"sorry": "", "so": "",
	} {
		if got := nearest(word, known); got != want {
			t.Errorf("nearest to %q is %q, want %q", word, got, want)
		}
	}
}

func TestOrdered_KeepsTheOrderOfMembers(t *testing.T) {
	t.Parallel()
	got, err := json.Marshal(ordered[int]{{"z", 1}, {"a", 2}, {`q"`, 3}})
	if err != nil || string(got) != `{"z":1,"a":2,"q\"":3}` {
		t.Errorf("%s, %v", got, err)
	}
	if got, err := json.Marshal(ordered[int](nil)); err != nil || string(got) != "{}" {
		t.Errorf("%s, %v", got, err)
	}
}
