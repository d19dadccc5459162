package video

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cuelight/cuelight/internal/storage/s3test"
	"github.com/cuelight/cuelight/store"
)

// fileHashes returns the SHA-256 of the files below directories, by their paths relative to these.
func fileHashes(t *testing.T, dirs ...string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for i, dir := range dirs {
		err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			content, err := os.ReadFile(name)
			found[fmt.Sprint(i, strings.TrimPrefix(name, dir))] = fmt.Sprintf("%x", sha256.Sum256(content))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// copier copies between directories and the bucket videos, as a program does that knows nothing of Cuelight.
type copier struct {
	t      *testing.T
	server *s3test.Server
}

func newCopier(t *testing.T) copier {
	t.Helper()
	server := s3test.Start(t, s3test.Options{})
	server.MakeBucket(t, "videos")
	return copier{t, server}
}

// open opens s3://videos/…, and takes everything else for a directory.
func (c copier) open(location string) Location {
	c.t.Helper()
	if !IsBucketAddress(location) {
		return Location{Dir: location}
	}
	b, err := OpenBucket(location, c.server.Env())
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(b.Close)
	return Location{Bucket: b}
}

func (c copier) copy(from, to Location) {
	c.t.Helper()
	dir := from.Dir
	if from.Bucket != nil {
		dir = c.t.TempDir()
		c.server.Download(c.t, "videos", strings.TrimPrefix(from.String(), "s3://videos/"), dir)
	}
	if to.Bucket != nil {
		c.server.Upload(c.t, dir, "videos", strings.TrimPrefix(to.String(), "s3://videos/"))
	} else if err := os.CopyFS(to.Dir, os.DirFS(dir)); err != nil {
		c.t.Fatal(err)
	}
}

// relocate copies what is in the old locations, and makes the copies complete.
func (c copier) relocate(r Relocation) {
	c.t.Helper()
	for _, route := range r {
		c.copy(route.From, route.To)
	}
	found, err := r.Verify(c.t.Context())
	if err == nil && len(found.Differences) == 0 {
		err = r.Adopt(c.t.Context())
	}
	if err != nil || len(found.Differences) > 0 {
		c.t.Fatalf("%+v, %v", found, err)
	}
}

// storedSourceName is the stored source of newRelocationTest.
const storedSourceName = sourcesDir + "/upload-1"

// relocationTest is a task in directories with two generations, and a stored source.
type relocationTest struct {
	*harness
	copier
	before map[string]string // fileHashes of both directories
}

func newRelocationTest(t *testing.T) *relocationTest {
	t.Helper()
	h, m := readyHarness(t)
	h.mustPublish(m)
	h.mustPublish(m)
	if err := os.MkdirAll(filepath.Join(h.DataDir, storedSourceName), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(h.DataDir, storedSourceName, "source.mp4"), "a film")
	return &relocationTest{harness: h, copier: newCopier(t), before: fileHashes(t, h.DataDir, h.PublishDir)}
}

// routes returns the relocation of everything.
func (h *relocationTest) routes(fromData, fromPublished, toData, toPublished string) Relocation {
	h.harness.t.Helper()
	return Relocation{
		DataContent:    {h.open(fromData), h.open(toData)},
		PublishContent: {h.open(fromPublished), h.open(toPublished)},
	}
}

func TestRelocation_HasTheSameFilesInABucketAndBack(t *testing.T) {
	t.Parallel()
	h := newRelocationTest(t)
	h.relocate(h.routes(h.DataDir, h.PublishDir, "s3://videos/data", "s3://videos/public"))
	if diff := cmp.Diff(h.before, fileHashes(t, h.DataDir, h.PublishDir)); diff != "" {
		t.Errorf("the old locations were changed: %s", diff)
	}
	artifacts, err := h.open("s3://videos/public").finished(t.Context(), h.job.Task.String())
	if err != nil || len(artifacts) != 2 {
		t.Errorf("generations in the bucket: %v, %v", artifacts, err)
	}
	h.relocate(h.routes("s3://videos/data", "s3://videos/public", "s3://videos/other/data", "s3://videos/other/public"))
	data, published := t.TempDir(), t.TempDir()
	back := h.routes("s3://videos/other/data", "s3://videos/other/public", data, published)
	h.relocate(back)
	if diff := cmp.Diff(h.before, fileHashes(t, data, published)); diff != "" {
		t.Error(diff)
	}
	for _, generation := range list(t, filepath.Join(published, h.job.Task.String())) {
		info, err := os.Stat(filepath.Join(published, h.job.Task.String(), generation))
		if err != nil || info.Mode().Perm()&0o044 != 0o044 {
			t.Errorf("%s cannot be read by others: %v, %v", generation, info.Mode(), err)
		}
	}
	found, err := back.Verify(t.Context())
	if err != nil || found.Results != 7 || len(found.Published) != 1 || found.Published[0] != h.job.Task {
		t.Errorf("a repeated comparison found %+v, %v", found, err)
	}
}

func TestRelocation_NamesWhatIsMissingOrDifferent(t *testing.T) {
	t.Parallel()
	h := newRelocationTest(t)
	for _, to := range []string{"s3://videos/%s", t.TempDir() + "/%s"} {
		r := h.routes(h.DataDir, h.PublishDir, fmt.Sprintf(to, "data"), fmt.Sprintf(to, "public"))
		before, err := r.Verify(t.Context())
		if err != nil || len(before.Differences) != before.Results+2 {
			t.Errorf("%s: without a copy: %+v, %v", to, before, err)
		}
		h.relocate(r)
	}
	dir := h.open(t.TempDir())
	h.copy(h.PublishLocation(), dir)
	r := Relocation{PublishContent: {h.PublishLocation(), dir}}
	task := h.job.Task.String()
	generation := path.Join(task, list(t, dir.path(task))[0])
	files, err := dir.listFiles(t.Context(), generation)
	if err != nil || len(files) < 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for name, change := range map[string]func(file string) error{
		path.Join(generation, files[0].Name): os.Remove,
		path.Join(generation, files[1].Name): func(file string) error { return os.Truncate(file, 1) },
		path.Join(task, "master.m3u8"):       func(file string) error { return os.WriteFile(file, []byte("x"), 0o644) },
	} {
		content := read(t, dir.path(name))
		if err := change(dir.path(name)); err != nil {
			t.Fatal(err)
		}
		found, err := r.Verify(t.Context())
		if err != nil || len(found.Differences) != 1 || !strings.Contains(found.Differences[0], path.Base(name)) {
			t.Errorf("%s: %q, %v", name, found.Differences, err)
		}
		write(t, dir.path(name), content)
	}
	if found, err := r.Verify(t.Context()); err != nil || len(found.Differences) > 0 {
		t.Errorf("after a second copy: %q, %v", found.Differences, err)
	}
}

func TestRelocation_RefusesRoutesThatItCannotTake(t *testing.T) {
	t.Parallel()
	c := newCopier(t)
	dir, bucket := t.TempDir(), c.open("s3://videos/data")
	for text, r := range map[string]Relocation{
		"is the old location":           {PublishContent: {bucket, bucket}},
		"no such file":                  {PublishContent: {Location{Dir: filepath.Join(dir, "missing")}, bucket}},
		dir + " is the old location":    {DataContent: {Location{Dir: dir}, Location{Dir: dir}}},
		"not a directory":               {DataContent: {Location{Dir: os.DevNull}, bucket}},
		"s3://videos/data is the old":   {DataContent: {bucket, c.open("s3://videos/data")}},
		"read the old location: stat /": {DataContent: {Location{Dir: "/nothing/there"}, bucket}},
	} {
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if tasks, err := (Location{Dir: dir}).tasks(t.Context(), tasksName); err != nil || len(tasks) > 0 {
		t.Errorf("%v, %v", tasks, err)
	}
	if err := os.MkdirAll(filepath.Join(dir, tasksName, store.ID{15: 7}.String()), 0o755); err != nil {
		t.Fatal(err)
	}
	if tasks, err := (Location{Dir: dir}).tasks(t.Context(), tasksName); err != nil || len(tasks) != 1 {
		t.Errorf("%v, %v", tasks, err)
	}
}
