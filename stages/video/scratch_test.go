package video

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/internal/blockcache"
	"github.com/cuelight/cuelight/internal/diskspace"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

const testMiB = 1 << 20

// putCopy puts a copy of a result into a scratch space, whose last use was some time ago.
func putCopy(t *testing.T, c Config, task store.ID, name string, bytes int64, age time.Duration) string {
	t.Helper()
	dir := filepath.Join(c.TaskDir(task), name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "source.mp4"), strings.Repeat("x", int(bytes)))
	for _, path := range []string{dir, c.TaskDir(task)} {
		if err := os.Chtimes(path, time.Now(), time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestScratch_AttemptsThatDoNotFitWait(t *testing.T) {
	t.Parallel()
	c := Config{DataDir: t.TempDir(), ScratchLimit: 100 * testMiB, Reserve: -1}
	s := newScratch(c, 0, nil)
	first, err := s.use(store.ID{1}, 60*testMiB)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.use(store.ID{2}, 60*testMiB)
	if _, ok := errors.AsType[*scratchFullError](err); !ok {
		t.Fatalf("the second attempt: %v", err)
	}
	if err := classify(t.Context(), err, 1); !stages.IsPostponed(err) {
		t.Errorf("the attempt counts: %v", err)
	}
	if want := "the attempt waits for scratch space: it may need 60.0 MiB, and 60.0 MiB of 100.0 MiB"; !strings.HasPrefix(err.Error(), want) {
		t.Errorf("the error is %q", err)
	}
	if second, err := s.use(store.ID{2}, 30*testMiB); err != nil {
		t.Errorf("a smaller attempt: %v", err)
	} else {
		second()
	}
	first()
	second, err := s.use(store.ID{2}, 60*testMiB)
	if err != nil {
		t.Fatalf("after the end of the first: %v", err)
	}
	second()
	_, err = s.use(store.ID{3}, 200*testMiB)
	if err := classify(t.Context(), err, 1); !stages.IsPostponed(err) || !strings.Contains(err.Error(), "raise --scratch-limit") {
		t.Errorf("an attempt that never fits: %v", err)
	}
	free, _, err := diskspace.Free(c.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	s.config.ScratchLimit, s.config.Reserve = 0, free-testMiB
	if _, err := s.use(store.ID{4}, 500*testMiB); err == nil {
		t.Error("an attempt began that does not fit above the reserve")
	}
}

func TestScratch_AnAttemptThatNeverFitsBesideTheBlocksDoesNotSuspendItsStage(t *testing.T) {
	t.Parallel()
	c := Config{DataDir: t.TempDir(), ScratchLimit: 100 * testMiB, Reserve: -1}
	s := newScratch(c, scratchAge, blockcache.New(c.DataDir, c.blockCacheLimit(), func(string, int64) error { return nil }))
	_, err := s.use(store.ID{1}, 76*testMiB)
	if err := classify(t.Context(), err, 1); !stages.IsPostponed(err) || stages.SuspendsStage(err) ||
		!strings.Contains(err.Error(), "attempts may have 75.0 MiB") || !strings.Contains(err.Error(), "raise --scratch-limit") {
		t.Errorf("an attempt that never fits: %v", err)
	}
	largest, err := s.use(store.ID{2}, 75*testMiB)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.use(store.ID{3}, 75*testMiB)
	if err := classify(t.Context(), err, 1); !stages.SuspendsStage(err) ||
		!strings.Contains(err.Error(), "it may need 75.0 MiB, and 75.0 MiB of 75.0 MiB") {
		t.Errorf("an attempt that waits for another one: %v", err)
	}
	largest()
	if largest, err = s.use(store.ID{3}, 75*testMiB); err != nil {
		t.Fatalf("after the end of the other one: %v", err)
	}
	largest()
}

func TestScratch_GivesUpTheBlocksForTheDiskButNotForTheLimit(t *testing.T) {
	t.Parallel()
	c := Config{DataDir: t.TempDir(), ScratchLimit: 100 * testMiB, Reserve: -1}
	blocks := blockcache.New(c.DataDir, c.blockCacheLimit(), func(string, int64) error { return nil })
	f := blocks.Open(t.Context(), blockcache.Source{
		Name: "a", Size: testMiB, BlockSize: testMiB,
		Fetch: func(context.Context, int64) ([]byte, error) { return make([]byte, testMiB), nil },
	})
	defer f.Close()
	if _, err := f.ReadAt(t.Context(), make([]byte, 1), 0); err != nil {
		t.Fatal(err)
	}
	s := newScratch(c, scratchAge, blocks)
	_, err := s.use(store.ID{1}, 80*testMiB)
	if _, ok := errors.AsType[*scratchFullError](err); !ok || blocks.Bytes() != testMiB {
		t.Errorf("the limit is reached: %v; the cache has %d bytes", err, blocks.Bytes())
	}
	free, _, err := diskspace.Free(c.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	s.config.Reserve = 2 * free
	_, err = s.use(store.ID{1}, testMiB)
	if _, ok := errors.AsType[*diskspace.FullError](err); !ok || blocks.Bytes() != 0 {
		t.Errorf("the disk is full: %v; the cache has %d bytes", err, blocks.Bytes())
	}
}

func TestScratch_RemovesUnusedCopiesForAnAttemptTheOldestUseFirst(t *testing.T) {
	t.Parallel()
	c := Config{DataDir: t.TempDir(), ScratchLimit: 10 * testMiB, Reserve: -1}
	s := newScratch(c, scratchAge, nil)
	name := dirName{stage: ingestStage, number: 1, random: "aaaaaaaaaa"}.String()
	used := putCopy(t, c, store.ID{1}, name, 2*testMiB, time.Hour)
	oldest := putCopy(t, c, store.ID{2}, name, 2*testMiB, 20*time.Minute)
	old := putCopy(t, c, store.ID{3}, name, 2*testMiB, 10*time.Minute)
	young := putCopy(t, c, store.ID{4}, name, 2*testMiB, 0)
	done, err := s.use(store.ID{1}, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	exists := func(dir string) bool { _, err := os.Stat(dir); return err == nil }
	attempt, err := s.use(store.ID{5}, 4*testMiB)
	if err != nil {
		t.Fatal(err)
	}
	if !exists(used) || exists(oldest) || !exists(old) || !exists(young) {
		t.Errorf("used %v, oldest %v, old %v, young %v", exists(used), exists(oldest), exists(old), exists(young))
	}
	if _, err := s.use(store.ID{6}, 3*testMiB); err == nil {
		t.Error("an attempt began that does not fit")
	}
	if exists(old) || !exists(young) || !exists(used) {
		t.Errorf("then used %v, old %v, young %v", exists(used), exists(old), exists(young))
	}
	attempt()
}

func TestScratch_AnotherProcessKeepsTheFilesOfALongAttempt(t *testing.T) {
	t.Parallel()
	c := Config{DataDir: t.TempDir(), Reserve: -1}
	name := dirName{stage: transcodeStage, number: 1, random: "aaaaaaaaaa"}.String()
	used := putCopy(t, c, store.ID{1}, name, 1, time.Hour)
	unused := putCopy(t, c, store.ID{2}, name, 1, time.Hour)
	synctest.Test(t, func(t *testing.T) {
		done, err := newScratch(c, scratchAge, nil).use(store.ID{1}, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		then := time.Now().Add(-time.Hour) // since the attempt began, its files have been uploaded
		if err := os.Chtimes(c.TaskDir(store.ID{1}), then, then); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * touchEvery)
		synctest.Wait()
	})
	other := newScratch(c, scratchAge, nil)
	other.mu.Lock()
	other.trim() // as after each of its attempts
	other.mu.Unlock()
	if !exists(used) || exists(unused) {
		t.Errorf("used %v, unused %v", exists(used), exists(unused))
	}
}
