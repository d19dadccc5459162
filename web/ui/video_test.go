package ui

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cuelight/cuelight/store"
)

func TestVideoTitle_PrefersTheSubmittersTitle(t *testing.T) {
	t.Parallel()
	for params, want := range map[string]string{
		`{"title": "Holiday"}`: "Holiday", `{}`: "source.mp4", `{"title": 3}`: "source.mp4",
		`{"title": ""}`: "source.mp4", "{\"title\": \"a\u202eb\"}": "a\uFFFDb",
	} {
		if got := videoTitle(store.Task{Source: "/srv/uploads/1/source.mp4", Params: []byte(params)}); got != want {
			t.Errorf("%s has the title %q, want %q", params, got, want)
		}
	}
}

func TestVideoDetails_SayWhetherTheTranscodeWasDivided(t *testing.T) {
	t.Parallel()
	for result, want := range map[string]detail{
		`{"chunks": 12}`: {"Chunks", "12"},
		`{"undivided": "it is shorter than two chunks"}`: {"Not divided", "it is shorter than two chunks"},
	} {
		got := readVideoDetails([]store.Attempt{{Stage: "transcode", Outcome: "completed", Result: []byte(result)}})
		if !slices.Equal(got.Rows, []detail{want}) {
			t.Errorf("%s: the rows are %q, want %q", result, got.Rows, want)
		}
	}
}

func TestVideoDetails_HaveTheEncoderAndEachWarningOnce(t *testing.T) {
	t.Parallel()
	result := func(stage, text string) store.Attempt {
		return store.Attempt{Stage: stage, Outcome: "completed", Result: []byte(text)}
	}
	got := readVideoDetails([]store.Attempt{
		result("ingest", `{"chunks": {"reason": "it is short"}, "info": {"warnings": ["odd header"]}, "warnings": ["odd header"]}`),
		result("transcode", `{"output": {"warnings": ["damaged"], "encoder": "h264_qsv"}, "warnings": ["damaged"]}`),
	})
	if want := "[odd header damaged]"; fmt.Sprint(got.Warnings) != want {
		t.Errorf("warnings %q, want %s", got.Warnings, want)
	}
	if !slices.Contains(got.Rows, detail{"Encoder", "h264_qsv"}) {
		t.Errorf("the rows are %q", got.Rows)
	}
}
