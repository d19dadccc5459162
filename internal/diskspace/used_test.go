package diskspace_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/cuelight/cuelight/internal/diskspace"
)

func write(t *testing.T, file string, size int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, make([]byte, size), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestUsed_CountsHardLinksOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a"), 10)
	write(t, filepath.Join(dir, "sub", "b"), 200)
	if err := os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "sub", "c")); err != nil {
		t.Fatal(err)
	}
	if n, err := diskspace.Used(t.Context(), dir); err != nil || n != 210 {
		t.Errorf("%d bytes, %v", n, err)
	}
	if n, err := diskspace.Used(t.Context(), filepath.Join(dir, "missing")); err != nil || n != 0 {
		t.Errorf("of a directory that does not exist: %d bytes, %v", n, err)
	}
}

func TestWalk_IgnoresWhatDisappears(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 3 {
		write(t, filepath.Join(dir, strconv.Itoa(i), "file"), 1)
		write(t, filepath.Join(dir, strconv.Itoa(i), "other"), 1)
	}
	n := 0
	err := diskspace.Walk(t.Context(), dir, func(fs.FileInfo) {
		n++
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err != nil || n != 1 {
		t.Errorf("it found %d files and returned %v", n, err)
	}
}
