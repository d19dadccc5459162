package fetch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
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

// serveFile serves a file with a validator.
func serveFile(content []byte, etag string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", etag)
		http.ServeContent(w, r, "f.mp4", time.Time{}, bytes.NewReader(content))
	}
}

// sendPart announces the whole content, sends the first n bytes, and closes the
// connection.
func sendPart(w http.ResponseWriter, content []byte, n int) {
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	w.Write(content[:n])
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

func sha256Hex(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

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

func TestFetch_ResumesABrokenDownload(t *testing.T) {
	t.Parallel()
	content := make([]byte, 3<<20)
	for i := range content {
		content[i] = byte(i >> 8)
	}
	var ranges []string
	full := serveFile(content, `"v1"`)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		ranges = append(ranges, r.Header.Get("Range")+"|"+r.Header.Get("If-Range"))
		if len(ranges) == 1 {
			w.Header().Set("ETag", `"v1"`)
			sendPart(w, content, 1<<20)
		}
		full(w, r)
	})
	dir := t.TempDir()
	o := Options{Allow: loopback, Partial: dir + "/part"}
	_, err := Fetch(t.Context(), s.URL, dir+"/first", o)
	var e *Error
	if !errors.As(err, &e) || e.Permanent {
		t.Fatalf("got %v", err)
	}
	if _, err := os.Stat(dir + "/first"); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("a partial file has the final name: %v", err)
	}
	f, err := Fetch(t.Context(), s.URL, dir+"/second", o)
	if err != nil || f.SHA256 != sha256Hex(content) || readFile(t, dir+"/second") != string(content) {
		t.Fatalf("got %+v, %v", f, err)
	}
	if len(ranges) != 2 || !strings.HasPrefix(ranges[1], "bytes=") || ranges[1] == "bytes=0-|" ||
		!strings.HasSuffix(ranges[1], `|"v1"`) {
		t.Errorf("requests: %q", ranges)
	}
	if left := list(t, dir); len(left) != 1 {
		t.Errorf("left behind: %q", left)
	}
}

func TestFetch_RestartsADownloadThatCannotBeResumed(t *testing.T) {
	t.Parallel()
	old, fresh := bytes.Repeat([]byte("old"), 1<<18), bytes.Repeat([]byte("new"), 1<<18)
	// It ignores If-Range.
	ignoresIfRange := func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("If-Range")
		serveFile(fresh, "")(w, r)
	}
	for name, c := range map[string]struct {
		header   http.Header      // of the first response, which breaks off
		next     http.HandlerFunc // answers the second call
		source   string           // appended to the URL of the second call
		failures int              // of further calls before one succeeds
	}{
		"changed on the server": {header: http.Header{"Etag": {`"v1"`}}, next: serveFile(fresh, `"v2"`)},
		"weak validator":        {header: http.Header{"Etag": {`W/"v1"`}}, next: ignoresIfRange},
		"no validator":          {header: http.Header{}, next: ignoresIfRange},
		"date within the same minute": {
			header: http.Header{"Last-Modified": {time.Now().UTC().Format(http.TimeFormat)}}, next: ignoresIfRange,
		},
		"another source": {header: http.Header{"Etag": {`"v1"`}}, next: ignoresIfRange, source: "?other"},
		"server ignores ranges": {header: http.Header{"Etag": {`"v1"`}}, next: func(w http.ResponseWriter, r *http.Request) {
			w.Write(fresh)
		}},
		"range beyond the end": {header: http.Header{"Etag": {`"v1"`}}, next: func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Range") != "" {
				w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
				return
			}
			w.Write(fresh)
		}},
		"another range than requested": {
			header: http.Header{"Etag": {`"v1"`}}, failures: 1, next: func(w http.ResponseWriter, r *http.Request) {
				part := fresh
				if rg := r.Header.Get("Range"); rg != "" {
					from, _ := strconv.Atoi(strings.Trim(rg, "bytes=-"))
					part = fresh[:len(fresh)-from]
					w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", len(part)-1, len(fresh)))
					w.WriteHeader(http.StatusPartialContent)
				}
				w.Write(part)
			},
		},
		"part of a shorter file": {
			header: http.Header{"Etag": {`"v1"`}}, failures: 1, next: func(w http.ResponseWriter, r *http.Request) {
				short := fresh[:400_000]
				if rg := r.Header.Get("Range"); rg != "" {
					from, _ := strconv.Atoi(strings.Trim(rg, "bytes=-"))
					from = min(from, len(short)-1)
					w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(short)-1, len(short)))
					w.WriteHeader(http.StatusPartialContent)
					w.Write(short[from:])
					return
				}
				w.Write(fresh)
			},
		},
		"part of a longer file": {
			header: http.Header{"Etag": {`"v1"`}}, failures: 1, next: func(w http.ResponseWriter, r *http.Request) {
				if rg := r.Header.Get("Range"); rg != "" {
					from, _ := strconv.Atoi(strings.Trim(rg, "bytes=-"))
					w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(fresh), len(fresh)+1))
					w.WriteHeader(http.StatusPartialContent)
					w.Write(fresh[from:])
				}
				w.Write(fresh)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int32
			s := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if calls.Add(1) > 1 {
					c.next(w, r)
					return
				}
				for k, v := range c.header {
					w.Header()[k] = v
				}
				sendPart(w, old, 300_000)
			})
			dir := t.TempDir()
			o := Options{Allow: loopback, Partial: dir + "/part"}
			url := s.URL
			for range 1 + c.failures {
				_, err := Fetch(t.Context(), url, dir+"/out", o)
				var e *Error
				if !errors.As(err, &e) || e.Permanent {
					t.Fatalf("got %v", err)
				}
				url = s.URL + c.source
			}
			f, err := Fetch(t.Context(), url, dir+"/out", o)
			if err != nil || readFile(t, dir+"/out") != string(fresh) || f.SHA256 != sha256Hex(fresh) {
				t.Fatalf("got %+v, %v", f, err)
			}
		})
	}
}

func TestFetch_RequestsOneByteOfACompletePartialFile(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("x"), 1000)
	var last string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		last = r.Header.Get("Range")
		serveFile(content, `"v1"`)(w, r)
	})
	dir := t.TempDir()
	o := Options{Allow: loopback, Partial: dir + "/part"}
	// The destination's directory does not exist, so only the last step fails.
	if _, err := Fetch(t.Context(), s.URL, dir+"/gone/out", o); err == nil {
		t.Fatal("no error")
	}
	if _, err := Fetch(t.Context(), s.URL, dir+"/out", o); err != nil || last != "bytes=999-" {
		t.Fatalf("got %v, range %q", err, last)
	}
	if readFile(t, dir+"/out") != string(content) {
		t.Error("the content differs")
	}
}

func TestFetch_NeverSharesAPartialFile(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("x"), 2<<20)
	halfSent, resume := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) > 1 {
			serveFile(content, `"v1"`)(w, r)
			return
		}
		w.Header().Set("ETag", `"v1"`)
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		w.Write(content[:1<<20])
		w.(http.Flusher).Flush()
		close(halfSent)
		<-resume
		w.Write(content[1<<20:])
	})
	dir := t.TempDir()
	o := Options{Allow: loopback, Partial: dir + "/part"}
	slow := make(chan error, 1)
	go func() {
		_, err := Fetch(context.Background(), s.URL, dir+"/slow", o)
		slow <- err
	}()
	<-halfSent
	_, err := Fetch(t.Context(), s.URL, dir+"/fast", o)
	close(resume)
	if err != nil || readFile(t, dir+"/fast") != string(content) {
		t.Errorf("second download: %v", err)
	}
	if err := <-slow; err != nil || readFile(t, dir+"/slow") != string(content) {
		t.Errorf("first download: %v", err)
	}
	if left := list(t, dir); len(left) != 2 {
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
		}, want: "unexpected EOF"},
		"chunks that stop": {h: func(w http.ResponseWriter, r *http.Request) {
			w.Write([]byte("xxxx"))
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, want: "unexpected EOF"},
		"no HTTP": {h: func(w http.ResponseWriter, r *http.Request) {
			c, _, _ := w.(http.Hijacker).Hijack()
			c.Write([]byte("SSH-2.0-x\r\n"))
			c.Close()
		}, want: "malformed"},
		"silence after a byte": {h: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "500")
			w.Write([]byte("x"))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, want: "too slow: 1 B in 200ms"},
		"silence after the header": {h: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "500")
			w.(http.Flusher).Flush()
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
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			w.Write([]byte("x"))
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	_, err := Fetch(t.Context(), s.URL, t.TempDir()+"/out", Options{Allow: loopback, Timeout: 150 * time.Millisecond})
	var e *Error
	if !errors.As(err, &e) || e.Permanent || !errors.Is(err, errTimeout) {
		t.Fatalf("got %v", err)
	}
}

func TestFetch_KeepsThePartialFileOfACancelledDownload(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("x"), 2<<20)
	var calls atomic.Int32
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) > 1 {
			serveFile(content, `"v1"`)(w, r)
			return
		}
		w.Header().Set("ETag", `"v1"`)
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		w.Write(content[:1<<20])
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	o := Options{Allow: loopback, Partial: dir + "/part", Progress: func(done, _ int64) {
		if done >= 512<<10 {
			cancel()
		}
	}}
	if _, err := Fetch(ctx, s.URL, dir+"/out", o); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	first := int64(-1)
	o.Progress = func(done, _ int64) {
		if first < 0 {
			first = done
		}
	}
	if _, err := Fetch(t.Context(), s.URL, dir+"/out", o); err != nil || readFile(t, dir+"/out") != string(content) {
		t.Fatalf("got %v", err)
	}
	if first <= 512<<10 {
		t.Errorf("the second download began at %d", first)
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
