package upload_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cuelight/cuelight/internal/upload"
	"github.com/cuelight/cuelight/internal/waittest"
)

const childDirVariable = "CUELIGHT_UPLOAD_TEST_DIR"

// runChild serves uploads in a child process, which kills itself before it submits one.
func runChild(dir string) {
	u, err := upload.New(upload.Options{
		Dir: dir, MinFree: -1, OnComplete: func(context.Context, upload.Upload) (upload.Receipt, error) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		},
	})
	if err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println("http://" + l.Addr().String())
	panic(http.Serve(l, u))
}

// childProcess runs runChild.
type childProcess struct {
	*exec.Cmd
	url string
}

func startChild(t *testing.T, dir string) *childProcess {
	t.Helper()
	p := &childProcess{Cmd: exec.Command(os.Args[0], "-test.run=^$")}
	p.Env = append(os.Environ(), childDirVariable+"="+dir)
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	line := make([]byte, 64)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	p.url = strings.TrimSpace(string(line[:n]))
	return p
}

func (p *childProcess) kill() {
	if p.ProcessState == nil {
		_ = p.Process.Kill()
		_ = p.Wait()
	}
}

func TestCleanUp_SubmitsACompleteUploadAfterAKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startChild(t, dir)
	s := serve(t, upload.Options{Dir: dir}) // another process, with the same directory
	want := randomBytes(300_000)
	url := s.mustSend(http.StatusCreated, "POST", p.url+"/uploads/", nil, "Upload-Length", strconv.Itoa(len(want)),
		"Upload-Metadata", metadata("filename", "x.mkv")).header.Get("Location")
	_, err := s.send("PATCH", p.url+url, bytes.NewReader(want), "Content-Type", chunkType, "Upload-Offset", "0")
	if err == nil {
		t.Fatal("the child answered instead of being killed")
	}
	p.kill()
	for range 2 { // the second call has nothing to do
		if _, err := s.uploads.CleanUp(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	u := s.submissions.only(t)
	s.checkFile(u, want)
	if u.ID != filepath.Base(url) {
		t.Errorf("submitted as %s, want %s", u.ID, filepath.Base(url))
	}
}

// The process was killed before it renamed the file.
func TestCleanUp_SubmitsAnUploadThatHasAllBytes(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	url := s.create(3, "Upload-Metadata", metadata("filename", "x.mkv"))
	if err := os.WriteFile(filepath.Join(s.dir, "uploads", filepath.Base(url), "part"), []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	if len(s.submissions.all()) > 0 {
		t.Fatal("submitted too early")
	}
	if _, err := s.uploads.CleanUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.checkFile(s.submissions.only(t), []byte("abc"))
}

func TestPatch_ResumesAfterAKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startChild(t, dir)
	s := serve(t, upload.Options{Dir: dir})
	want := randomBytes(3 << 20)
	url := s.mustSend(http.StatusCreated, "POST", p.url+"/uploads/", nil,
		"Upload-Length", strconv.Itoa(len(want))).header.Get("Location")
	pipe, feed := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = s.send("PATCH", p.url+url, pipe, "Content-Length", strconv.Itoa(len(want)), "Content-Type", chunkType,
			"Upload-Offset", "0")
	}()
	if _, err := feed.Write(want[:1<<20]); err != nil {
		t.Fatal(err)
	}
	part := filepath.Join(dir, "uploads", filepath.Base(url), "part")
	waittest.Until(t, "some bytes are written", func() bool { i, err := os.Stat(part); return err == nil && i.Size() >= 1<<19 })
	// The other process has locked the upload.
	s.mustPatch(http.StatusLocked, url, s.mustSend(http.StatusOK, "HEAD", url, nil).offset(), strings.NewReader("x"))
	p.kill()
	feed.Close()
	<-ended
	at := s.mustSend(http.StatusOK, "HEAD", url, nil).offset()
	if at < 1<<19 {
		t.Errorf("of %d bytes %d exist", 1<<20, at)
	}
	s.mustPatch(http.StatusNoContent, url, at, bytes.NewReader(want[at:]))
	s.checkFile(s.submissions.only(t), want)
}

func TestCleanUp_DeletesASingleRequestUploadAfterAKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startChild(t, dir)
	s := serve(t, upload.Options{Dir: dir})
	pipe, feed := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = s.send("PUT", p.url+"/uploads/a.mp4", pipe, "Content-Length", "2000000", "Tus-Resumable", "")
	}()
	if _, err := feed.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "some bytes are written", func() bool {
		parts, err := filepath.Glob(filepath.Join(dir, "uploads", "*", "part"))
		if err != nil || len(parts) != 1 {
			return false
		}
		i, err := os.Stat(parts[0])
		return err == nil && i.Size() >= 1<<19
	})
	if done, err := s.uploads.CleanUp(t.Context()); err != nil || done.Expired != 0 {
		t.Errorf("CleanUp returned %+v, %v while the upload runs", done, err)
	}
	p.kill()
	feed.Close()
	<-ended
	if done, err := s.uploads.CleanUp(t.Context()); err != nil || done.Expired != 1 {
		t.Errorf("CleanUp returned %+v, %v", done, err)
	}
	if left := s.entries(); len(left) > 0 || len(s.submissions.all()) > 0 {
		t.Errorf("%v is left, %v was submitted", left, s.submissions.all())
	}
}

func TestPatch_UsesConstantMemory(t *testing.T) {
	dir := t.TempDir()
	p := startChild(t, dir) // its memory is only that of the upload
	s := serve(t, upload.Options{Dir: dir})
	const size = 200 << 20
	url := s.mustSend(http.StatusCreated, "POST", p.url+"/uploads/", nil,
		"Upload-Length", strconv.Itoa(size)).header.Get("Location")
	before := peakMemory(t, p.Process.Pid)
	sum := sha256.New()
	for at := int64(0); at < size; at += 50 << 20 {
		n := min(50<<20, size-at)
		if at+n == size {
			n-- // the last byte would kill the child
		}
		s.mustPatch(http.StatusNoContent, p.url+url, at, io.TeeReader(io.LimitReader(zeroReader{}, n), sum),
			"Content-Length", strconv.FormatInt(n, 10))
	}
	if after := peakMemory(t, p.Process.Pid); after > before+24<<20 {
		t.Errorf("the process grew from %d to %d MiB", before>>20, after>>20)
	}
	f, err := os.Open(filepath.Join(dir, "uploads", filepath.Base(url), "part"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := sha256.New()
	if _, err := io.Copy(got, f); err != nil {
		t.Fatal(err)
	}
	if a, b := hex.EncodeToString(got.Sum(nil)), hex.EncodeToString(sum.Sum(nil)); a != b {
		t.Errorf("%s arrived, not %s", a, b)
	}
}

type zeroReader struct{}

// Read fills p with zeros.
func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// peakMemory returns the maximum memory of a process.
func peakMemory(t *testing.T, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skipf("the memory of a process is unknown: %v", err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// A new upload must not look like a leftover of a crash.
func TestCleanUp_DoesNotDisturbNewUploads(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	other := serve(t, upload.Options{Dir: s.dir}) // like another process
	over := make(chan struct{})
	cleanedUp := make(chan struct{})
	go func() {
		defer close(cleanedUp)
		for {
			for _, u := range []*upload.Uploads{s.uploads, other.uploads} {
				if done, err := u.CleanUp(t.Context()); err != nil || done != (upload.CleanUpResult{}) {
					t.Errorf("CleanUp returned %+v, %v", done, err)
				}
			}
			select {
			case <-over:
				return
			default:
			}
		}
	}()
	for range 100 {
		s.mustSend(http.StatusCreated, "PUT", "/uploads/a.mp4", strings.NewReader("abc"), "Tus-Resumable", "")
	}
	close(over)
	<-cleanedUp
	if n := len(s.submissions.all()) + len(other.submissions.all()); n != 100 {
		t.Errorf("%d uploads were submitted, want 100", n)
	}
}
