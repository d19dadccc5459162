package ui

import (
	"slices"
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
)

func TestCapabilities_AreListedWithoutIDs(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string][]string{
		`{"cores": 16, "h264_nvenc": true, "off": false, "data_id": "x"}`: {"cores 16", "h264_nvenc"},
		`{"labels": ["gpu", "north\u001b"], "encoders": []}`:              {"labels gpu north\ufffd"},
		`{"memory_bytes": 25276510208, "os": "linux"}`:                    {"memory 23.54 GiB", "os linux"},
		`[1]`: nil,
	} {
		if got := capabilityTexts([]byte(raw)); !slices.Equal(got, want) {
			t.Errorf("%s is shown as %q, want %q", raw, got, want)
		}
	}
}

func TestWorker_IsPausedWithItsHostAndWithEverything(t *testing.T) {
	t.Parallel()
	w := store.Worker{Host: "media-1", Connected: true, Lease: time.Minute}
	for name, c := range map[string]struct {
		pauses     []store.Pause
		word       string
		hostPaused bool
	}{
		"nothing":      {nil, "idle", false},
		"a stage":      {[]store.Pause{{Stage: "ingest"}}, "idle", false},
		"another host": {[]store.Pause{{Host: "media-2"}}, "idle", false},
		"its host":     {[]store.Pause{{Host: "media-1"}}, "paused", true},
		"everything":   {[]store.Pause{{}}, "paused", false},
	} {
		if got := (&UI{}).worker(t.Context(), w, current{Pauses: c.pauses}); got.Word != c.word ||
			got.IsHostPaused != c.hostPaused {
			t.Errorf("pause of %s: the worker is %s, its host is paused: %t", name, got.Word, got.IsHostPaused)
		}
	}
}
