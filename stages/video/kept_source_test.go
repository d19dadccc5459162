package video

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// An upload is deleted after ingest, and other sources may be removed. The kept copy
// can be processed again.
func TestIngest_UsesKeptCopyOfMissingSource(t *testing.T) {
	t.Parallel()
	source := filepath.Join(t.TempDir(), "film.mp4")
	h := newHarness(t, source)
	write(t, source, read(t, clips.picture))
	first := h.mustIngest()
	if err := os.Remove(source); err != nil {
		t.Fatal(err)
	}
	var kept Ingest
	h.job.Results = func(context.Context, string) (json.RawMessage, error) { return json.Marshal(kept) }
	if _, err := h.ingest(t.Context(), h.job); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a copy: %v", err)
	}
	kept = first
	again := h.mustIngest()
	if again.Name != "film.mp4" || again.SHA256 != first.SHA256 || again.Bytes != first.Bytes || again.File == first.File {
		t.Errorf("the second time %+v, the first time %+v", again, first)
	}
	if read(t, filepath.Join(h.TaskDir(h.job.Task), again.File)) != read(t, clips.picture) {
		t.Error("the file differs")
	}
	if err := os.Remove(filepath.Join(h.TaskDir(h.job.Task), again.File)); err != nil {
		t.Fatal(err)
	}
	kept = again
	if _, err := h.ingest(t.Context(), h.job); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without its copy: %v", err)
	}
}
