package media

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/media/sandbox"
)

// Input is the content of a source that is not a file on this host.
type Input interface {
	// Size is in bytes.
	Size() int64
	// ReadAt is that of io.ReaderAt, until ctx ends. It may be called concurrently.
	ReadAt(ctx context.Context, p []byte, offset int64) (int, error)
}

// ServedSource is a source that children read by ranges through this process.
type ServedSource struct {
	Path  string // the path by which methods of Tools get it; there is no such file
	Input Input
}

// The errors of reading Tools.Source.
var (
	// ErrInput means that its Input returned an error.
	ErrInput = errors.New("read source")
	// ErrInputStalled means that a child was killed while it waited for it.
	ErrInputStalled = errors.New("the source does not arrive")
)

// CheckServe returns an error if confined children cannot read Tools.Source on this host.
func (t Tools) CheckServe() error {
	if t.servesOnTCP() {
		return nil
	}
	return sandbox.CheckSockets()
}

// servesOnTCP reports whether children may connect to the loopback address of this host. Otherwise
// they have no network, and their sockets lead to this process.
func (t Tools) servesOnTCP() bool { return t.Sandbox == SandboxOff || runtime.GOOS != "linux" }

// inputServer serves Tools.Source to one child.
type inputServer struct {
	input    Input
	path     string // of the URL; nobody else can guess it
	server   *http.Server
	running  sync.WaitGroup // the server
	handling sync.WaitGroup // its requests

	mu        sync.Mutex    // guards the rest
	abandoned time.Duration // how long the longest read took whose request ended before it
	err       error         // the first error of a read
}

var plainExtension = regexp.MustCompile(`^\.[A-Za-z0-9]{1,8}$`)

// serveInput makes a command read Tools.Source from this process, until close is called. The only
// address that the command may open for it is that of the returned server.
func (t Tools) serveInput(cmd *exec.Cmd, p *sandbox.Policy) (s *inputServer, address string, err error) {
	var listener net.Listener
	if t.servesOnTCP() {
		listener, err = net.Listen("tcp", "127.0.0.1:0")
	} else {
		listener, err = p.Sockets(cmd)
	}
	if err != nil {
		return nil, "", fmt.Errorf("serve source: %w", err)
	}
	ext := filepath.Ext(t.Source.Path)
	if !plainExtension.MatchString(ext) {
		ext = ""
	}
	s = &inputServer{input: t.Source.Input, path: "/" + rand.Text() + "/source" + ext}
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	s.running.Go(func() { _ = s.server.Serve(listener) })
	address = "http://" + listener.Addr().String() + s.path
	for i, arg := range cmd.Args {
		if arg != "file:"+t.Source.Path {
			continue
		}
		cmd.Args[i] = address
		for j := i - 1; j > 0; j-- {
			if cmd.Args[j-1] == "-protocol_whitelist" {
				cmd.Args[j] = "http,tcp"
				break
			}
		}
	}
	return s, address, nil
}

// close ends the server and its requests.
func (s *inputServer) close() {
	s.server.Close()
	s.running.Wait()
	s.handling.Wait()
}

// ServeHTTP answers requests for ranges.
func (s *inputServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.handling.Add(1)
	defer s.handling.Done()
	if r.URL.Path != s.path || !slices.Contains([]string{http.MethodGet, http.MethodHead}, r.Method) {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream") // otherwise it is guessed from the content
	content := io.NewSectionReader(&inputReader{s, r.Context()}, 0, s.input.Size())
	http.ServeContent(w, r, "", time.Time{}, content)
}

// inputReader reads for one request.
type inputReader struct {
	s   *inputServer
	ctx context.Context
}

// ReadAt reads from the input, and records its error.
func (r *inputReader) ReadAt(p []byte, offset int64) (int, error) {
	began := time.Now()
	n, err := r.s.input.ReadAt(r.ctx, p, offset)
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	switch {
	case r.ctx.Err() != nil:
		r.s.abandoned = max(r.s.abandoned, time.Since(began))
	case err != nil && err != io.EOF && r.s.err == nil:
		r.s.err = err
	}
	return n, err
}

// failure is why a child could not read the source; cause is why it was killed, or nil, and stall is
// Tools.Stall. A child that cannot read on may take that for the end of the source, and succeed.
func (s *inputServer) failure(cause error, stall time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return fmt.Errorf("%w: %w", ErrInput, s.err)
	case errors.Is(cause, ErrStalled) && s.abandoned > stall/2:
		return fmt.Errorf("%w for %v", ErrInputStalled, s.abandoned.Round(time.Second))
	}
	return cause
}
