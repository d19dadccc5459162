package video

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cuelight/cuelight/internal/fetch"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/internal/media/sandbox"
)

// umaskVariable tells a test that it runs in its own process with that umask, because
// all tests of a process share one.
const umaskVariable = "CUELIGHT_TEST_UMASK"

func TestPublish_IsReadableWithAnyUmask(t *testing.T) {
	t.Parallel()
	if os.Getenv(umaskVariable) != "" {
		t.Skip("this is the child process")
	}
	if clips.picture == "" {
		t.Skip("there is no ffmpeg here")
	}
	for _, umask := range []string{"0077", "0000"} {
		child := exec.CommandContext(t.Context(), "sh",
			"-c", `umask "$1" && exec "$0" -test.run '^TestPublish_HelperRunsWithAUmask$' -test.v`,
			os.Args[0], umask)
		child.Env = append(os.Environ(), umaskVariable+"="+umask)
		if out, err := child.CombinedOutput(); err != nil {
			t.Errorf("with umask %s: %v\n%s", umask, err, out)
		}
	}
}

func TestPublish_HelperRunsWithAUmask(t *testing.T) {
	if os.Getenv(umaskVariable) == "" {
		t.Skip("TestPublish_IsReadableWithAnyUmask runs this")
	}
	t.Run("linked", func(t *testing.T) {
		h, m := readyHarness(t)
		h.mustPublish(m)
		wantServed(t, h.PublishedDir(h.job.Task))
	})
	t.Run("copied", func(t *testing.T) {
		h, m := readyHarness(t)
		h.PublishDir = otherFileSystem(t)
		h.mustPublish(m)
		wantServed(t, h.PublishedDir(h.job.Task))
	})
	// With the usual umask the test would prove nothing.
	if usual := syscall.Umask(0); usual == 0o022 {
		t.Errorf("the umask is %04o", usual)
	}
}

// wantServed requires that all accounts can read everything in dir.
func wantServed(t *testing.T, dir string) {
	t.Helper()
	seen := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o644)
		if e.IsDir() {
			want = 0o755
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %v; want %v", path, info.Mode().Perm(), want)
		}
		seen++
		return nil
	})
	if err != nil || seen < 10 {
		t.Errorf("%d files and directories, %v", seen, err)
	}
}

// A source that other users may read is read without root, also if it is linked.
func TestIngest_ReadsLinkedSourceWithoutRoot(t *testing.T) {
	t.Parallel()
	if !sandbox.CanChangeUser(media.DefaultUser) {
		t.Skip("this process cannot start programs as another user")
	}
	for mode, asRoot := range map[fs.FileMode]bool{0o644: false, 0o604: false, 0o640: true} {
		h := newHarness(t, filepath.Join(t.TempDir(), "mine.mp4"))
		h.LinkSources = true
		real, err := exec.LookPath("ffprobe")
		if err != nil {
			t.Fatal(err)
		}
		write(t, h.job.Source, read(t, clips.picture))
		h.Tools.FFprobe = filepath.Join(t.TempDir(), "ffprobe")
		write(t, h.Tools.FFprobe,
			"#!/bin/sh\n[ $(id -u) != 0 ] || { echo 'it has the rights of root' >&2; exit 1; }\nexec "+real+" \"$@\"\n")
		if err := errors.Join(os.Chmod(h.Tools.FFprobe, 0o755), os.Chmod(h.job.Source, mode)); err != nil {
			t.Fatal(err)
		}
		in, err := h.ingest(h.t.Context(), h.job)
		if asRoot {
			if !ranAsRoot(err) {
				t.Errorf("%v: error %v; want one that says that only root may read it", mode, err)
			}
		} else if err != nil {
			t.Fatalf("%v: %v", mode, err)
		} else if in.Method != fetch.Link {
			t.Skipf("sources are fetched by %s here", in.Method)
		}
		if info, err := os.Stat(h.job.Source); err != nil || info.Mode().Perm() != mode {
			t.Errorf("the source had mode %v and has %v (%v)", mode, info.Mode().Perm(), err)
		}
		if !asRoot {
			// Another stage does so with other options.
			if _, err := h.readableSource(in, h.TaskDir(h.job.Task)); err != nil {
				t.Error(err)
			}
			if info, err := os.Stat(h.job.Source); err != nil || info.Mode().Perm() != mode {
				t.Errorf("after another stage the source had mode %v and has %v (%v)", mode, info.Mode().Perm(), err)
			}
		}
	}
}

func ranAsRoot(err error) bool {
	var rejected *media.RejectedError
	return errors.As(err, &rejected) && strings.Contains(rejected.Detail, "rights of root")
}

func TestIngest_KeepsModeOfSource(t *testing.T) {
	t.Parallel()
	h := newHarness(t, filepath.Join(t.TempDir(), "mine.mp4"))
	raw, err := os.ReadFile(clips.picture)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.job.Source, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	h.LinkSources = true // the task's directory may contain the same file
	h.mustIngest()
	info, err := os.Stat(h.job.Source)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the source has mode %v", info.Mode().Perm())
	}
}
