package daemon

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/inbox"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/storage/s3test"
	"github.com/cuelight/cuelight/internal/upload"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
)

// newBucket returns a bucket, and a proxy that counts what is sent to it.
func newBucket(t *testing.T) (*video.Bucket, *s3test.Proxy) {
	t.Helper()
	server := s3test.Start(t, s3test.Options{})
	server.MakeBucket(t, "videos")
	proxy := s3test.NewProxy(t, server)
	b, err := video.OpenBucket("s3://videos/data", func(name string) string {
		if name == "AWS_ENDPOINT_URL" {
			return proxy.Endpoint
		}
		return server.Env()(name)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b, proxy
}

func TestWatchedFiles_AreInTheBucketBeforeTheirTaskExists(t *testing.T) {
	t.Parallel()
	st := store.New(pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL)), store.Video())
	bucket, proxy := newBucket(t)
	dir := t.TempDir()
	var files []inbox.File
	for _, name := range []string{"a film.mp4", "b\xff.mp4"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(strings.Repeat(name, 100)), 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, inbox.File{Path: path, Size: int64(100 * len(name)), ModTime: time.Unix(1, 0)})
	}
	// A version without buckets has submitted this one.
	if err := (watchedFiles{store: st, log: zap.NewNop()}).submit(t.Context(), files[1:]); err != nil {
		t.Fatal(err)
	}
	w := watchedFiles{store: st, bucket: bucket, log: zap.NewNop()}
	proxy.Inject(func(int, *http.Request) s3test.Fault { return s3test.Full })
	if err := w.submit(t.Context(), files); err == nil {
		t.Error("a file was submitted that is not in the bucket")
	}
	proxy.Inject(nil)
	for range 2 {
		if err := w.submit(t.Context(), files); err != nil {
			t.Fatal(err)
		}
	}
	tasks, err := st.List(t.Context(), store.ListQuery{})
	if err != nil || len(tasks) != 2 {
		t.Fatalf("there are %d tasks, %v", len(tasks), err)
	}
	if tasks[1].Source != SourceOfPath(files[1].Path) {
		t.Errorf("the task of the older version has the source %s", tasks[1].Source)
	}
	source := tasks[0].Source
	if size, _, err := bucket.SourceDigest(t.Context(), source); err != nil || size != files[0].Size {
		t.Errorf("%s has %d bytes, %v", source, size, err)
	}
	// After ingest the copy is deleted, and after a restart the file is seen again.
	if err := bucket.DeleteSource(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	proxy.Reset()
	if err := w.submit(t.Context(), files[:1]); err != nil {
		t.Fatal(err)
	}
	if n := proxy.Reset(); n != 0 {
		t.Errorf("a file that has a task was sent again: %d requests", n)
	}
	for _, f := range files {
		if _, err := os.Stat(f.Path); err != nil {
			t.Error(err)
		}
	}
}

func TestWatchedFiles_OneThatCannotBeReadKeepsNoOtherBack(t *testing.T) {
	t.Parallel()
	st := store.New(pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL)), store.Video())
	bucket, proxy := newBucket(t)
	good := filepath.Join(t.TempDir(), "good.mp4")
	if err := os.WriteFile(good, []byte("good"), 0o644); err != nil {
		t.Fatal(err)
	}
	// Reading it fails after the size that it pretends to have, also for root.
	const bad = "/sys/kernel/mm/transparent_hugepage/enabled"
	if info, err := os.Stat(bad); err != nil || info.Size() == 0 {
		t.Skip("no such file")
	}
	files := []inbox.File{{Path: bad, Size: 4096, ModTime: time.Unix(1, 0)}, {Path: good, Size: 4, ModTime: time.Unix(2, 0)}}
	w := watchedFiles{store: st, bucket: bucket, log: zap.NewNop()}
	err := w.submit(t.Context(), files)
	if failed, ok := errors.AsType[inbox.FileErrors](err); !ok || len(failed) != 1 || failed[bad] == nil {
		t.Errorf("the error is %v", err)
	}
	if tasks, err := st.List(t.Context(), store.ListQuery{}); err != nil || len(tasks) != 1 {
		t.Errorf("there are %d tasks, %v", len(tasks), err)
	}
	// An error of the service is none of the file.
	files[1].ModTime = time.Unix(3, 0)
	proxy.Inject(func(int, *http.Request) s3test.Fault { return s3test.Full })
	err = w.submit(t.Context(), files[1:])
	if _, ok := errors.AsType[inbox.FileErrors](err); err == nil || ok {
		t.Errorf("without the service: %v", err)
	}
}

func TestWatchedFiles_OfBeforeARelocationAreKnown(t *testing.T) {
	t.Parallel()
	st := store.New(pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL)), store.Video())
	bucket, _ := newBucket(t)
	dir := t.TempDir()
	var files []inbox.File
	for _, name := range []string{"old.mp4", "new.mp4"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, inbox.File{Path: path, Size: 7, ModTime: time.Unix(1, 0)})
	}
	if err := (watchedFiles{store: st, bucket: bucket, log: zap.NewNop()}).submit(t.Context(), files[:1]); err != nil {
		t.Fatal(err)
	}
	// The data is in a directory now, and the daemon has started again.
	if err := (watchedFiles{store: st, log: zap.NewNop()}).submit(t.Context(), files); err != nil {
		t.Error(err)
	}
	if tasks, err := st.List(t.Context(), store.ListQuery{}); err != nil || len(tasks) != 2 {
		t.Errorf("there are %d tasks, %v", len(tasks), err)
	}
}

func TestUpload_IsSubmittedAsItsCopyInTheBucket(t *testing.T) {
	t.Parallel()
	st := store.New(pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL)), store.Video())
	bucket, _ := newBucket(t)
	key := keyOf(t, st)
	u := sent(t, "a", key, "abc")
	u.Name = "film.mp4"
	if err := storeUpload(bucket)(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	r, err := submitUpload(st, bucket)(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	u.Task = r.Task
	id, err := store.ParseID(r.Task)
	if err != nil {
		t.Fatal(err)
	}
	task, err := st.Get(t.Context(), id)
	if err != nil || !strings.HasPrefix(task.Source, bucket.String()+"/sources/") || !strings.HasSuffix(task.Source, "/film.mp4") {
		t.Fatalf("the source is %s, %v", task.Source, err)
	}
	if state, err := uploadSourceState(st, bucket)(t.Context(), u); err != nil || state != upload.SourceNeeded {
		t.Errorf("before ingest the upload is %v, %v", state, err)
	}
	// A client that lost the answer sends the same file again.
	again, other := sent(t, "b", key, "abc"), sent(t, "c", key, "xyz")
	if r, err := submitUpload(st, bucket)(t.Context(), again); err != nil || !r.Existed || r.Task != u.Task {
		t.Errorf("the same file again is %+v, %v", r, err)
	}
	if _, err := submitUpload(st, bucket)(t.Context(), other); !errors.Is(err, upload.ErrRequestIDTaken) {
		t.Errorf("another file: %v", err)
	}
	if err := releaseUpload(bucket)(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	if _, _, err := bucket.SourceDigest(t.Context(), task.Source); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the release: %v", err)
	}
}

func TestStoreSource_ARequestIsFreeAfterItsSubmissionFailed(t *testing.T) {
	t.Parallel()
	st := store.New(pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL)), store.Video())
	bucket, _ := newBucket(t)
	file := filepath.Join(t.TempDir(), "film.mp4")
	stored := func(content string, at int64) store.Submission {
		t.Helper()
		err := os.WriteFile(file, []byte(content), 0o644)
		if err == nil {
			err = os.Chtimes(file, time.Unix(at, 0), time.Unix(at, 0))
		}
		sub := store.Submission{Source: file, RequestID: "film-17"}
		if err == nil {
			err = StoreSource(t.Context(), st, bucket, &sub)
		}
		if err != nil {
			t.Fatal(err)
		}
		return sub
	}
	failed := stored("wrong", 1) // then the database failed
	if again := stored("wrong", 1); again.Source != failed.Source {
		t.Errorf("the same file has a second copy: %s, then %s", failed.Source, again.Source)
	}
	corrected := stored("right", 2)
	if corrected.Source == failed.Source {
		t.Fatalf("both versions are %s", failed.Source)
	}
	first, err := st.Submit(t.Context(), corrected)
	if err != nil {
		t.Fatal(err)
	}
	// From now on the request has its task, as one of a file in a directory has.
	again, err := st.Submit(t.Context(), stored("later", 3))
	if err != nil || !again.Existed || again.ID != first.ID {
		t.Errorf("the same request later is %+v, %v", again, err)
	}
}

func TestStoreSource_LeavesWhatIsNoFileOfThisHost(t *testing.T) {
	t.Parallel()
	bucket, proxy := newBucket(t)
	for _, source := range []string{"https://example.com/a.mp4", filepath.Join(t.TempDir(), "missing"), t.TempDir(), "/dev/null"} {
		sub := store.Submission{Source: source}
		if err := StoreSource(t.Context(), nil, bucket, &sub); err != nil || sub.Source != source {
			t.Errorf("%s became %s, %v", source, sub.Source, err)
		}
	}
	if n := proxy.Reset(); n != 0 {
		t.Errorf("%d requests", n)
	}
}
