package video

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

func TestRemoveFiles_KeepsThePublishedVideoOfAnExpiredTask(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	h.mustPublish(m)
	published := snapshot(t, h.PublishDir)
	if err := h.removeFiles(t.Context(), store.DeletedTask{ID: h.job.Task, Source: h.job.Source, Expired: true}); err != nil {
		t.Fatal(err)
	}
	if exists(h.TaskDir(h.job.Task)) {
		t.Error("the task's directory is left")
	}
	wantSame(t, published, snapshot(t, h.PublishDir))
}

func TestCleaner_RemovesSourceCopiesOfTasksCompletedLongAgo(t *testing.T) {
	t.Parallel()
	h, m := readyHarness(t)
	h.mustPublish(m)
	published, all := snapshot(t, h.PublishDir), snapshot(t, h.DataDir, h.PublishDir)
	var old []store.ID
	clean := func(keep time.Duration) CleanResult {
		t.Helper()
		c := Cleaner{Config: h.Config, Completed: func(_ context.Context, tasks []store.ID, ago time.Duration) ([]store.ID, error) {
			if len(tasks) != 1 || tasks[0] != h.job.Task || ago != keep {
				t.Errorf("asked for tasks %v completed %s ago", tasks, ago)
			}
			return old, nil
		}}
		c.Config.KeepSourceCopies = keep
		done, err := c.Clean(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	clean(time.Hour)
	wantSame(t, all, snapshot(t, h.DataDir, h.PublishDir))
	old = []store.ID{h.job.Task}
	clean(0) // for ever
	wantSame(t, all, snapshot(t, h.DataDir, h.PublishDir))
	source, notes := filepath.Join(h.TaskDir(h.job.Task), m.in.File), filepath.Join(h.TaskDir(h.job.Task), "notes.txt")
	copied, err := os.ReadFile(source) // the file has another link, in the directory of all tests
	if err == nil {
		err = os.Remove(source)
	}
	if err != nil {
		t.Fatal(err)
	}
	write(t, source, string(copied))
	write(t, notes, "")
	if done := clean(time.Hour); done.SourceCopies != 1 || done.Removed != 4 || done.Bytes < m.in.Bytes {
		t.Errorf("it removed %+v; the source has %d bytes", done, m.in.Bytes)
	}
	wantSame(t, published, snapshot(t, h.PublishDir))
	if got := list(t, h.TaskDir(h.job.Task)); len(got) != 1 || got[0] != "notes.txt" {
		t.Errorf("files in the task's directory: %q", got)
	}
	if done := clean(time.Hour); done != (CleanResult{}) {
		t.Errorf("of a file with an unknown name it removed %+v", done)
	}
	if err := os.RemoveAll(h.TaskDir(h.job.Task)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(h.job.Source); err != nil {
		t.Error(err)
	}

	_, err = h.tryPublish(m)
	if again := h.classify(t.Context(), err, 1); !stages.IsPostponed(again) {
		t.Errorf("a retry without the files returned %v", again)
	}
	h.KeepSourceCopies = time.Hour
	err = h.classify(t.Context(), err, 1)
	if !stages.IsPermanent(err) || !strings.Contains(err.Error(), "retry it from stage ingest") {
		t.Errorf("a retry without the files returned %v", err)
	}
}
