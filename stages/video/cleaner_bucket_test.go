package video

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cuelight/cuelight/internal/storage/s3test"
	"github.com/cuelight/cuelight/store"
)

// bucketCleaner is a bucket with artifacts, and a Cleaner for it.
type bucketCleaner struct {
	*bucketHosts
	cleaner Cleaner
}

func newBucketCleaner(t *testing.T) *bucketCleaner {
	t.Helper()
	h := newBucketHosts(t)
	c := &bucketCleaner{bucketHosts: h}
	c.cleaner.Config = Config{
		DataDir: t.TempDir(), PublishDir: t.TempDir(), Bucket: h.bucket("data"), PublishBucket: h.bucket("public"),
	}
	c.cleaner.Results = func(_ context.Context, task store.ID, stage string) (json.RawMessage, error) {
		if raw := h.results[stage]; raw != nil && task == h.job.Task {
			return raw, nil
		}
		return nil, store.ErrNotFound
	}
	return c
}

// clean cleans everything once.
func (c *bucketCleaner) clean() int {
	c.t.Helper()
	c.cleaner.inData, c.cleaner.inPublished = bucketPass{}, bucketPass{}
	done, err := c.cleaner.Clean(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	return done.Removed
}

// age sets the service's times of all that has a text in its path.
func (c *bucketCleaner) age(text string, age time.Duration) {
	c.t.Helper()
	changed := 0
	err := filepath.WalkDir(c.dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !strings.Contains(name, text) {
			return err
		}
		changed++
		then := time.Now().Add(-age)
		return os.Chtimes(name, then, then)
	})
	if err != nil || changed == 0 {
		c.t.Fatalf("%s: %d changed, %v", text, changed, err)
	}
}

// artifacts lists the artifacts of the task.
func (c *bucketCleaner) artifacts(prefix, dir string) (names []string) {
	c.t.Helper()
	all, err := c.bucket(prefix).storage.ListArtifacts(c.t.Context(), dir)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, a := range all {
		names = append(names, path.Base(a.Name))
	}
	return names
}

// put stores an artifact. With a fault in its last request, it has no manifest.
func (c *bucketCleaner) put(prefix, name string, size int, isKilled bool) {
	c.t.Helper()
	dir := c.t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file.m4s"), make([]byte, size), 0o644); err != nil {
		c.t.Fatal(err)
	}
	if isKilled {
		c.proxy.Inject(func(_ int, r *http.Request) s3test.Fault {
			isPart := r.URL.Query().Get("partNumber") == "2"
			if isPart || strings.HasSuffix(r.URL.Path, ".cuelight-manifest.json") && r.Method == http.MethodPut {
				return s3test.CutBefore
			}
			return ""
		})
		defer c.proxy.Inject(nil)
	}
	if _, err := c.bucket(prefix).storage.PutArtifact(c.t.Context(), name, dir, nil); (err != nil) != isKilled {
		c.t.Fatal(err)
	}
	c.proxy.Wait()
}

func TestCleaner_RemovesKilledUploadsFromABucketAfterADay(t *testing.T) {
	t.Parallel()
	c := newBucketCleaner(t)
	task := path.Join(tasksName, c.job.Task.String())
	killed := "transcode-0002-aaaaaaaaaa"
	large := "assemble-0001-aaaaaaaaaa"
	generation := "gen-0001-aaaaaaaaaa"
	c.put("data", path.Join(task, "transcode-0001-aaaaaaaaaa"), 100, false)
	c.put("data", path.Join(task, killed), 100, true)
	c.put("data", path.Join(task, large), 20<<20, true) // only parts of an upload
	c.put("data", path.Join(task, "unknown"), 100, true)
	c.put("public", path.Join(c.job.Task.String(), generation), 100, true)
	if n := c.clean(); n != 0 {
		t.Errorf("it removed %d that may be in use", n)
	}
	c.age("", 23*time.Hour)
	if n := c.clean(); n != 0 {
		t.Errorf("it removed %d within a day", n)
	}
	c.age("", 26*time.Hour)
	if n := c.clean(); n != 3 {
		t.Errorf("it removed %d of 3", n)
	}
	if diff := cmp.Diff([]string{"transcode-0001-aaaaaaaaaa", "unknown"}, c.artifacts("data", task)); diff != "" {
		t.Error(diff)
	}
	if left := c.artifacts("public", c.job.Task.String()); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestCleaner_RemovesOnlyResultsOlderThanTheRecordedOneFromABucket(t *testing.T) {
	t.Parallel()
	c := newBucketCleaner(t)
	task := path.Join(tasksName, c.job.Task.String())
	names := []string{"metadata-0001-aaaaaaaaaa", "transcode-0001-aaaaaaaaaa", "transcode-0002-aaaaaaaaaa", "transcode-0003-aaaaaaaaaa"}
	for _, name := range names {
		c.put("data", path.Join(task, name), 100, false)
	}
	c.age("", 48*time.Hour)
	if n := c.clean(); n != 0 {
		t.Errorf("without a recorded result, it removed %d", n)
	}
	// The third is of an attempt that had lost its claim.
	c.results[transcodeStage] = json.RawMessage(`{"dir": "transcode-0002-aaaaaaaaaa"}`)
	c.age("transcode-0001", time.Hour)
	if n := c.clean(); n != 0 {
		t.Errorf("it removed %d that may be in use", n)
	}
	c.age("", 26*time.Hour)
	if n := c.clean(); n != 1 {
		t.Errorf("it removed %d of 1", n)
	}
	if diff := cmp.Diff([]string{names[0], names[2], names[3]}, c.artifacts("data", task)); diff != "" {
		t.Error(diff)
	}
}

func TestCleaner_RemovesReplacedGenerationsFromABucketAfterKeepOld(t *testing.T) {
	t.Parallel()
	c := newBucketCleaner(t)
	for _, stage := range []string{ingestStage, transcodeStage, metadataStage, assembleStage, publishStage} {
		c.mustRun(stage)
	}
	task := c.job.Task.String()
	c.age("", 100*time.Hour)
	c.mustRun(publishStage)
	if n := c.clean(); n != 0 || len(c.artifacts("public", task)) != 2 {
		t.Errorf("it removed %d; the first generation was served until now", n)
	}
	c.age("gen-0001", 26*time.Hour)
	if n := c.clean(); n != 1 || len(c.artifacts("public", task)) != 1 {
		t.Errorf("it removed %d of 1", n)
	}
	c.published()
	// The next publish of the task does so, too.
	c.mustRun(publishStage)
	c.age("gen-0002", 26*time.Hour)
	c.mustRun(publishStage)
	if left := c.artifacts("public", task); len(left) != 2 || !strings.HasPrefix(left[0], "gen-0003-") {
		t.Errorf("left: %v", left)
	}
	c.published()
	// Without the stable manifests nothing is known to be replaced.
	for _, name := range []string{"master.m3u8", "manifest.mpd"} {
		if err := c.bucket("public").storage.DeleteDocument(t.Context(), path.Join(task, name)); err != nil {
			t.Fatal(err)
		}
	}
	c.age("", 100*time.Hour)
	if n := c.clean(); n != 0 {
		t.Errorf("it removed %d", n)
	}
}

// The generation is replaced at each of the requests of a Cleaner.
func TestCleaner_KeepsAGenerationThatIsReplacedMeanwhile(t *testing.T) {
	t.Parallel()
	c := newBucketCleaner(t)
	task := c.job.Task
	public := Location{Bucket: c.bucket("public")}
	serve := func(generation string) {
		old, err := public.readStable(t.Context(), task)
		text := []byte(generation + "/x\n")
		if err == nil {
			err = public.replaceStable(t.Context(), task, old, [2][]byte{text, text})
		}
		if err != nil {
			t.Error(err)
		}
	}
	for _, generation := range []string{"gen-0001-aaaaaaaaaa", "gen-0002-aaaaaaaaaa"} {
		c.put("public", path.Join(task.String(), generation), 10, false)
	}
	at, isReplaced := 0, true
	for ; isReplaced; at++ {
		serve("gen-0001-aaaaaaaaaa")
		c.age("gen-0001-aaaaaaaaaa", 72*time.Hour)
		c.proxy.Reset()
		var began atomic.Bool
		c.proxy.Observe(func(number int, _ *http.Request) {
			if number > at && began.CompareAndSwap(false, true) {
				serve("gen-0002-aaaaaaaaaa") // a publish ends now
			}
		}, nil)
		n := c.clean()
		c.proxy.Observe(nil, nil)
		isReplaced = began.Load()
		if left := c.artifacts("public", task.String()); n != 0 || len(left) != 2 {
			t.Fatalf("replaced before request %d: it removed %d and left %v", at+1, n, left)
		}
	}
	if at < 4 {
		t.Errorf("the Cleaner sent %d requests", at-1)
	}
}

func TestCleaner_RemovesCopiesThatNoAttemptUses(t *testing.T) {
	t.Parallel()
	c := newBucketCleaner(t)
	name := dirName{stage: ingestStage, number: 1, random: "aaaaaaaaaa"}.String()
	unused := putCopy(t, c.cleaner.Config, store.ID{1}, name, 10, 20*time.Minute)
	young := putCopy(t, c.cleaner.Config, store.ID{2}, name, 10, 10*time.Minute)
	used := putCopy(t, c.cleaner.Config, store.ID{3}, name, 10, 20*time.Minute)
	done, err := c.cleaner.Config.bucketResults().scratch.use(store.ID{3}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	c.clean()
	if exists(unused) || !exists(young) || !exists(used) {
		t.Errorf("unused %v, young %v, used %v", exists(unused), exists(young), exists(used))
	}
}

func TestCleaner_GoesOnAfterTheServiceFailed(t *testing.T) {
	t.Parallel()
	c := newBucketCleaner(t)
	for i := range byte(3) {
		c.put("data", path.Join(tasksName, store.ID{15: i + 1}.String(), "transcode-0001-aaaaaaaaaa"), 100, true)
	}
	c.age("", 48*time.Hour)
	c.proxy.Reset()
	c.proxy.Inject(func(number int, _ *http.Request) s3test.Fault {
		if number > 12 {
			return s3test.ServerError
		}
		return ""
	})
	first, err := c.cleaner.Clean(t.Context())
	if err == nil {
		t.Fatal("it succeeded without the service")
	}
	c.proxy.Inject(nil)
	second, err := c.cleaner.Clean(t.Context())
	if err != nil || first.Removed+second.Removed != 3 {
		t.Errorf("it removed %d and %d of 3, %v", first.Removed, second.Removed, errors.Join(err))
	}
}
