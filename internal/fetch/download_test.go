package fetch

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestFetch_DownloadsAWholeFile(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("video "), 300_000)
	s := serve(t, serveFile(content, `"v1"`))
	dir := t.TempDir()
	var seen, total int64
	f, err := Fetch(t.Context(), s.URL+"/a%20film.mp4?token=secret", dir+"/out", Options{
		Allow: loopback, Partial: dir + "/part", Progress: func(d, n int64) { seen, total = d, n },
	})
	if err != nil {
		t.Fatal(err)
	}
	want := File{Name: "a film.mp4", Bytes: int64(len(content)), SHA256: sha256Hex(content), Method: Download}
	if f != want || readFile(t, dir+"/out") != string(content) {
		t.Errorf("got %+v, want %+v", f, want)
	}
	if seen != want.Bytes || total != want.Bytes {
		t.Errorf("progress ended at %d of %d", seen, total)
	}
	if left := list(t, dir); len(left) != 1 {
		t.Errorf("left behind: %q", left)
	}
}

func TestFetch_ClassifiesResponses(t *testing.T) {
	t.Parallel()
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(code) }
	}
	for name, c := range map[string]struct {
		h         http.HandlerFunc
		permanent bool
		want      string
		after     time.Duration
	}{
		"400": {h: status(400), permanent: true, want: "400 Bad Request"},
		"401": {h: status(401), permanent: true, want: "401"},
		"403": {h: status(403), permanent: true, want: "403"},
		"404": {h: status(404), permanent: true, want: "404 Not Found"},
		"410": {h: status(410), permanent: true, want: "410"},
		"408": {h: status(408), want: "408"},
		"425": {h: status(425), want: "425"},
		"429": {h: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "17")
			w.WriteHeader(429)
		}, want: "429", after: 17 * time.Second},
		"500": {h: status(500), want: "500"},
		"501": {h: status(501), permanent: true, want: "501"},
		"503": {h: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "999999999")
			w.WriteHeader(503)
		}, want: "503", after: 24 * time.Hour},
		"304":   {h: status(304), permanent: true, want: "304"},
		"204":   {h: status(204), permanent: true, want: "204"},
		"empty": {h: status(200), permanent: true, want: "empty"},
		"web page": {h: func(w http.ResponseWriter, r *http.Request) {
			w.Write([]byte("<!doctype html><title>Sign in</title>"))
		}, permanent: true, want: "web page"},
		"compressed": {h: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Write([]byte("xxx"))
		}, permanent: true, want: "gzip"},
		"announced too large": {h: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "5000")
			w.Write([]byte("x"))
		}, permanent: true, want: "larger than the limit of 1.0 KiB"},
		"too large without Content-Length": {h: func(w http.ResponseWriter, r *http.Request) {
			for range 100 {
				w.Write(bytes.Repeat([]byte("x"), 100))
				w.(http.Flusher).Flush()
			}
		}, permanent: true, want: "larger than the limit"},
		"shorter than announced": {h: func(w http.ResponseWriter, r *http.Request) {
			sendPart(w, make([]byte, 500), 100)
			breakOff()
		}, want: "unexpected EOF"},
		"chunks that stop": {h: func(w http.ResponseWriter, r *http.Request) {
			w.Write([]byte("xxxx"))
			w.(http.Flusher).Flush()
			breakOff()
		}, want: "unexpected EOF"},
		"no HTTP": {h: func(w http.ResponseWriter, r *http.Request) {
			c, _, _ := w.(http.Hijacker).Hijack()
			c.Write([]byte("SSH-2.0-x\r\n"))
			c.Close()
		}, want: "malformed"},
		"silence after a byte": {h: func(w http.ResponseWriter, r *http.Request) {
			sendPart(w, make([]byte, 500), 1)
			<-r.Context().Done()
		}, want: "too slow: 1 B in 200ms"},
		"silence after the header": {h: func(w http.ResponseWriter, r *http.Request) {
			sendPart(w, make([]byte, 500), 0)
			<-r.Context().Done()
		}, want: "the server sent nothing for 200ms"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, c.h)
			dir := t.TempDir()
			url := strings.Replace(s.URL, "//", "//user:secret@", 1) + "/v?secret=secret#secret"
			_, err := Fetch(t.Context(), url, dir+"/out", Options{
				Allow: loopback, MaxBytes: 1024, IdleTimeout: 200 * time.Millisecond, Partial: dir + "/part",
			})
			var e *Error
			if !errors.As(err, &e) || e.Permanent != c.permanent || e.RetryAfter != c.after ||
				!strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %+v, want permanent %v, after %v, %q", err, c.permanent, c.after, c.want)
			}
			if strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), s.URL+"/v") {
				t.Errorf("the error has a secret, or no URL: %v", err)
			}
			if left := list(t, dir); len(left) != 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}

func TestFetch_EndsADownloadAtItsTimeout(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { sendSlowly(w, r, []byte("x"), -1) })
	_, err := Fetch(t.Context(), s.URL, t.TempDir()+"/out", Options{Allow: loopback, Timeout: 150 * time.Millisecond})
	var e *Error
	if !errors.As(err, &e) || e.Permanent || !errors.Is(err, errTimeout) {
		t.Fatalf("got %v", err)
	}
}

func TestFetch_KeepsTheReserveFreeForADownload(t *testing.T) {
	t.Parallel()
	s := serve(t, serveFile(make([]byte, 100), `"v1"`))
	dir := t.TempDir()
	_, err := Fetch(t.Context(), s.URL, dir+"/out", Options{Allow: loopback, Reserve: 1 << 60})
	var e *Error
	if !errors.As(err, &e) || e.Permanent || !errors.Is(err, syscall.ENOSPC) ||
		!strings.Contains(err.Error(), fmt.Sprintf("not enough disk space for %q: 100 B needed", dir)) {
		t.Fatalf("got %v", err)
	}
}

func TestRetryAfter_AcceptsSecondsAndDates(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for in, want := range map[string]time.Duration{
		"": 0, "junk": 0, "-1": 0, "90": 90 * time.Second, "99999999999": 0,
		now.Add(time.Hour).Format(http.TimeFormat):        time.Hour,
		now.Add(-time.Hour).Format(http.TimeFormat):       0,
		now.Add(1000 * time.Hour).Format(http.TimeFormat): 24 * time.Hour,
	} {
		if got := retryAfter(http.Header{"Retry-After": {in}}, now); got != want {
			t.Errorf("%q: got %v, want %v", in, got, want)
		}
	}
}
