package ui

import (
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
)

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
