package video

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/stages"
)

func TestWorkdir_AppearsAtomically(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	w := mustWorkdir(t, parent, "transcode")
	write(t, filepath.Join(w.path, "a", "b"), "x")
	if names := list(t, parent); len(names) != 1 || !strings.HasSuffix(names[0], ".tmp") {
		t.Fatalf("before the end: %q", names)
	}
	name, err := w.finish(t.Context(), &stages.Job{})
	if err != nil {
		t.Fatal(err)
	}
	w.discard()
	if names := list(t, parent); !slices.Equal(names, []string{name}) || strings.HasSuffix(name, ".tmp") {
		t.Fatalf("after the end: %q; want %q", names, name)
	}
	if got := read(t, filepath.Join(parent, name, "a", "b")); got != "x" {
		t.Errorf("content %q", got)
	}
}

func TestWorkdir_IsRemovedAfterFailure(t *testing.T) {
	t.Parallel()
	for how, attempt := range map[string]func(ctx context.Context, w *workdir){
		"error": func(context.Context, *workdir) {},
		"panic": func(context.Context, *workdir) { panic("at the disco") },
		"cancelled before it finished": func(ctx context.Context, w *workdir) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			if _, err := w.finish(ctx, &stages.Job{}); !errors.Is(err, context.Canceled) {
				t.Errorf("finish: %v", err)
			}
		},
	} {
		parent := t.TempDir()
		func() {
			defer func() { recover() }()
			w := mustWorkdir(t, parent, "transcode")
			defer w.discard()
			write(t, filepath.Join(w.path, "a", "b"), "x")
			attempt(t.Context(), w)
		}()
		if names := list(t, parent); len(names) != 0 {
			t.Errorf("%s: left behind: %q", how, names)
		}
	}
}

func TestWorkdir_RemovesThoseOfDeadProcesses(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	dead := mustWorkdir(t, parent, "transcode")
	dead.lock.Close() // as the kernel does when a process dies
	zombie := mustWorkdir(t, parent, "transcode")
	defer zombie.discard()
	other := mustWorkdir(t, parent, "metadata")
	other.lock.Close()
	write(t, filepath.Join(parent, "transcode-notes.tmp", "x"), "somebody's")

	w := mustWorkdir(t, parent, "transcode")
	defer w.discard()
	if exists(dead.path) || !exists(zombie.path) || !exists(other.path) || !exists(w.path) {
		t.Errorf("files: %q", list(t, parent))
	}
	if !exists(filepath.Join(parent, "transcode-notes.tmp", "x")) {
		t.Error("a file of another owner was removed")
	}
	if w.number <= zombie.number || zombie.number <= dead.number {
		t.Errorf("numbers %d, %d, %d", dead.number, zombie.number, w.number)
	}
}

func TestWorkdir_ConcurrentCreationKeepsAll(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	var all [40]*workdir
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			w, err := newWorkdir(t.Context(), &stages.Job{}, parent, "transcode", 1, privateMode)
			if err != nil {
				t.Error(err)
				return
			}
			all[i] = w
		})
	}
	wg.Wait()
	numbers := map[int]bool{}
	for _, w := range all {
		if w == nil {
			continue
		}
		defer w.discard()
		if numbers[w.number] = true; !exists(w.path) {
			t.Errorf("%s is missing", w.path)
		}
	}
	if len(numbers) != len(all) {
		t.Errorf("%d numbers for %d directories", len(numbers), len(all))
	}
}

func TestRemoveOlder_KeepsNewerResults(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	var dirs []*workdir
	for range 3 {
		w := mustWorkdir(t, parent, "transcode")
		if _, err := w.finish(t.Context(), &stages.Job{}); err != nil {
			t.Fatal(err)
		}
		w.lock.Close()
		dirs = append(dirs, w)
	}
	removeOlder(t.Context(), &stages.Job{}, parent, dirs[1].String()) // an attempt that does not know the newer one
	if exists(dirs[0].path) || !exists(dirs[1].path) || !exists(dirs[2].path) {
		t.Errorf("files: %q", list(t, parent))
	}
}

func TestFindResultDir_RejectsOtherNames(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	for _, name := range []string{
		"", ".", "..", "../x", "/etc", "transcode-0001-aaaaaaaaaa.tmp", "metadata-0001-aaaaaaaaaa",
		"transcode-0001-aaaaaaaaaa/..", "transcode-1-a",
	} {
		if dir, err := findResultDir(parent, "transcode", name); err == nil {
			t.Errorf("%q: %q", name, dir)
		}
	}
	var gone *missingError
	if _, err := findResultDir(parent, "transcode", "transcode-0001-aaaaaaaaaa"); !errors.As(err, &gone) {
		t.Errorf("got %v", err)
	}
}

func TestLinker_LinksIfPossible(t *testing.T) {
	t.Parallel()
	src, dst := t.TempDir(), t.TempDir()
	write(t, filepath.Join(src, "a"), "aa")
	write(t, filepath.Join(src, "d", "b"), "bbb")
	var l linker
	if err := l.add(t.Context(), src, dst, servedMode); err != nil {
		t.Fatal(err)
	}
	if l.copying || l.done != (treeSize{files: 2, bytes: 5}) {
		t.Errorf("got %+v", l)
	}
	a, _ := os.Stat(filepath.Join(src, "d", "b"))
	b, _ := os.Stat(filepath.Join(dst, "d", "b"))
	if !os.SameFile(a, b) {
		t.Error("not the same file")
	}
	if err := l.add(t.Context(), src, dst, servedMode); !errors.Is(err, os.ErrExist) {
		t.Errorf("over an existing file: %v", err)
	}
}

func TestLinker_CopiesToAnotherFileSystem(t *testing.T) {
	t.Parallel()
	src, dst := t.TempDir(), otherFileSystem(t)
	write(t, filepath.Join(src, "a"), "aa")
	write(t, filepath.Join(src, "d", "b"), "bbb")
	var l linker
	if err := l.add(t.Context(), src, dst, servedMode); err != nil {
		t.Fatal(err)
	}
	if !l.copying || l.done != (treeSize{files: 2, bytes: 5}) || read(t, filepath.Join(dst, "d", "b")) != "bbb" {
		t.Errorf("got %+v", l)
	}
	full := linker{need: 5, reserve: 1 << 60}
	if err := full.add(t.Context(), src, t.TempDir(), servedMode); err != nil {
		t.Errorf("a link, which takes no space: %v", err)
	}
	sub := filepath.Join(dst, "sub")
	mkdir(t, sub)
	if err := full.add(t.Context(), src, sub, servedMode); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v", err)
	}
}

func TestLinker_RejectsSpecialFiles(t *testing.T) {
	t.Parallel()
	src := t.TempDir()
	if err := os.Symlink("/etc/passwd", filepath.Join(src, "a")); err != nil {
		t.Fatal(err)
	}
	var l linker
	if err := l.add(t.Context(), src, t.TempDir(), servedMode); err == nil {
		t.Error("a symbolic link was copied")
	}
}

// otherFileSystem returns a directory on another file system than TempDir.
func otherFileSystem(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "cuelight-test-")
	if err != nil {
		t.Skipf("this host has no second file system to write to: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	here := filepath.Join(t.TempDir(), "probe")
	write(t, here, "")
	if err := os.Link(here, filepath.Join(dir, "probe")); !errors.Is(err, syscall.EXDEV) {
		t.Skipf("this host has no second file system: %v", err)
	}
	return dir
}

func mustWorkdir(t *testing.T, parent, stage string) *workdir {
	t.Helper()
	w, err := newWorkdir(t.Context(), &stages.Job{}, parent, stage, 1, privateMode)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.lock.Close() })
	return w
}

func mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	mkdir(t, filepath.Dir(path))
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestWorkdir_IsTouchedDuringProgress(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w, err := newWorkdir(t.Context(), &stages.Job{}, parent, transcodeStage, 1, privateMode)
		if err != nil {
			t.Fatal(err)
		}
		defer w.discard()
		reported := 0
		job := w.withTouch(&stages.Job{OnProgress: func(stages.Progress) { reported++ }})
		heard := func() bool {
			old := time.Unix(1, 0)
			if err := os.Chtimes(w.path, old, old); err != nil {
				t.Fatal(err)
			}
			job.Progress(stages.Progress{})
			info, err := os.Stat(w.path)
			if err != nil {
				t.Fatal(err)
			}
			return !info.ModTime().Equal(old)
		}
		if heard() {
			t.Error("a new directory was touched")
		}
		time.Sleep(touchEvery)
		if !heard() || heard() || reported != 3 {
			t.Errorf("it is not touched once a minute, or progress is lost: %d", reported)
		}
	})
}

func TestLockDir_TimesOut(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lock, err := lockDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = lockDirTimeout(t.Context(), dir, 50*time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "held the lock") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lockDir(ctx, dir); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	lock.Close()
	again, err := lockDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}
