package conformance

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/problem"
)

// inputServer serves inputs at addresses of another host and port than the coordinator's, as a storage
// service does.
type inputServer struct {
	server  http.Server
	serving sync.WaitGroup
	address string // host and port

	mu        sync.Mutex // guards the rest
	inputs    map[string][]byte
	isExpired bool // the addresses are not valid any more
	hadKey    bool // a request had the header Authorization
}

func startInputServer(ctx context.Context) (*inputServer, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &inputServer{address: l.Addr().String(), inputs: make(map[string][]byte)}
	s.server = http.Server{Handler: s, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	s.serving.Go(func() { _ = s.server.Serve(l) }) // until close
	return s, nil
}

func (s *inputServer) close() {
	_ = s.server.Close() // of what the worker keeps open
	s.serving.Wait()
}

// add returns the address of a file.
func (s *inputServer) add(content []byte) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := "/" + rand.Text()
	s.inputs[path] = content
	return "http://" + s.address + path
}

func (s *inputServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	content, known := s.inputs[r.URL.Path]
	known = known && !s.isExpired
	s.hadKey = s.hadKey || r.Header.Get("Authorization") != ""
	s.mu.Unlock()
	if !known {
		problem.New(problem.Forbidden, "the address is not valid any more").Write(w, r)
		return
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

func (s *inputServer) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isExpired = true
}

func (s *inputServer) gotKey() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hadKey
}

// The coordinator redirects to an address of the input, which is valid for the first task only. A worker
// may ask for the bytes instead.
func checkRedirect(ctx context.Context, k *kit) error {
	server, err := startInputServer(ctx)
	if err != nil {
		return err
	}
	defer server.close()
	k.files.redirectTo(server)
	defer k.files.redirectTo(nil)
	if err := k.awaitWaiting(ctx); err != nil {
		return err
	}
	for range 2 {
		task, err := k.submitTask(ctx, params{Bytes: largeFile})
		if err == nil {
			err = k.awaitCompleted(ctx, task, longTime)
		}
		if err == nil {
			err = k.expectAttempts(ctx, task, 1)
		}
		if err == nil && server.gotKey() {
			err = errors.New("expected: the key is sent to the coordinator only; but a request to the address of a redirect " +
				"had the header Authorization")
		}
		if err != nil {
			return err
		}
		server.expire()
	}
	return nil
}
