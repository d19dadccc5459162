package fetch

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

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

func TestFetch_EndsAndResumesASlowDownload(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("x"), 300_000)
	var calls atomic.Int32
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) > 1 {
			serveFile(content, `"v1"`)(w, r)
			return
		}
		w.Header().Set("ETag", `"v1"`)
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		w.Write(content[:200_000])
		sendSlowly(w, r, content[:1], -1)
	})
	dir := t.TempDir()
	first := int64(-1)
	o := Options{Allow: loopback, Partial: dir + "/part", IdleTimeout: 250 * time.Millisecond, Timeout: 20 * time.Second}
	_, err := Fetch(t.Context(), s.URL, dir+"/out", o)
	var e *Error
	if !errors.As(err, &e) || e.Permanent || !strings.Contains(err.Error(), "the server is too slow") {
		t.Fatalf("got %v", err)
	}
	o.Progress = func(done, _ int64) {
		if first < 0 {
			first = done
		}
	}
	if _, err := Fetch(t.Context(), s.URL, dir+"/out", o); err != nil || readFile(t, dir+"/out") != string(content) {
		t.Fatalf("got %v", err)
	}
	if first <= 200_000 {
		t.Errorf("the second download began at %d", first)
	}
}

func TestFetch_CompletesADownloadAboveTheMinimumRate(t *testing.T) {
	t.Parallel()
	for name, minBytes := range map[string]int64{"with a minimum": 1000, "without a minimum": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, func(w http.ResponseWriter, r *http.Request) { sendSlowly(w, r, make([]byte, 200), 100) })
			// It takes at least 990 ms, several times the idle timeout.
			_, err := Fetch(t.Context(), s.URL, t.TempDir()+"/out", Options{
				Allow: loopback, IdleTimeout: 300 * time.Millisecond, MinBytes: minBytes,
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}
