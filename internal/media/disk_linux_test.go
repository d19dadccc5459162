package media

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// smallDisk mounts a disk of one megabyte.
func smallDisk(t *testing.T, flags uintptr) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", flags, "size=1m"); err != nil {
		t.Skipf("no disk can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

func TestTextAboutTheDisk_IsBelievedOnlyWhereTheDiskIsSo(t *testing.T) {
	t.Parallel()
	full := smallDisk(t, 0)
	if err := os.WriteFile(filepath.Join(full, "film"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	readOnly, roomy := smallDisk(t, syscall.MS_RDONLY), t.TempDir()
	const noSpace = "echo '[hls @ 0x55] [error] write: No space left on device' >&2; "
	for _, c := range []struct {
		name, dir, script string
		want              error
		exit              bool // a bad exit code is told as such
	}{
		{"full, code 0", full, noSpace + "exit 0", ErrNoSpace, false},
		{"full, quota, code 1", full, "echo 'Disk quota exceeded' >&2; exit 1", ErrNoSpace, false},
		{"read-only, code 0", readOnly, "echo '[error] Failed to open: Read-only file system' >&2; exit 0", syscall.EROFS, false},
		{"roomy, code 0", roomy, noSpace + "exit 0", nil, false},
		{"roomy, code 1", roomy, noSpace + "exit 1", nil, true},
		{"nothing is written, code 1", "", noSpace + "exit 1", nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Tools{FFmpeg: script(t, c.script+"\n")}.run(t.Context(), child{tool: "ffmpeg", dir: c.dir})
			_, exit := errors.AsType[*exitError](err)
			if exit != c.exit || !exit && !errors.Is(err, c.want) || exit && errors.Is(err, ErrNoSpace) {
				t.Errorf("error %v; want %v", err, c.want)
			}
			for _, dir := range []string{full, roomy} {
				if left, _ := filepath.Glob(filepath.Join(dir, ".space-*")); len(left) > 0 {
					t.Errorf("%s is left over", left)
				}
			}
		})
	}
}
