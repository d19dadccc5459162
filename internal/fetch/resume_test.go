package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestFetch_ResumesABrokenDownload(t *testing.T) {
	t.Parallel()
	content := make([]byte, 3<<20)
	for i := range content {
		content[i] = byte(i >> 8)
	}
	var ranges []string
	answer := firstThen(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		sendPart(w, content, 1<<20)
		breakOff()
	}, serveFile(content, `"v1"`))
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		ranges = append(ranges, r.Header.Get("Range")+"|"+r.Header.Get("If-Range"))
		answer(w, r)
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
			s := serve(t, firstThen(func(w http.ResponseWriter, _ *http.Request) {
				maps.Copy(w.Header(), c.header)
				sendPart(w, old, 300_000)
				breakOff()
			}, c.next))
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
	s := serve(t, firstThen(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		sendPart(w, content, 1<<20)
		close(halfSent)
		<-resume
		w.Write(content[1<<20:])
	}, serveFile(content, `"v1"`)))
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

func TestFetch_EndsAndResumesASlowDownload(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("x"), 300_000)
	s := serve(t, firstThen(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		sendPart(w, content, 200_000)
		sendSlowly(w, r, content[:1], -1)
	}, serveFile(content, `"v1"`)))
	dir := t.TempDir()
	o := Options{Allow: loopback, Partial: dir + "/part", IdleTimeout: 250 * time.Millisecond, Timeout: 20 * time.Second}
	_, err := Fetch(t.Context(), s.URL, dir+"/out", o)
	var e *Error
	if !errors.As(err, &e) || e.Permanent || !strings.Contains(err.Error(), "the server is too slow") {
		t.Fatalf("got %v", err)
	}
	first := firstProgress(&o)
	if _, err := Fetch(t.Context(), s.URL, dir+"/out", o); err != nil || readFile(t, dir+"/out") != string(content) {
		t.Fatalf("got %v", err)
	}
	if *first <= 200_000 {
		t.Errorf("the second download began at %d", *first)
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

func TestFetch_KeepsThePartialFileOfACancelledDownload(t *testing.T) {
	t.Parallel()
	content := bytes.Repeat([]byte("x"), 2<<20)
	s := serve(t, firstThen(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		sendPart(w, content, 1<<20)
		<-r.Context().Done()
	}, serveFile(content, `"v1"`)))
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
	first := firstProgress(&o)
	if _, err := Fetch(t.Context(), s.URL, dir+"/out", o); err != nil || readFile(t, dir+"/out") != string(content) {
		t.Fatalf("got %v", err)
	}
	if *first <= 512<<10 {
		t.Errorf("the second download began at %d", *first)
	}
}
