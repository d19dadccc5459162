package video

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cuelight/cuelight/internal/media"
)

func TestMove_RemovesTheOldLocationOnlyWhenItIsComplete(t *testing.T) {
	t.Parallel()
	h := newMoveTest(t)
	m := h.toBucket()
	foreign := filepath.Join(h.PublishedDir(h.job.Task), "subtitles.vtt")
	if err := os.WriteFile(foreign, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := m.Begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Copy(t.Context(), h.job.Task); err != nil {
		t.Fatal(err)
	}
	if _, err := m.CopySources(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m.Remove(t.Context(), h.job.Task) == nil || m.RemoveSources(t.Context()) == nil {
		t.Error("a move that is not complete may remove")
	}
	if err := m.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.Remove(t.Context(), h.job.Task); err != nil {
			t.Fatal(err)
		}
	}
	if exists(h.TaskDir(h.job.Task)) || len(list(t, h.PublishedDir(h.job.Task))) != 1 || !exists(foreign) {
		t.Errorf("left: %q", list(t, h.PublishedDir(h.job.Task)))
	}
	data, published := h.back()
	if diff := cmp.Diff(h.before, fileHashes(t, data, published)); diff != "" {
		t.Error(diff)
	}
	// A bucket, from which back has moved everything.
	bucket := h.move("s3://videos/data", "s3://videos/public", data, published)
	if err := bucket.Remove(t.Context(), h.job.Task); err != nil {
		t.Fatal(err)
	}
	if left, err := bucket.Tasks(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("left in the bucket: %v, %v", left, err)
	}
}

func TestMove_OfOneLocationThatHasBothIsContinued(t *testing.T) {
	t.Parallel()
	h := newMoveTest(t)
	both := "s3://videos/both"
	if err := moveAll(t.Context(), h.move(h.DataDir, h.PublishDir, both, both)); err != nil {
		t.Fatal(err)
	}
	data, published := t.TempDir(), t.TempDir()
	m := h.move(both, both, data, published)
	if err := errors.Join(m.Check(), m.Begin(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, isComplete := range []bool{false, true} { // the same command again
		if complete, err := m.IsComplete(t.Context()); err != nil || complete != isComplete {
			t.Errorf("the move is complete: %t, %v", complete, err)
		}
		if err := moveAll(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Remove(t.Context(), h.job.Task); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(h.before, fileHashes(t, data, published)); diff != "" {
		t.Error(diff)
	}
	if left, err := m.Tasks(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestMove_RemovesOnlyWhatTheNewLocationHas(t *testing.T) {
	t.Parallel()
	h := newMoveTest(t)
	for _, name := range []string{media.MasterName, media.ManifestName} {
		if err := os.Remove(filepath.Join(h.PublishedDir(h.job.Task), name)); err != nil { // so no generation is copied
			t.Fatal(err)
		}
	}
	unknown := filepath.Join(h.TaskDir(h.job.Task), "backup-0001-aaaaaaaaaa")
	if err := os.Mkdir(unknown, 0o755); err != nil {
		t.Fatal(err)
	}
	m := h.toBucket()
	if err := moveAll(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	result := list(t, h.TaskDir(h.job.Task))[0]
	artifact := path.Join(tasksName, h.job.Task.String(), result)
	if err := m.Data.To.Bucket.storage.DeleteArtifact(t.Context(), artifact); err != nil {
		t.Fatal(err)
	}
	generations := list(t, h.PublishedDir(h.job.Task))
	err := m.Remove(t.Context(), h.job.Task)
	for _, name := range append(generations, result) {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("it does not name %s, which stays: %v", name, err)
		}
	}
	if diff := cmp.Diff([]string{result, filepath.Base(unknown)}, list(t, h.TaskDir(h.job.Task))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(generations, list(t, h.PublishedDir(h.job.Task))); diff != "" {
		t.Error(diff)
	}
}

func TestMove_RemovesWhatTheNewLocationHasNewer(t *testing.T) {
	t.Parallel()
	h := newMoveTest(t)
	m := h.toBucket()
	if err := moveAll(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	// A removal that was killed has deleted the manifests. Meanwhile a daemon has published again.
	for _, name := range []string{media.MasterName, media.ManifestName} {
		if err := os.Remove(filepath.Join(h.PublishedDir(h.job.Task), name)); err != nil {
			t.Fatal(err)
		}
	}
	old, err := m.Published.To.readStable(t.Context(), h.job.Task)
	if err != nil {
		t.Fatal(err)
	}
	newer := []byte("gen-0003-aaaaaaaaaa/master.m3u8\n")
	if err := m.Published.To.replaceStable(t.Context(), h.job.Task, old, [2][]byte{newer, newer}); err != nil {
		t.Fatal(err)
	}
	if err := m.Remove(t.Context(), h.job.Task); err != nil {
		t.Error(err)
	}
	if tasks, err := m.Tasks(t.Context()); err != nil || len(tasks) > 0 {
		t.Errorf("left: %v, %v", tasks, err)
	}
}
