package fetch

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func serveOn(t *testing.T, addr string, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skipf("this host has no %s: %v", addr, err)
	}
	s := httptest.NewUnstartedServer(h)
	s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// serveFile serves a file with a validator.
func serveFile(content []byte, etag string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", etag)
		http.ServeContent(w, r, "f.mp4", time.Time{}, bytes.NewReader(content))
	}
}

// firstThen answers the first request with first, and all others with then.
func firstThen(first, then http.HandlerFunc) http.HandlerFunc {
	var requests atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) > 1 {
			then(w, r)
			return
		}
		first(w, r)
	}
}

// sendPart announces the whole content and sends its first n bytes.
func sendPart(w http.ResponseWriter, content []byte, n int) {
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	w.Write(content[:n])
	w.(http.Flusher).Flush()
}

// breakOff closes the connection of a request.
func breakOff() { panic(http.ErrAbortHandler) }

// sendSlowly sends n pieces, one every few milliseconds; endlessly if n is negative.
func sendSlowly(w http.ResponseWriter, r *http.Request, piece []byte, n int) {
	for i := 0; i != n && r.Context().Err() == nil; i++ {
		w.Write(piece)
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-time.After(10 * time.Millisecond): // a slow server
		}
	}
}

func sha256Hex(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// firstProgress makes the options record the first reported number of bytes.
func firstProgress(o *Options) *int64 {
	first := int64(-1)
	o.Progress = func(done, _ int64) {
		if first < 0 {
			first = done
		}
	}
	return &first
}
