package upload_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/upload"
	"github.com/cuelight/cuelight/internal/waittest"
)

// openPatch is a running PATCH. The test writes its body.
type openPatch struct {
	body     *io.PipeWriter
	response chan response // closed without a response if the connection broke
}

func (s *testServer) startPatch(url string, offset, length int64) *openPatch {
	body, feed := io.Pipe()
	p := &openPatch{feed, make(chan response, 1)}
	go func() {
		defer close(p.response)
		a, err := s.send("PATCH", url, body, "Content-Length", fmt.Sprint(length), "Content-Type", chunkType,
			"Upload-Offset", fmt.Sprint(offset))
		if err == nil {
			p.response <- a
		}
	}()
	s.t.Cleanup(func() { feed.Close() })
	return p
}

// waitForOffset waits until an upload has n bytes.
func (s *testServer) waitForOffset(url string, n int64) {
	s.t.Helper()
	waittest.Until(s.t, fmt.Sprintf("%d bytes are received", n), func() bool {
		a, err := s.send("HEAD", url, nil)
		return err == nil && a.offset() == n
	})
}

func TestPatch_RefusesAConcurrentRequest(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	url := s.create(6)
	p := s.startPatch(url, 0, 6)
	io.WriteString(p.body, "abc")
	s.waitForOffset(url, 3)
	if a := s.mustPatch(http.StatusLocked, url, 3, strings.NewReader("xxx")); a.header.Get("Retry-After") == "" {
		t.Errorf("the headers are %v", a.header)
	}
	io.WriteString(p.body, "def")
	p.body.Close()
	if a := <-p.response; a.status != http.StatusNoContent {
		t.Errorf("got %d %s", a.status, a.body)
	}
	s.checkFile(s.submissions.only(t), []byte("abcdef"))
}

func TestPatch_AcceptsOneOfManyConcurrentRequests(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	want := randomBytes(1 << 20)
	url := s.create(int64(len(want)))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				a, err := s.send("HEAD", url, nil)
				if err != nil || a.status != http.StatusOK {
					t.Errorf("HEAD: %d %v", a.status, err)
					return
				}
				at := a.offset()
				if at == int64(len(want)) {
					return
				}
				rest := want[at:min(at+64<<10, int64(len(want)))]
				a, err = s.send("PATCH", url, bytes.NewReader(rest), "Content-Type", chunkType, "Upload-Offset", fmt.Sprint(at))
				if err != nil {
					continue // refused while it was sending
				}
				switch a.status {
				case http.StatusNoContent, http.StatusConflict, http.StatusLocked:
				default:
					t.Errorf("PATCH: %d %s", a.status, a.body)
					return
				}
			}
		})
	}
	wg.Wait()
	waittest.Until(t, "the upload is submitted", func() bool { return len(s.submissions.all()) > 0 })
	s.checkFile(s.submissions.only(t), want)
}

// The server has not noticed that the connection is dead.
func TestPatch_TakesOverFromADeadConnection(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{StallTimeout: time.Minute, TakeoverTimeout: 50 * time.Millisecond})
	for _, back := range []string{"PATCH", "HEAD"} {
		url := s.create(6)
		p := s.startPatch(url, 0, 6)
		io.WriteString(p.body, "abc")
		s.waitForOffset(url, 3)
		if back == "HEAD" {
			waittest.Until(t, "the new request has taken over", func() bool {
				s.mustSend(http.StatusOK, "HEAD", url, nil)
				select {
				case a := <-p.response:
					return a.status == http.StatusConflict || a.status == 0
				default:
					return false
				}
			})
		}
		waittest.Until(t, "the rest is accepted", func() bool {
			a, err := s.send("PATCH", url, strings.NewReader("def"), "Content-Type", chunkType, "Upload-Offset", "3")
			return err == nil && a.status == http.StatusNoContent
		})
	}
	if n := len(s.submissions.all()); n != 2 {
		t.Errorf("%d uploads were submitted, want 2", n)
	}
}

func TestDelete_InterruptsARunningUpload(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	url := s.create(6)
	p := s.startPatch(url, 0, 6)
	io.WriteString(p.body, "abc")
	s.waitForOffset(url, 3)
	s.mustSend(http.StatusNoContent, "DELETE", url, nil)
	if a, ok := <-p.response; ok && a.status != http.StatusConflict {
		t.Errorf("who was sending got %d %s", a.status, a.body)
	}
	if left := s.entries(); len(left) > 0 {
		t.Errorf("remaining: %v", left)
	}
}

func TestStallTimeout_InterruptsOnlySilentClients(t *testing.T) {
	t.Parallel()
	const stall = 4 * time.Second // much more than a busy host needs for a byte
	s := serve(t, upload.Options{StallTimeout: stall})
	slow, stalled := s.create(5), s.create(20)
	began := time.Now()
	p, q := s.startPatch(slow, 0, 5), s.startPatch(stalled, 0, 20)
	io.WriteString(q.body, "abc")
	tick := time.NewTicker(stall / 2)
	defer tick.Stop()
	for i := range 5 {
		if _, err := p.body.Write([]byte{'a' + byte(i)}); err != nil {
			t.Fatalf("interrupted after %d bytes and %v: %v", i, time.Since(began), err)
		}
		<-tick.C
	}
	p.body.Close()
	if a := <-p.response; a.status != http.StatusNoContent {
		t.Errorf("the slow one got %d %s", a.status, a.body)
	}
	if took := time.Since(began); took < 2*stall {
		t.Fatalf("the client was not slow: %v", took)
	}
	if a, ok := <-q.response; ok && a.status != http.StatusRequestTimeout {
		t.Errorf("the stalled client got %d %s", a.status, a.body)
	}
	s.waitForOffset(stalled, 3) // nothing is lost
	s.checkFile(s.submissions.only(t), []byte("abcde"))
}

// A body that is not read must not keep the connection open.
func TestStallTimeout_ClosesRefusedConnections(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{StallTimeout: 200 * time.Millisecond})
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn,
		"PATCH /uploads/%s HTTP/1.1\r\nHost: x\r\nTus-Resumable: 1.0.0\r\nContent-Type: %s\r\nUpload-Offset: 0\r\n"+
			"Content-Length: 1000\r\n\r\nabc",
		strings.Repeat("A", 26), chunkType)
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	all, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(all), "HTTP/1.1 404") {
		t.Errorf("got %q, %v", all, err)
	}
}

func TestClose_InterruptsRequestsAndKeepsTheirData(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	url := s.create(6)
	p := s.startPatch(url, 0, 6)
	io.WriteString(p.body, "abc")
	s.waitForOffset(url, 3)
	if err := s.uploads.Close(); err != nil {
		t.Fatal(err)
	}
	if a, ok := <-p.response; ok && (a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "") {
		t.Errorf("who was sending got %d %v", a.status, a.header)
	}
	s.mustSend(http.StatusServiceUnavailable, "POST", "/uploads/", nil, "Upload-Length", "3")
	again := serve(t, upload.Options{Dir: s.dir})
	if got := again.mustSend(http.StatusOK, "HEAD", url, nil).offset(); got != 3 {
		t.Errorf("the offset is %d, want 3", got)
	}
}

func TestClose_WaitsForSubmissions(t *testing.T) {
	t.Parallel()
	entered, leave := make(chan struct{}), make(chan struct{})
	s := serve(t, upload.Options{OnComplete: func(ctx context.Context, u upload.Upload) (upload.Receipt, error) {
		close(entered)
		<-leave
		return upload.Receipt{Task: "task"}, ctx.Err()
	}})
	url := s.create(3)
	p := s.startPatch(url, 0, 3)
	io.WriteString(p.body, "abc")
	p.body.Close()
	<-entered
	closed := make(chan error, 1)
	go func() { closed <- s.uploads.Close() }()
	waittest.Until(t, "the store is closing", func() bool {
		a, err := s.send("HEAD", url, nil)
		return err == nil && a.status == http.StatusServiceUnavailable
	})
	select {
	case <-closed:
		t.Error("closed while a file was being handed over")
	default:
	}
	close(leave)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if a := <-p.response; a.status != http.StatusNoContent || a.header.Get("Cuelight-Task") != "task" {
		t.Errorf("got %d %v", a.status, a.header)
	}
}

func TestPost_EnforcesLimits(t *testing.T) {
	t.Parallel()
	t.Run("unfinished uploads of one principal", func(t *testing.T) {
		t.Parallel()
		s := serve(t, upload.Options{MaxUnfinished: 2})
		first := s.create(3, "As", "ann")
		s.create(3, "As", "ann")
		s.mustSend(http.StatusTooManyRequests, "POST", "/uploads/", nil, "Upload-Length", "3", "As", "ann")
		s.create(3, "As", "bob")
		s.mustPatch(http.StatusNoContent, first, 0, strings.NewReader("abc"), "As", "ann")
		s.create(3, "As", "ann")
	})
	t.Run("reserved bytes", func(t *testing.T) {
		t.Parallel()
		s := serve(t, upload.Options{MaxBytes: 10, MaxReserved: 15})
		first := s.create(10)
		s.mustSend(http.StatusServiceUnavailable, "POST", "/uploads/", nil, "Upload-Length", "9", "As", "bob")
		s.mustPatch(http.StatusNoContent, first, 0, strings.NewReader("abcd"))
		s.create(9, "As", "bob")
	})
	t.Run("disk space", func(t *testing.T) {
		t.Parallel()
		s := serve(t, upload.Options{MinFree: 1 << 60})
		s.mustSend(http.StatusInsufficientStorage, "POST", "/uploads/", nil, "Upload-Length", "1")
		s.mustSend(http.StatusInsufficientStorage, "PUT", "/uploads/a.mp4", strings.NewReader("a"), "Tus-Resumable", "")
		if left := s.entries(); len(left) > 0 {
			t.Errorf("remaining: %v", left)
		}
	})
	t.Run("reserved disk space", func(t *testing.T) {
		t.Parallel()
		const large = 1 << 50
		s := serve(t, upload.Options{MaxBytes: 1 << 60})
		s.mustSend(http.StatusInsufficientStorage, "POST", "/uploads/", nil, "Upload-Length", fmt.Sprint(int64(large)))
	})
}

func TestFileNames_AreNeverPaths(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	for name, want := range map[string]struct{ name, file string }{
		"../../etc/passwd":                   {"passwd", "source"},
		`C:\films\a.AVI`:                     {"a.AVI", "source.avi"},
		"/":                                  {"", "source"},
		"..":                                 {"", "source"},
		"a.mp4/":                             {"", "source"},
		"a.m/p4":                             {"p4", "source"},
		"-rf.mov":                            {"-rf.mov", "source.mov"},
		"state.json":                         {"state.json", "source.json"},
		"a.mp4\u202e4pm.exe":                 {"a.mp44pm.exe", "source.exe"},
		"a\nb\x1b[31m.ts":                    {"ab[31m.ts", "source.ts"},
		"film.$(reboot)":                     {"film.$(reboot)", "source"},
		"фильм 映画 🎬.mkv":                     {"фильм 映画 🎬.mkv", "source.mkv"},
		strings.Repeat("ü", 10_000) + ".mp4": {strings.Repeat("ü", 125) + ".mp4", "source.mp4"},
		"a." + strings.Repeat("x", 300):      {"a." + strings.Repeat("x", 253), "source"},
	} {
		s.submissions.mu.Lock()
		s.submissions.uploads = nil
		s.submissions.mu.Unlock()
		url := s.create(3, "Upload-Metadata", metadata("filename", name))
		s.mustPatch(http.StatusNoContent, url, 0, strings.NewReader("abc"))
		u := s.submissions.only(t)
		if u.Name != want.name || filepath.Base(u.Path) != want.file || u.Metadata["filename"] != name {
			t.Errorf("%.40q: name %q, path %s; want %q and %s", name, u.Name, u.Path, want.name, want.file)
		}
		if dir := filepath.Join(s.dir, "uploads", u.ID); filepath.Dir(u.Path) != dir {
			t.Errorf("%.40q: the file is at %s, not in %s", name, u.Path, dir)
		}
		s.checkFile(u, []byte("abc"))
	}
}

func TestHTTP2_BehavesTheSame(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{StallTimeout: 300 * time.Millisecond})
	s.Server = newHTTP2Server(t, s.Config.Handler)
	url := s.create(6)
	p := s.startPatch(url, 0, 6)
	io.WriteString(p.body, "abc")
	if a, ok := <-p.response; !ok || a.status != http.StatusRequestTimeout {
		t.Errorf("the stalled client got %d %s", a.status, a.body)
	}
	s.waitForOffset(url, 3)
	s.mustPatch(http.StatusNoContent, url, 3, strings.NewReader("def"))
	s.checkFile(s.submissions.only(t), []byte("abcdef"))
}

// newHTTP2Server starts a server with HTTP/2.
func newHTTP2Server(t *testing.T, h http.Handler) *httptest.Server {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("the protocol is %s", r.Proto)
		}
		h.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func TestHead_FindsAnUploadDuringItsCompletion(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	for range 30 {
		url := s.create(1)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for seen := int64(0); seen == 0; {
					a, err := s.send("HEAD", url, nil)
					if err != nil || a.status != http.StatusOK {
						t.Errorf("HEAD: %d %v", a.status, err)
						return
					}
					seen = a.offset()
				}
			})
		}
		s.mustPatch(http.StatusNoContent, url, 0, strings.NewReader("x"))
		wg.Wait()
	}
}
