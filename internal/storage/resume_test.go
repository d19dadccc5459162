package storage_test

import (
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/minio/minio-go/v7"

	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/internal/storage/s3test"
)

// slack is what a cut may cost besides a part: small files, listings, buffers of sockets.
const slack = mib

func TestPutArtifact_SendsAtMostOnePartAgainAfterACut(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{})
	proxy := s3test.NewProxy(t, s)
	env := with(s.Env(), "AWS_ENDPOINT_URL", proxy.Endpoint)
	files := tree{"source.mp4": 41 * mib}
	dir := files.write(t)
	size := int64(41 * mib)
	for _, test := range []struct {
		name   string
		tries  int
		repeat bool
	}{{"within a call", 3, false}, {"by another call", 1, true}} {
		b := open(t, "s3://"+bucketName, env, storage.Options{PartSize: 8 * mib, Tries: test.tries})
		var cut atomic.Int32
		proxy.Inject(func(_ int, r *http.Request) s3test.Fault {
			if r.URL.Query().Get("partNumber") == "4" && cut.Add(1) == 1 {
				return s3test.CutRequest
			}
			return ""
		})
		proxy.Reset()
		_, err := b.PutArtifact(t.Context(), test.name, dir, nil)
		if (err != nil) != test.repeat {
			t.Fatalf("%s: the cut call: %v", test.name, err)
		}
		if test.repeat {
			// The other connections of the call were cut, too: their parts are sent again.
			proxy.Wait()
			had := serverBytes(t, s, test.name)
			proxy.Reset()
			if _, err := b.PutArtifact(t.Context(), test.name, dir, nil); err != nil {
				t.Fatal(err)
			}
			if had < 3*8*mib {
				t.Errorf("the server has only %d bytes", had)
			}
			size -= had
		}
		sent, _ := proxy.Bytes()
		if again := sent - size; again > 8*mib+slack {
			t.Errorf("%s: %d bytes were sent again", test.name, again)
		} else {
			t.Logf("%s: %d bytes were sent, %d of them again", test.name, sent, again)
		}
	}
}

// serverBytes returns the bytes of complete parts that the server has.
func serverBytes(t *testing.T, s *s3test.Server, name string) (total int64) {
	t.Helper()
	client := s.Client(t)
	for u := range client.ListIncompleteUploads(t.Context(), bucketName, name, true) {
		if u.Err != nil {
			t.Fatal(u.Err)
		}
		parts, err := minio.Core{Client: client}.ListObjectParts(t.Context(), bucketName, u.Key, u.UploadID, 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts.ObjectParts {
			total += p.Size
		}
	}
	return total
}

func TestGetArtifact_ContinuesWithTheBytesOnDisk(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{})
	proxy := s3test.NewProxy(t, s)
	env := with(s.Env(), "AWS_ENDPOINT_URL", proxy.Endpoint)
	files := tree{"source.mp4": 20 * mib}
	source := files.write(t)
	for _, test := range []struct {
		name   string
		tries  int
		repeat bool
	}{{"within a call", 3, false}, {"by another call", 1, true}} {
		b := open(t, "s3://"+bucketName, env, storage.Options{Tries: test.tries})
		proxy.Inject(nil)
		if _, err := b.PutArtifact(t.Context(), test.name, source, nil); err != nil {
			t.Fatal(err)
		}
		var cut atomic.Int32
		proxy.Inject(func(_ int, r *http.Request) s3test.Fault {
			if r.Header.Get("Range") != "" && cut.Add(1) == 1 {
				return s3test.Truncate
			}
			return ""
		})
		proxy.Reset()
		dir := newDir(t)
		_, err := b.GetArtifact(t.Context(), test.name, dir, nil, nil)
		if (err != nil) != test.repeat {
			t.Fatalf("%s: the cut call: %v", test.name, err)
		}
		if test.repeat {
			info, err := os.Stat(filepath.Join(dir+".tmp", "source.mp4"))
			if err != nil || info.Size() < 9*mib {
				t.Errorf("%s: %v, %v bytes on disk", test.name, err, info)
			}
			if _, err := b.GetArtifact(t.Context(), test.name, dir, nil, nil); err != nil {
				t.Fatal(err)
			}
		}
		_, received := proxy.Bytes()
		if again := received - 20*mib; again > slack {
			t.Errorf("%s: %d bytes were received again", test.name, again)
		} else {
			t.Logf("%s: %d bytes were received again", test.name, again)
		}
		if diff := cmp.Diff(hashes(t, source), hashes(t, dir)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestGetArtifact_OfTwoCallsLetsOneWait(t *testing.T) {
	t.Parallel()
	b := open(t, "s3://"+bucketName, startServer(t, s3test.Options{}).Env(), storage.Options{})
	source := someFiles.write(t)
	if _, err := b.PutArtifact(t.Context(), "a", source, nil); err != nil {
		t.Fatal(err)
	}
	dir := newDir(t)
	errs := make(chan error)
	for range 3 {
		go func() {
			_, err := b.GetArtifact(t.Context(), "a", dir, nil, nil)
			errs <- err
		}()
	}
	succeeded := 0
	for range 3 {
		if err := <-errs; err == nil {
			succeeded++
		}
	}
	if succeeded != 1 {
		t.Errorf("%d calls succeeded", succeeded)
	}
	if diff := cmp.Diff(hashes(t, source), hashes(t, dir)); diff != "" {
		t.Error(diff)
	}
	if exists(dir + ".tmp") {
		t.Error("an unfinished directory was left")
	}
}

// Run it with -run '^$' -bench Artifact -benchtime 1x.
func BenchmarkArtifact(b *testing.B) {
	for _, tls := range []bool{false, true} {
		name := map[bool]string{false: "http", true: "https"}[tls]
		s := startServer(b, s3test.Options{TLS: tls})
		files := tree{"source.mp4": 1 << 30}
		source := files.write(b)
		bucket := open(b, "s3://"+bucketName, s.Env(), storage.Options{})
		b.Run("put/"+name, func(b *testing.B) {
			b.SetBytes(1 << 30)
			for range b.N {
				if err := bucket.DeleteArtifact(b.Context(), "a"); err != nil {
					b.Fatal(err)
				}
				if _, err := bucket.PutArtifact(b.Context(), "a", source, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("get/"+name, func(b *testing.B) {
			b.SetBytes(1 << 30)
			for range b.N {
				if _, err := bucket.GetArtifact(b.Context(), "a", newDir(b), nil, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("copy/"+name, func(b *testing.B) {
			b.SetBytes(1 << 30)
			for range b.N {
				if err := bucket.CopyArtifact(b.Context(), "a", bucket, "b-"+time.Now().Format("150405.000"), nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
