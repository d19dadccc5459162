package upload_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/cuelight/cuelight/internal/upload"
)

const benchBytes = 64 << 20

// BenchmarkUpload is to be compared with BenchmarkCopy, which does the minimum: io.Copy
// into a file, and a sync.
func BenchmarkUpload(b *testing.B) {
	k := &submissions{}
	u, err := upload.New(upload.Options{
		Dir: b.TempDir(), MinFree: -1, OnComplete: k.onComplete,
		SourceState: func(context.Context, upload.Upload) (upload.SourceState, error) { return upload.SourceCopied, nil },
	})
	if err != nil {
		b.Fatal(err)
	}
	s := httptest.NewServer(u)
	defer s.Close()
	size := strconv.Itoa(benchBytes)
	b.SetBytes(benchBytes)
	for b.Loop() {
		post(b, s, "POST", "/uploads/", benchBytes, http.StatusCreated, "Tus-Resumable", "1.0.0", "Upload-Length", size,
			"Content-Type", chunkType)
		if _, err := u.CleanUp(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCopy(b *testing.B) {
	file := filepath.Join(b.TempDir(), "file")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, err := os.Create(file)
		if err == nil {
			_, err = io.Copy(f, r.Body)
		}
		if err == nil {
			err = f.Sync()
		}
		f.Close()
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer s.Close()
	b.SetBytes(benchBytes)
	for b.Loop() {
		post(b, s, "POST", "/", benchBytes, http.StatusOK)
		os.Remove(file)
	}
}

func post(b *testing.B, s *httptest.Server, method, path string, size int64, want int, headers ...string) {
	req, err := http.NewRequestWithContext(b.Context(), method, s.URL+path, io.LimitReader(zeroReader{}, size))
	if err != nil {
		b.Fatal(err)
	}
	req.ContentLength = size
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := s.Client().Do(req)
	if err != nil {
		b.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != want {
		b.Fatalf("got %s, %v", res.Status, err)
	}
}
