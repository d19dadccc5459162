package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestFetch_CopiesALocalFileWithAnyName(t *testing.T) {
	t.Parallel()
	content := strings.Repeat("moving pictures ", 200_000) // more than one buffer
	sum := sha256.Sum256([]byte(content))
	for _, name := range []string{
		"plain.mp4", "-dash.mp4", "with space.mp4", "50%off %d.mp4", `q"uo'te.mp4`, "new\nline.mp4",
		"concat:a|b.mp4", "http:", "file.mp4?x#y", "\xff\xfe.mp4", "$(id) `id`.mp4", "…ü漢.mp4",
	} {
		src := writeFile(t, filepath.Join(t.TempDir(), name), content)
		before := stat(t, src)
		dst := filepath.Join(t.TempDir(), "out")
		var seen, total int64
		f, err := Fetch(t.Context(), src, dst, Options{Progress: func(d, n int64) { seen, total = d, n }})
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if f.SHA256 != hex.EncodeToString(sum[:]) || f.Bytes != int64(len(content)) || readFile(t, dst) != content {
			t.Errorf("%q: got %+v", name, f)
		}
		if seen != f.Bytes || total != f.Bytes {
			t.Errorf("%q: progress ended at %d of %d", name, seen, total)
		}
		after := stat(t, src)
		if os.SameFile(after, stat(t, dst)) || !after.ModTime().Equal(before.ModTime()) || after.Mode() != before.Mode() {
			t.Errorf("%q: the source changed", name)
		}
		if left := list(t, filepath.Dir(dst)); len(left) != 1 {
			t.Errorf("%q: left behind: %q", name, left)
		}
	}
}

func TestFetch_KeepsTheHolesOfASparseFile(t *testing.T) {
	t.Parallel()
	src := writeFile(t, filepath.Join(t.TempDir(), "sparse.mp4"), "moving pictures")
	must(t, os.Truncate(src, 64<<20))
	f, err := os.OpenFile(src, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("and their index"), 30<<20-7) // across two blocks
	must(t, errors.Join(err, f.Close()))
	dst := filepath.Join(t.TempDir(), "out")
	got, err := Fetch(t.Context(), src, dst, Options{})
	must(t, err)
	if content := readFile(t, src); readFile(t, dst) != content {
		t.Error("the copy differs from the source")
	} else if sum := sha256.Sum256([]byte(content)); got.SHA256 != hex.EncodeToString(sum[:]) || got.Bytes != 64<<20 {
		t.Errorf("got %+v", got)
	}
	if used := stat(t, dst).Sys().(*syscall.Stat_t).Blocks * 512; used > 1<<20 {
		t.Errorf("the copy takes %d bytes on the disk", used)
	}
}

func TestFetch_AcceptsAFileURL(t *testing.T) {
	t.Parallel()
	src := writeFile(t, filepath.Join(t.TempDir(), "\xff?.mp4"), "x")
	dst := filepath.Join(t.TempDir(), "out")
	f, err := Fetch(t.Context(), "file://"+filepath.Dir(src)+"/%ff%3F.mp4", dst, Options{})
	if err != nil || f.Name != "\uFFFD?.mp4" {
		t.Fatalf("got %+v, %v", f, err)
	}
}

func TestFetch_RefusesWhatIsNotARegularFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mkfifo(dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", dir+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	writeFile(t, dir+"/empty", "")
	writeFile(t, dir+"/file", "x")
	must(t, os.Symlink("loop", dir+"/loop"))
	must(t, os.Symlink(dir+"/pipe", dir+"/link-to-pipe"))
	for path, want := range map[string]string{
		dir + "/none":                         "no such file",
		dir + "/file/below":                   "no such file",
		dir:                                   "directory",
		dir + "/pipe":                         "pipe",
		dir + "/link-to-pipe":                 "pipe",
		dir + "/socket":                       "socket",
		dir + "/empty":                        "empty",
		"/dev/null":                           "device",
		"/dev/zero":                           "device",
		"/proc/self/status":                   "empty",
		dir + "/loop":                         "symbolic links",
		dir + "/" + strings.Repeat("n", 5000): "name too long",
	} {
		out := t.TempDir()
		_, err := Fetch(t.Context(), path, out+"/f", Options{})
		var e *Error
		if !errors.As(err, &e) || !e.Permanent || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: got %v, want a permanent error with %q", path, err, want)
		}
		if left := list(t, out); len(left) != 0 {
			t.Errorf("%.60q: left behind: %q", path, left)
		}
	}
}

func TestFetch_TreatsMissingPermissionAsTemporary(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	src := writeFile(t, t.TempDir()+"/f", "x")
	must(t, os.Chmod(src, 0))
	_, err := Fetch(t.Context(), src, t.TempDir()+"/f", Options{})
	var e *Error
	if !errors.As(err, &e) || e.Permanent || !errors.Is(err, fs.ErrPermission) {
		t.Fatalf("got %v", err)
	}
}

func TestFetch_FailsIfALocalFileChangesDuringTheCopy(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(path string) error{
		"grown": func(p string) error {
			f, err := os.OpenFile(p, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteString("more")
			return err
		},
		"cut":     func(p string) error { return os.Truncate(p, 2<<20) },
		"touched": func(p string) error { return os.Chtimes(p, time.Time{}, time.Unix(1, 0)) },
	} {
		src := writeFile(t, t.TempDir()+"/f", strings.Repeat("x", 3<<20))
		out := t.TempDir()
		changed := false
		_, err := Fetch(t.Context(), src, out+"/f", Options{Progress: func(int64, int64) {
			if !changed {
				changed = true
				must(t, change(src))
			}
		}})
		var e *Error
		if !errors.As(err, &e) || e.Permanent || !errors.Is(err, errChanged) {
			t.Errorf("%s: got %v", name, err)
		}
		if left := list(t, out); len(left) != 0 {
			t.Errorf("%s: left behind: %q", name, left)
		}
	}
}

func TestFetch_StopsAtTheFirstSizeOfAGrowingFile(t *testing.T) {
	t.Parallel()
	chunk := strings.Repeat("x", 1<<20)
	src := writeFile(t, t.TempDir()+"/f", chunk)
	f, err := os.OpenFile(src, os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	defer f.Close()
	pieces := 0
	_, err = Fetch(t.Context(), src, t.TempDir()+"/f", Options{Progress: func(int64, int64) {
		if pieces++; pieces < 20 {
			_, err := f.WriteString(chunk)
			must(t, err)
		}
	}})
	if !errors.Is(err, errChanged) || pieces > 2 {
		t.Errorf("got %v after %d pieces", err, pieces)
	}
}

func TestFetch_LinksOnlyIfAllowedAndNeverToASymbolicLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	src := writeFile(t, dir+"/f", "x")
	must(t, os.Symlink("f", dir+"/symlink"))
	if probe := dir + "/clone"; clone(open(t, src), probe) == nil {
		t.Skip("this file system has reflinks, which have priority")
	}
	for _, from := range []string{src, dir + "/symlink"} {
		dst := filepath.Join(t.TempDir(), "out")
		f, err := Fetch(t.Context(), from, dst, Options{Link: true})
		if err != nil || f.Method != Link || !os.SameFile(stat(t, src), stat(t, dst)) {
			t.Errorf("%s: got %+v, %v", from, f, err)
		}
		if f, err := Fetch(t.Context(), from, dst, Options{}); err != nil || f.Method != Copy {
			t.Errorf("%s: got %+v, %v", from, f, err)
		}
		if readFile(t, src) != "x" || os.SameFile(stat(t, src), stat(t, dst)) {
			t.Errorf("%s: the copy has not replaced the link", from)
		}
	}
}

func TestFetch_TreatsDestinationErrorsAsTemporary(t *testing.T) {
	t.Parallel()
	src := writeFile(t, t.TempDir()+"/f", "x")
	_, err := Fetch(t.Context(), src, t.TempDir()+"/gone/f", Options{})
	var e *Error
	if !errors.As(err, &e) || e.Permanent || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("missing directory: %v", err)
	}
	out := t.TempDir()
	_, err = Fetch(t.Context(), src, out+"/f", Options{Reserve: 1 << 60})
	if !errors.As(err, &e) || e.Permanent || !errors.Is(err, syscall.ENOSPC) ||
		!strings.Contains(err.Error(), "not enough disk space") {
		t.Errorf("full disk: %v", err)
	}
	if left := list(t, out); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

// The full disk is a small tmpfs, if this process may mount one.
func TestFetch_LeavesNothingOnAFullDisk(t *testing.T) {
	dir := mountSmallDisk(t)
	content := strings.Repeat("x", 8<<20)
	src := writeFile(t, t.TempDir()+"/f", content)
	server := serve(t, serveFile([]byte(content), `"v1"`))
	// A negative reserve disables the check before the first write.
	o := Options{Reserve: -1 << 40, Allow: loopback, Partial: dir + "/part"}
	for _, source := range []string{src, server.URL} {
		_, err := Fetch(t.Context(), source, dir+"/out", o)
		var e *Error
		if !errors.As(err, &e) || e.Permanent || !errors.Is(err, syscall.ENOSPC) ||
			!strings.Contains(err.Error(), "is full") {
			t.Errorf("%s: got %v", source, err)
		}
		if left := list(t, dir); len(left) != 0 {
			t.Errorf("%s: left behind: %q", source, left)
		}
	}
}

func TestFetch_LeavesNothingAfterACancelledCopy(t *testing.T) {
	t.Parallel()
	src := writeFile(t, t.TempDir()+"/f", strings.Repeat("x", 4<<20))
	out := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Fetch(ctx, src, out+"/f", Options{Progress: func(int64, int64) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if left := list(t, out); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

func writeFile(t *testing.T, path, content string) string {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}

func stat(t *testing.T, path string) fs.FileInfo {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	return info
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
