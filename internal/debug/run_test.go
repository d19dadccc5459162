package debug_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/debug"
)

// running is a server that was started, and the function that ends it.
func running(t *testing.T, addr string) (at net.Addr, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		ended <- debug.Run(ctx, debug.Options{Addr: addr, Ready: func(a net.Addr) { ready <- a }})
	}()
	over := false
	end = func() {
		t.Helper()
		if cancel(); over {
			return
		}
		over = true
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v", err)
		}
	}
	t.Cleanup(end)
	select {
	case at = <-ready:
	case err := <-ended:
		over = true
		t.Fatal(err)
	}
	return at, end
}

// ask is an answer's code and the beginning of its text.
func ask(t *testing.T, at net.Addr, r *http.Request) (int, string) {
	t.Helper()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, at.Network(), at.String())
	}}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text[:min(len(text), 4000)])
}

func get(t *testing.T, address string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRun_ServesProfilesOnLoopback(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"127.0.0.1:0", "localhost:0"} {
		at, end := running(t, addr)
		for path, want := range map[string]string{
			"/debug/pprof/": "goroutine", "/debug/pprof/goroutine?debug=2": "goroutine", "/debug/pprof/heap": "",
			"/debug/pprof/profile?seconds=1": "", "/debug/pprof/trace?seconds=0.01": "", "/debug/pprof/symbol": "num_symbols",
		} {
			code, text := ask(t, at, get(t, "http://"+at.String()+path))
			if code != http.StatusOK || !strings.Contains(text, want) {
				t.Errorf("%s: %d %q", path, code, text)
			}
		}
		// Its arguments may hold a password.
		for _, path := range []string{"/debug/pprof/cmdline", "/debug/vars", "/"} {
			if code, _ := ask(t, at, get(t, "http://"+at.String()+path)); code != http.StatusNotFound {
				t.Errorf("%s: %d", path, code)
			}
		}
		end()
		if c, err := net.DialTimeout(at.Network(), at.String(), time.Second); err == nil {
			t.Error("it is still there", c.Close())
		}
	}
}

func TestRun_RejectsAddressesThatOthersCanReach(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{
		":0", "0.0.0.0:0", "[::]:0", "192.0.2.1:6060", "example.com:6060", "localhost.example.com:0",
		"127.0.0.1.example.com:0", "*:0",
	} {
		err := debug.Run(t.Context(), debug.Options{
			Addr: addr, Ready: func(at net.Addr) { t.Errorf("%s: it listens at %s", addr, at) },
		})
		if !errors.Is(err, debug.ErrNotLocal) {
			t.Errorf("%s: got %v", addr, err)
		}
	}
	for _, addr := range []string{"", "6060", "unix:", "127.0.0.1", "/no/such/directory/debug.sock"} {
		if err := debug.Run(t.Context(), debug.Options{Addr: addr}); err == nil {
			t.Errorf("%q: no error", addr)
		}
	}
}

func TestRun_RejectsRequestsOfBrowserPages(t *testing.T) {
	t.Parallel()
	at, _ := running(t, "127.0.0.1:0")
	for _, tt := range []struct {
		host, site string
		code       int
	}{
		{"", "", http.StatusOK},
		{"localhost", "none", http.StatusOK},
		{"[::1]:6060", "same-origin", http.StatusOK},
		{"", "cross-site", http.StatusForbidden},
		{"", "same-site", http.StatusForbidden},
		{"rebound.example.com", "", http.StatusForbidden},
		{"rebound.example.com:6060", "same-origin", http.StatusForbidden},
		{"127.0.0.1.example.com", "", http.StatusForbidden},
	} {
		r := get(t, "http://"+at.String()+"/debug/pprof/goroutine?debug=1")
		r.Host = tt.host
		if tt.site != "" {
			r.Header.Set("Sec-Fetch-Site", tt.site)
		}
		if code, text := ask(t, at, r); code != tt.code || code != http.StatusOK && strings.Contains(text, "goroutine") {
			t.Errorf("host %q, site %q: %d %q", tt.host, tt.site, code, text)
		}
	}
}

// sockets have short paths.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "dbg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestRun_SocketIsPrivateAndRemoved(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	path := filepath.Join(dir, "debug.sock")
	at, end := running(t, path)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || info.Mode().Type() != fs.ModeSocket {
		t.Fatalf("%v, %v", info, err)
	}
	if code, text := ask(t, at, get(t, "http://localhost/debug/pprof/")); code != http.StatusOK {
		t.Errorf("%d %q", code, text)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("next to the socket: %v, %v", names, err)
	}
	err = debug.Run(t.Context(), debug.Options{Addr: "unix:" + path})
	if err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a second one: %v", err)
	}
	end()
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}

func TestRun_ReplacesOnlyAStaleSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "debug.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, end := running(t, path)
	// What has taken its place meanwhile stays.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	end()
	if err := debug.Run(t.Context(), debug.Options{Addr: path}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("in the place of a file: %v", err)
	}
	if text, err := os.ReadFile(path); string(text) != "mine" {
		t.Errorf("the file: %q, %v", text, err)
	}
}

// Not parallel: a process is traced once at a time.
func TestRun_EndsDuringAProfile(t *testing.T) {
	at, end := running(t, "127.0.0.1:0")
	answered := make(chan int, 1)
	begun := make(chan struct{})
	r := get(t, "http://"+at.String()+"/debug/pprof/trace?seconds=60")
	go func() {
		defer close(answered)
		c, err := net.Dial(at.Network(), at.String())
		if err != nil {
			t.Error(err)
			close(begun)
			return
		}
		defer c.Close()
		_ = r.Write(c)
		buffer := make([]byte, 1)
		_, _ = c.Read(buffer) // the first of the answer
		close(begun)
		_, _ = io.Copy(io.Discard, c)
	}()
	<-begun
	began := time.Now()
	end()
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("it took %s", took)
	}
	<-answered
}
