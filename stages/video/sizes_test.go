package video

import (
	"context"
	"os"
	"path"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/cuelight/cuelight/store"
)

var measuredTask = store.ID{15: 7}

// measuredFiles are the files of a task in two directories.
type measuredFiles struct {
	t *testing.T
	Config
}

func newMeasuredFiles(t *testing.T) measuredFiles {
	dir := t.TempDir()
	return measuredFiles{t, Config{DataDir: filepath.Join(dir, "data"), PublishDir: filepath.Join(dir, "published")}}
}

// data and published are the paths of names in the task's directories.
func (f measuredFiles) data(name string) string { return filepath.Join(f.TaskDir(measuredTask), name) }
func (f measuredFiles) published(name string) string {
	return filepath.Join(f.PublishedDir(measuredTask), name)
}

func (f measuredFiles) write(file string, size int) {
	f.t.Helper()
	f.must(os.MkdirAll(filepath.Dir(file), 0o755))
	f.must(os.WriteFile(file, make([]byte, size), 0o644))
}

func (f measuredFiles) link(from, to string) {
	f.t.Helper()
	f.must(os.MkdirAll(filepath.Dir(to), 0o755))
	f.must(os.Link(from, to))
}

func (f measuredFiles) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// serve makes a generation the served one.
func (f measuredFiles) serve(generation string) {
	f.t.Helper()
	f.must(os.WriteFile(f.published("master.m3u8"), []byte("#EXTM3U\n"+generation+"/video/720p.m3u8\n"), 0o644))
}

func measureOne(t *testing.T, c Config, tasks []store.ID) (found TaskSizes) {
	t.Helper()
	n := 0
	err := c.MeasureTasks(t.Context(), tasks, func(s TaskSizes) error {
		found = s
		n++
		return nil
	})
	if err != nil || n != 1 {
		t.Fatalf("%d tasks, %v", n, err)
	}
	return found
}

func wantSizes(t *testing.T, got, want TaskSizes) {
	t.Helper()
	want.Task = measuredTask
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(TaskSizes{})); diff != "" {
		t.Error(diff)
	}
}

func TestMeasureTasks_CountsHardLinksOnce(t *testing.T) {
	t.Parallel()
	f := newMeasuredFiles(t)
	segment, old := f.data("transcode-0001-aaaaaaaaaa/video/1.m4s"), f.data("transcode-0001-aaaaaaaaaa/video/2.m4s")
	f.write(f.data("ingest-0001-aaaaaaaaaa/source.mp4"), 1000)
	f.write(segment, 200)
	f.write(old, 30)
	f.write(f.data("metadata-0001-aaaaaaaaaa/metadata.json"), 4)
	f.write(f.data("transcode-0002-aaaaaaaaaa.tmp/video/1.m4s"), 50_000)
	f.write(f.data(partialDownload), 600_000)
	f.write(f.data("notes/mine.txt"), 7_000_000)
	f.link(segment, f.data("assemble-0001-aaaaaaaaaa/video/1.m4s"))
	f.link(segment, f.published("gen-0002-aaaaaaaaaa/video/1.m4s"))
	f.link(old, f.published("gen-0001-aaaaaaaaaa/video/2.m4s"))
	f.write(f.published("gen-0001-aaaaaaaaaa/own.m4s"), 80)
	f.link(f.published("gen-0001-aaaaaaaaaa/own.m4s"), f.published("gen-0001-aaaaaaaaaa/twice.m4s"))
	f.write(f.published("gen-0003-aaaaaaaaaa/next.m4s"), 9)
	f.serve("gen-0002-aaaaaaaaaa")
	master := int64(len("#EXTM3U\ngen-0002-aaaaaaaaaa/video/720p.m3u8\n"))
	then := time.Now().Add(-10 * 24 * time.Hour)
	f.must(os.Chtimes(f.published("gen-0001-aaaaaaaaaa"), then, then))

	got := measureOne(t, f.Config, nil)
	wantSizes(t, got, TaskSizes{
		Data:      DataSizes{Source: 1000, Results: 4, Unfinished: 650_000, Other: 7_000_000},
		Published: PublishedSizes{Served: 200 + master, Replaced: 110, Unfinished: 9},
		FreedData: 651_004, // the other results have links in published generations
		FreedAll:  651_004 + 200 + master + 110 + 9,
	})
	if total := got.Total(); total != 7_651_004+200+master+110+9 {
		t.Errorf("the total is %d", total)
	}
	// The results have a link of one of its files.
	for keep, want := range map[time.Duration]int64{24 * time.Hour: 80, 10 * 24 * time.Hour: 0} {
		if freed := got.FreedReplaced(keep); freed != want {
			t.Errorf("--keep-old %s would free %d, want %d", keep, freed, want)
		}
	}
}

func TestMeasureTasks_FreesNoFileWithALinkElsewhere(t *testing.T) {
	t.Parallel()
	f := newMeasuredFiles(t)
	source := filepath.Join(t.TempDir(), "film.mp4")
	f.write(source, 1000)
	f.link(source, f.data("ingest-0001-aaaaaaaaaa/source.mp4"))
	wantSizes(t, measureOne(t, f.Config, []store.ID{measuredTask}), TaskSizes{Data: DataSizes{Source: 1000}})
}

func TestMeasureTasks_FollowsNoSymbolicLink(t *testing.T) {
	t.Parallel()
	f := newMeasuredFiles(t)
	elsewhere := t.TempDir()
	f.write(filepath.Join(elsewhere, "large.mp4"), 1000)
	f.write(f.data("ingest-0001-aaaaaaaaaa/source.mp4"), 5)
	f.must(os.Symlink(elsewhere, f.data("ingest-0001-aaaaaaaaaa/dir")))
	f.must(os.Symlink(elsewhere, f.data("transcode-0001-aaaaaaaaaa")))
	f.must(os.Symlink(filepath.Join(elsewhere, "large.mp4"), f.data("ingest-0001-aaaaaaaaaa/file.mp4")))
	wantSizes(t, measureOne(t, f.Config, nil), TaskSizes{Data: DataSizes{Source: 5}, FreedData: 5, FreedAll: 5})
}

func TestMeasureTasks_OfATaskWithoutFilesIsZero(t *testing.T) {
	t.Parallel()
	f := newMeasuredFiles(t)
	wantSizes(t, measureOne(t, f.Config, []store.ID{measuredTask}), TaskSizes{})
	err := f.MeasureTasks(t.Context(), nil, func(s TaskSizes) error {
		t.Errorf("measured %+v in directories that do not exist", s)
		return nil
	})
	f.must(err)
}

func TestMeasureTasks_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	f := newMeasuredFiles(t)
	for i := range byte(3) {
		f.must(os.MkdirAll(f.TaskDir(store.ID{15: i}), 0o755))
	}
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	err := f.MeasureTasks(ctx, nil, func(TaskSizes) error {
		n++
		cancel()
		return nil
	})
	if err == nil || n == 3 {
		t.Errorf("it measured %d tasks and returned %v", n, err)
	}
}

func TestMeasureTasks_AddsUpObjectsOfBuckets(t *testing.T) {
	t.Parallel()
	c := newBucketCleaner(t)
	c.job.Task = measuredTask
	task := path.Join(tasksName, c.job.Task.String())
	c.put("data", path.Join(task, "ingest-0001-aaaaaaaaaa"), 1000, false)
	c.put("data", path.Join(task, "transcode-0001-aaaaaaaaaa"), 200, false)
	c.put("data", path.Join(task, "transcode-0002-aaaaaaaaaa"), 300, true)
	c.put("data", path.Join(sourcesDir, "x"), 40, false)
	for _, generation := range []string{"gen-0001-aaaaaaaaaa", "gen-0002-aaaaaaaaaa"} {
		c.put("public", path.Join(c.job.Task.String(), generation), 5000, false)
	}
	master := []byte("#EXTM3U\ngen-0002-aaaaaaaaaa/video/720p.m3u8\n")
	name := path.Join(c.job.Task.String(), "master.m3u8")
	if _, err := c.bucket("public").storage.WriteDocument(t.Context(), name, master, ""); err != nil {
		t.Fatal(err)
	}
	c.age("gen-0001", 3*24*time.Hour)

	got := measureOne(t, c.cleaner.Config, nil)
	// Each artifact has a manifest besides its file.
	for kind, of := range map[string]struct{ got, files int64 }{
		"source": {got.Data.Source, 1000}, "results": {got.Data.Results, 200}, "served": {got.Published.Served, 5000 + int64(len(master))},
		"replaced": {got.Published.Replaced, 5000}, "replaced 2 days ago": {got.FreedReplaced(48 * time.Hour), 5000},
	} {
		if of.got <= of.files || of.got > of.files+1000 {
			t.Errorf("%s: %d bytes, want %d and a manifest", kind, of.got, of.files)
		}
	}
	if got.Data.Unfinished != 300 || got.FreedReplaced(72*time.Hour) != 0 {
		t.Errorf("unfinished %d, freed %d", got.Data.Unfinished, got.FreedReplaced(72*time.Hour))
	}
	if all := got.Total(); got.FreedAll != all || got.FreedData != all-got.Published.Served-got.Published.Replaced {
		t.Errorf("of %d bytes, the removal of all would free %d, of the data %d", all, got.FreedAll, got.FreedData)
	}
	shared, err := c.cleaner.Config.MeasureShared(t.Context())
	if err != nil || shared.Sources <= 40 || shared.Copies != 0 {
		t.Errorf("%+v, %v", shared, err)
	}
}
