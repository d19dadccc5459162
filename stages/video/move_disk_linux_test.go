package video

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/cuelight/cuelight/internal/storage/s3test"
	"github.com/cuelight/cuelight/store"
)

// newSmallDiskMove returns a move from a bucket, in which each task has 12 MiB, to a disk of 18 MiB.
func newSmallDiskMove(t *testing.T, tasks ...store.ID) *Move {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=18m"); err != nil {
		t.Skip("this account may not mount: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	server := s3test.Start(t, s3test.Options{})
	server.MakeBucket(t, "videos")
	from, err := openTestLocation("s3://videos/data", server.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(from.Bucket.Close)
	for _, task := range tasks {
		local := t.TempDir()
		content := make([]byte, 4<<20)
		for _, name := range []string{"1.mp4", "2.mp4", "3.mp4"} {
			_, _ = rand.Read(content) // it never fails
			write(t, filepath.Join(local, name), string(content))
		}
		name := artifactName(task, "ingest-0001-aaaaaaaaaa")
		if _, err := from.Bucket.storage.PutArtifact(t.Context(), name, local, nil); err != nil {
			t.Fatal(err)
		}
	}
	return &Move{Data: Route{from, Location{Dir: dir}}, Reserve: -1}
}

func TestMove_ContinuesACopyOnADiskWithRoomForTheRest(t *testing.T) {
	t.Parallel()
	task := store.ID{15: 1}
	m := newSmallDiskMove(t, task)
	if _, err := m.Copy(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	// As it was before the last file.
	dir := filepath.Join(m.Data.To.Dir, artifactName(task, "ingest-0001-aaaaaaaaaa"))
	if err := errors.Join(os.Remove(filepath.Join(dir, "3.mp4")), os.Rename(dir, dir+".tmp")); err != nil {
		t.Fatal(err)
	}
	m.Reserve = 4 << 20
	if _, err := m.Copy(t.Context(), task); err != nil {
		t.Error(err)
	}
}

func TestMove_LeavesRoomForCopiesThatAreRunning(t *testing.T) {
	t.Parallel()
	first, second := store.ID{15: 1}, store.ID{15: 2}
	m := newSmallDiskMove(t, first, second)
	var once sync.Once
	m.Progress = func(string, int64, int64) {
		once.Do(func() {
			if _, err := m.Copy(t.Context(), second); !isFull(err) {
				t.Errorf("there is no room for the second task: %v", err)
			}
		})
	}
	if _, err := m.Copy(t.Context(), first); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(m.Data.To.Dir, artifactName(second, "ingest-0001-aaaaaaaaaa.tmp"))); err == nil {
		t.Error("a part of the second task was copied")
	}
	m.Reserve = 10 << 20 // nothing is to be copied, so none is needed
	if done, err := m.Copy(t.Context(), first); err != nil || done.Present != 1 {
		t.Errorf("%d present, %v", done.Present, err)
	}
}
