package storage_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/internal/storage/s3test"
)

func TestOpen_ReadsAnyRange(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{})
	proxy := s3test.NewProxy(t, s)
	b := open(t, "s3://"+bucketName, with(s.Env(), "AWS_ENDPOINT_URL", proxy.Endpoint), storage.Options{})
	files := tree{"large.mp4": 18*mib + 5, "small.m3u8": 300, "empty.m4s": 0}
	dir := files.write(t)
	if _, err := b.PutArtifact(t.Context(), "a", dir, nil); err != nil {
		t.Fatal(err)
	}
	for name, size := range files {
		want, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, from := range []int64{0, 1, 200, 256<<10 - 1, 256 << 10, 5 * mib, size - 7, size} {
			if from < 0 || from > size {
				continue
			}
			o, err := b.Open(t.Context(), "a/"+name)
			if err != nil {
				t.Fatal(err)
			}
			if end, err := o.Seek(0, io.SeekEnd); err != nil || end != size || o.Size != size || o.ETag == "" || o.Modified.IsZero() {
				t.Errorf("%s: size %d, %v: %+v", name, end, err, o)
			}
			if _, err := o.Seek(from, io.SeekStart); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(o); err != nil || !bytes.Equal(got, want[from:]) {
				t.Errorf("%s from %d: %d bytes of %d, %v", name, from, len(got), size-from, err)
			}
			if _, err := o.Seek(-1, io.SeekStart); err == nil {
				t.Error("it seeks before the beginning")
			}
			if err := o.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	proxy.Reset()
	o, err := b.Open(t.Context(), "a/small.m3u8")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(o); err != nil || proxy.Reset() != 1 {
		t.Errorf("a small object takes more than one request, %v", err)
	}
	if _, err := b.Open(t.Context(), "a/missing.m4s"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing object: %v", err)
	}
}

func TestOpen_ContinuesAfterACut(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{})
	proxy := s3test.NewProxy(t, s)
	b := open(t, "s3://"+bucketName, with(s.Env(), "AWS_ENDPOINT_URL", proxy.Endpoint), storage.Options{})
	dir := tree{"large.mp4": 18 * mib}.write(t)
	if _, err := b.PutArtifact(t.Context(), "a", dir, nil); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(dir, "large.mp4"))
	if err != nil {
		t.Fatal(err)
	}
	o, err := b.Open(t.Context(), "a/large.mp4")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	proxy.Reset()
	proxy.Inject(func(number int, _ *http.Request) s3test.Fault {
		switch {
		case number > 12:
			return ""
		case number%2 == 1:
			return s3test.Truncate
		}
		return s3test.CutBefore
	})
	if got, err := io.ReadAll(o); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
	}
	proxy.Inject(func(int, *http.Request) s3test.Fault { return s3test.CutBefore })
	if _, err := o.Seek(mib, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	_, err = io.ReadAll(o)
	if _, isService := errors.AsType[*storage.ServiceError](err); !isService {
		t.Errorf("without the service: %v", err)
	}
}

func TestOpen_NeverMixesTwoVersions(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{})
	b := open(t, "s3://"+bucketName, s.Env(), storage.Options{})
	version, err := b.WriteDocument(t.Context(), "document", bytes.Repeat([]byte("old "), mib), "")
	if err != nil {
		t.Fatal(err)
	}
	o, err := b.Open(t.Context(), "document")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if _, err := b.WriteDocument(t.Context(), "document", bytes.Repeat([]byte("new "), mib), version); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(o); err == nil || bytes.Contains(got, []byte("new")) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
