package ui

import (
	"testing"

	"github.com/cuelight/cuelight/store"
)

func TestProgressText_OmitsTheStepCount(t *testing.T) {
	t.Parallel()
	for note, want := range map[string]string{"probing 3": "probing", "probing": "probing", "": "", "h264": "h264"} {
		if got := progressText(store.Running{Percent: -1, Note: note}); got != want {
			t.Errorf("%q is shown as %q, want %q", note, got, want)
		}
	}
}
