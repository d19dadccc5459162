package video

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cuelight/cuelight/store"
)

func TestUnpublish_RemovesOnlyWhatIsServed(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	h.mustPublish(m)
	h.mustPublish(m)
	foreign := filepath.Join(h.PublishedDir(h.job.Task), "notes.txt")
	if err := os.WriteFile(foreign, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	task := store.DeletedTask{ID: h.job.Task, Source: h.job.Source}
	before := snapshot(t, h.DataDir)
	for range 2 { // it is repeatable
		if err := h.unpublish(t.Context(), task, nil); err != nil {
			t.Fatal(err)
		}
	}
	if names := list(t, h.PublishedDir(h.job.Task)); len(names) != 1 || names[0] != "notes.txt" {
		t.Errorf("published files are %q", names)
	}
	wantSame(t, before, snapshot(t, h.DataDir))
	again := h.mustPublish(m)
	wantPlayable(t, filepath.Join(h.PublishDir, again.Master), m.tr.Output.Video)
}

func TestRemoveFiles_RemovesAllButTheSource(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	h.mustPublish(m)
	for range 2 {
		if err := h.removeFiles(t.Context(), store.DeletedTask{ID: h.job.Task, Source: h.job.Source}); err != nil {
			t.Fatal(err)
		}
	}
	if exists(h.TaskDir(h.job.Task)) || exists(h.PublishedDir(h.job.Task)) {
		t.Error("directories of the task are left")
	}
	if !exists(h.job.Source) {
		t.Error("the source was removed")
	}
}

// A directory that is not mounted looks as if it had no files.
func TestRemoveFiles_FailsWithoutTheMarkersOfTheDirectories(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	h.mustPublish(m)
	h.Marker = ".mounted"
	if err := h.removeFiles(t.Context(), store.DeletedTask{ID: h.job.Task}); err == nil {
		t.Error("it succeeded")
	}
	if !exists(h.PublishedDir(h.job.Task)) {
		t.Error("files were removed")
	}
}
