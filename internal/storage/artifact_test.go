package storage_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/minio/minio-go/v7"

	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/internal/storage/s3test"
)

// smallParts makes a file of 6 MiB one of two parts, and its copy, too.
var smallParts = storage.Options{PartSize: 5 * mib, CopyPartSize: 5 * mib}

func TestArtifact_IsTheSameAfterPutCopyAndGet(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{TLS: true, VirtualHost: true})
	s.MakeBucket(t, "published")
	for _, style := range []string{"path", "virtual-host"} {
		t.Run(style, func(t *testing.T) {
			t.Parallel()
			env, options := s.Env(), smallParts
			if style == "virtual-host" {
				options.Dial = s.Dial
				env = with(env, "AWS_ENDPOINT_URL", s.VirtualHostEndpoint())
			}
			work := open(t, "s3://"+bucketName+"/"+style+"/data?style="+style, env, options)
			published := open(t, "s3://published/"+style+"?style="+style, env, options)
			dir := someFiles.write(t)
			last := int64(0)
			m, err := work.PutArtifact(t.Context(), "tasks/1/assemble-1", dir, func(done, total int64) {
				if done < last || done > total {
					t.Errorf("progress: %d after %d of %d", done, last, total)
				}
				last = done
			})
			if err != nil {
				t.Fatal(err)
			}
			if last != m.Bytes() || len(m.Files) != len(someFiles) {
				t.Errorf("progress ended at %d of %d bytes, %d files", last, m.Bytes(), len(m.Files))
			}
			if err := work.CopyArtifact(t.Context(), "tasks/1/assemble-1", published, "1/gen-1", nil); err != nil {
				t.Fatal(err)
			}
			copied := newDir(t)
			if _, err := published.GetArtifact(t.Context(), "1/gen-1", copied, nil, nil); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(hashes(t, dir), hashes(t, copied)); diff != "" {
				t.Error(diff)
			}
			if exists(copied + ".tmp") {
				t.Error("the unfinished directory was left")
			}
			checkHeaders(t, s.Client(t), bucketName, style+"/data/tasks/1/assemble-1/")
			checkHeaders(t, s.Client(t), "published", style+"/1/gen-1/")
		})
	}
}

// checkHeaders checks what a player gets.
func checkHeaders(t *testing.T, client *minio.Client, bucket, prefix string) {
	t.Helper()
	for name, contentType := range map[string]string{
		"master.m3u8": "application/vnd.apple.mpegurl", "manifest.mpd": "application/dash+xml",
		"video/seg-1.m4s": "video/iso.segment", "source movie #1 ü%.mp4": "video/mp4",
	} {
		info, err := client.StatObject(t.Context(), bucket, prefix+name, minio.StatObjectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		cache := info.Metadata.Get("Cache-Control")
		if info.ContentType != contentType || cache != "public, max-age=31536000, immutable" {
			t.Errorf("%s/%s%s: %s, %s", bucket, prefix, name, info.ContentType, cache)
		}
	}
}

func TestPutArtifact_IsRepeatableAndNeverReplaces(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{})
	proxy := s3test.NewProxy(t, s)
	b := open(t, "s3://"+bucketName, with(s.Env(), "AWS_ENDPOINT_URL", proxy.Endpoint), smallParts)
	dir := someFiles.write(t)
	for range 2 {
		proxy.Reset()
		if _, err := b.PutArtifact(t.Context(), "a", dir, nil); err != nil {
			t.Fatal(err)
		}
	}
	if sent, _ := proxy.Bytes(); sent != 0 {
		t.Errorf("the second call sent %d bytes", sent)
	}
	before := readManifest(t, s, "a")
	if err := os.WriteFile(filepath.Join(dir, "master.m3u8"), []byte("other"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := b.PutArtifact(t.Context(), "a", dir, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("an artifact with other files: %v", err)
	}
	if diff := cmp.Diff(before, readManifest(t, s, "a")); diff != "" {
		t.Error(diff)
	}
	if _, err := b.GetArtifact(t.Context(), "a", newDir(t), nil, nil); err != nil {
		t.Error(err)
	}
}

func readManifest(t *testing.T, s *s3test.Server, name string) string {
	t.Helper()
	object, err := s.Client(t).GetObject(t.Context(), bucketName, name+"/.cuelight-manifest.json", minio.GetObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestPutArtifact_OfTwoWritersOneWins(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{})
	proxy := s3test.NewProxy(t, s)
	late := open(t, "s3://"+bucketName, with(s.Env(), "AWS_ENDPOINT_URL", proxy.Endpoint), smallParts)
	early := open(t, "s3://"+bucketName, s.Env(), smallParts)
	empty := t.TempDir()
	proxy.Observe(func(_ int, r *http.Request) {
		if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, ".cuelight-manifest.json") {
			if _, err := early.PutArtifact(context.Background(), "a", empty, nil); err != nil {
				t.Error(err)
			}
		}
	}, nil)
	if _, err := late.PutArtifact(t.Context(), "a", someFiles.write(t), nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("the late writer: %v", err)
	}
	if m, err := early.GetArtifact(t.Context(), "a", newDir(t), nil, nil); err != nil || len(m.Files) > 0 {
		t.Errorf("the artifact has %d files, %v", len(m.Files), err)
	}
}

func TestGetArtifact_GetsSelectedFiles(t *testing.T) {
	t.Parallel()
	b := open(t, "s3://"+bucketName, startServer(t, s3test.Options{}).Env(), smallParts)
	source := someFiles.write(t)
	if _, err := b.PutArtifact(t.Context(), "a", source, nil); err != nil {
		t.Fatal(err)
	}
	dir := newDir(t)
	if _, err := b.GetArtifact(t.Context(), "a", dir, []string{"video", "manifest.mpd"}, nil); err != nil {
		t.Fatal(err)
	}
	want := hashes(t, source)
	delete(want, "master.m3u8")
	delete(want, "source movie #1 ü%.mp4")
	if diff := cmp.Diff(want, hashes(t, dir)); diff != "" {
		t.Error(diff)
	}
	if _, err := b.GetArtifact(t.Context(), "a", dir, nil, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a directory that exists: %v", err)
	}
	if _, err := b.GetArtifact(t.Context(), "a", newDir(t), []string{"vid"}, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that the artifact does not have: %v", err)
	}
	if _, err := b.GetArtifact(t.Context(), "b", newDir(t), nil, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no artifact: %v", err)
	}
}

func TestGetArtifact_FindsDamage(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{})
	b := open(t, "s3://"+bucketName, s.Env(), smallParts)
	dir := someFiles.write(t)
	damage := map[string]func(path string) error{
		"other bytes": func(path string) error { return os.WriteFile(path, make([]byte, 900), 0o644) },
		"shorter":     func(path string) error { return os.Truncate(path, 100) },
		"empty":       func(path string) error { return os.Truncate(path, 0) },
		"longer":      func(path string) error { return os.Truncate(path, 1000) },
		"missing":     os.Remove,
	}
	for name, do := range damage {
		if _, err := b.PutArtifact(t.Context(), name, dir, nil); err != nil {
			t.Fatal(err)
		}
		if err := do(filepath.Join(s.Dir, bucketName, name, "video", "init.mp4")); err != nil {
			t.Fatal(err)
		}
		got := newDir(t)
		if _, err := b.GetArtifact(t.Context(), name, got, nil, nil); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		if exists(got) {
			t.Errorf("%s: the directory exists", name)
		}
	}
}

func TestGetArtifact_DownloadsBytesAgainThatAreWrongOnDisk(t *testing.T) {
	t.Parallel()
	b := open(t, "s3://"+bucketName, startServer(t, s3test.Options{}).Env(), smallParts)
	source := someFiles.write(t)
	if _, err := b.PutArtifact(t.Context(), "a", source, nil); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int{"part": 100, "all": 900, "more": 1000} {
		dir := newDir(t)
		if err := os.MkdirAll(dir+".tmp/video", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.WriteFile(dir+".tmp/video/init.mp4", make([]byte, size), 0o644),
			os.WriteFile(dir+".tmp/video/unknown", nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		last, wanted := int64(0), int64(0)
		if _, err := b.GetArtifact(t.Context(), "a", dir, nil, func(done, total int64) { last, wanted = done, total }); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(hashes(t, source), hashes(t, dir)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if last != wanted {
			t.Errorf("%s: progress ended at %d of %d", name, last, wanted)
		}
	}
}

func TestGetArtifact_RefusesNamesThatLeaveItsDirectory(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{})
	b := open(t, "s3://"+bucketName, s.Env(), smallParts)
	for _, name := range []string{"../evil", "/evil", "a/../../evil", "a//b", "", "."} {
		manifest := `{"version":1,"files":[{"name":"` + name + `","size":0,"sha256":""}]}`
		object := filepath.Join(s.Dir, bucketName, "a", ".cuelight-manifest.json")
		if err := errors.Join(os.MkdirAll(filepath.Dir(object), 0o755), os.WriteFile(object, []byte(manifest), 0o644)); err != nil {
			t.Fatal(err)
		}
		if _, err := b.GetArtifact(t.Context(), "a", newDir(t), nil, nil); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"", ".", "..", "../a", "/a", "a/", "a/.cuelight-manifest.json"} {
		if _, err := b.PutArtifact(t.Context(), name, t.TempDir(), nil); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("put as %q: %v", name, err)
		}
	}
}

func TestPutArtifact_RefusesWhatIsNoRegularFile(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{})
	b := open(t, "s3://"+bucketName, s.Env(), smallParts)
	for name, link := range map[string]string{"link": "/etc/passwd", ".cuelight-manifest.json": "x"} {
		dir := t.TempDir()
		if err := os.Symlink(link, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		if _, err := b.PutArtifact(t.Context(), "a", dir, nil); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestListArtifacts_ShowsUnfinishedOnesUntilTheyAreDeleted(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{})
	proxy := s3test.NewProxy(t, s)
	b := open(t, "s3://"+bucketName+"/work", with(s.Env(), "AWS_ENDPOINT_URL", proxy.Endpoint),
		storage.Options{PartSize: 5 * mib, Tries: 1})
	dir := someFiles.write(t)
	if _, err := b.PutArtifact(t.Context(), "1/whole", dir, nil); err != nil {
		t.Fatal(err)
	}
	stopAt := func(name, method, query string) {
		proxy.Inject(func(_ int, r *http.Request) s3test.Fault {
			if r.Method == method && r.URL.Query().Has(query) {
				return s3test.CutBefore
			}
			return ""
		})
		if _, err := b.PutArtifact(t.Context(), name, dir, nil); err == nil {
			t.Fatal("the upload was not interrupted")
		}
		proxy.Inject(nil)
	}
	stopAt("1/without parts", http.MethodPut, "partNumber")
	stopAt("1/with parts", http.MethodPost, "uploadId")
	large := tree{"only.mp4": 6 * mib}
	dir = large.write(t)
	stopAt("1/only parts", http.MethodPost, "uploadId")
	found, err := b.ListArtifacts(t.Context(), "1")
	if err != nil {
		t.Fatal(err)
	}
	complete := map[string]bool{}
	for _, a := range found {
		complete[a.Name] = a.Complete
		if age := b.Now().Sub(a.Modified); age < -time.Minute || age > time.Hour {
			t.Errorf("%+v", a)
		}
	}
	want := map[string]bool{"1/whole": true, "1/without parts": false, "1/with parts": false, "1/only parts": false}
	if diff := cmp.Diff(want, complete); diff != "" {
		t.Error(diff)
	}
	checkMeasured(t, b, found, map[string]int64{"1/only parts": 5 * mib})
	for _, a := range found {
		if err := b.DeleteArtifact(t.Context(), a.Name); err != nil {
			t.Error(err)
		}
		if err := b.DeleteArtifact(t.Context(), a.Name); err != nil {
			t.Errorf("deleted again: %v", err)
		}
	}
	if found, err = b.ListArtifacts(t.Context(), ""); err != nil || len(found) > 0 {
		t.Errorf("after all were deleted: %v, %v", found, err)
	}
	checkNoUploads(t, s)
}

// checkMeasured checks that the artifacts are measured, some of them with at least so many bytes.
func checkMeasured(t *testing.T, b *storage.Bucket, want []storage.Artifact, atLeast map[string]int64) {
	t.Helper()
	measured, err := b.MeasureArtifacts(t.Context(), "1")
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range measured {
		if a.Bytes < atLeast[a.Name] || a.Complete && a.Bytes == 0 {
			t.Errorf("%s has %d bytes", a.Name, a.Bytes)
		}
		measured[i].Bytes = 0
	}
	if diff := cmp.Diff(want, measured, cmpopts.EquateApproxTime(time.Second)); diff != "" {
		t.Error(diff)
	}
}

func checkNoUploads(t *testing.T, s *s3test.Server) {
	t.Helper()
	for u := range s.Client(t).ListIncompleteUploads(t.Context(), bucketName, "", true) {
		t.Errorf("an unfinished upload was left: %s, %v", u.Key, u.Err)
	}
}

func TestPutArtifact_LetsTheServiceCopySimilarFiles(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{})
	proxy := s3test.NewProxy(t, s)
	b := open(t, "s3://"+bucketName, with(s.Env(), "AWS_ENDPOINT_URL", proxy.Endpoint), smallParts)
	dir := someFiles.write(t)
	if _, err := b.PutArtifact(t.Context(), "first", dir, nil); err != nil {
		t.Fatal(err)
	}
	// A new file, and one with the size of another and other bytes.
	for name, size := range (tree{"new.json": 500, "video/seg-2.m4s": 70_000}) {
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), make([]byte, size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	proxy.Reset()
	last := int64(0)
	m, err := b.PutArtifact(t.Context(), "second", dir, func(done, total int64) {
		if done < last || done > total {
			t.Errorf("progress: %d after %d of %d", done, last, total)
		}
		last = done
	}, storage.ArtifactRef{Bucket: b, Name: "first"}, storage.ArtifactRef{Bucket: b, Name: "missing"})
	if err != nil || last != m.Bytes() {
		t.Fatalf("%d of %d bytes, %v", last, m.Bytes(), err)
	}
	if sent, _ := proxy.Bytes(); sent < 70_500 || sent > 80_000 {
		t.Errorf("%d bytes were sent; new are 70500", sent)
	}
	copied := newDir(t)
	if _, err := b.GetArtifact(t.Context(), "second", copied, nil, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(hashes(t, dir), hashes(t, copied)); diff != "" {
		t.Error(diff)
	}
	checkHeaders(t, s.Client(t), bucketName, "second/")
}

func TestPutArtifact_UploadsWhatCannotBeCopied(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{})
	proxy := s3test.NewProxy(t, s)
	b := open(t, "s3://"+bucketName, with(s.Env(), "AWS_ENDPOINT_URL", proxy.Endpoint), smallParts)
	dir := someFiles.write(t)
	if _, err := b.PutArtifact(t.Context(), "first", dir, nil); err != nil {
		t.Fatal(err)
	}
	// The other artifact is deleted after it was listed.
	var deleted sync.Once
	proxy.Observe(func(_ int, r *http.Request) {
		if r.Header.Get("X-Amz-Copy-Source") != "" {
			deleted.Do(func() {
				if err := open(t, "s3://"+bucketName, s.Env(), smallParts).DeleteArtifact(t.Context(), "first"); err != nil {
					t.Error(err)
				}
			})
		}
	}, nil)
	if _, err := b.PutArtifact(t.Context(), "second", dir, nil, storage.ArtifactRef{Bucket: b, Name: "first"}); err != nil {
		t.Fatal(err)
	}
	checkWhole(t, b, "second", hashes(t, dir))
}

func TestReadBlock_RefusesWrongBytes(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{})
	proxy := s3test.NewProxy(t, s)
	b := open(t, "s3://"+bucketName+"/data", with(s.Env(), "AWS_ENDPOINT_URL", proxy.Endpoint), storage.Options{})
	dir := tree{"source.mp4": 2*storage.BlockSize + 100, "small.jpg": 100}.write(t)
	m, err := b.PutArtifact(t.Context(), "tasks/1/ingest-1", dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	small, source := m.Files[0], m.Files[1]
	if len(small.BlockSums()) != 1 || len(small.Blocks) != 0 || len(source.BlockSums()) != 3 {
		t.Fatalf("the manifest has %+v", m.Files)
	}
	want, err := os.ReadFile(filepath.Join(dir, "source.mp4"))
	if err != nil {
		t.Fatal(err)
	}
	read := func(n int64) ([]byte, error) { return b.ReadBlock(t.Context(), "tasks/1/ingest-1", source, n) }
	for n := range int64(3) {
		// A cut connection is continued.
		cut := false
		proxy.Inject(func(int, *http.Request) s3test.Fault {
			if cut {
				return ""
			}
			cut = true
			return s3test.Truncate
		})
		got, err := read(n)
		if end := min((n+1)*storage.BlockSize, source.Size); err != nil || string(got) != string(want[n*storage.BlockSize:end]) {
			t.Errorf("block %d has %d bytes, %v", n, len(got), err)
		}
	}
	proxy.Inject(nil)
	if _, err := read(3); !errors.Is(err, io.EOF) {
		t.Errorf("behind the end: %v", err)
	}
	want[storage.BlockSize] ^= 1
	_, err = s.Client(t).PutObject(t.Context(), bucketName, "data/tasks/1/ingest-1/source.mp4", strings.NewReader(string(want)),
		source.Size, minio.PutObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	proxy.Reset()
	if _, err := read(1); !errors.Is(err, storage.ErrCorrupt) || proxy.Reset() != 2 {
		t.Errorf("a damaged block: %v; it must be read twice", err)
	}
	if _, err := read(0); err != nil {
		t.Errorf("the block before it: %v", err)
	}
}
