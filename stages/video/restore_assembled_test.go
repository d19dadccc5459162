package video

import (
	"context"
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/storage/s3test"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// newPublished returns a harness whose task is published, with recorded results.
func newPublished(t *testing.T) (*harness, allResults) {
	t.Helper()
	h, m := readyHarness(t)
	h.mustPublish(m)
	results := make(map[string]json.RawMessage)
	for stage, result := range map[string]any{ingestStage: m.in, transcodeStage: m.tr, metadataStage: m.md, assembleStage: m.as} {
		raw, err := json.Marshal(result)
		if err != nil {
			t.Fatal(err)
		}
		results[stage] = raw
	}
	h.job.Results = func(_ context.Context, stage string) (json.RawMessage, error) { return results[stage], nil }
	return h, m
}

// removeSourceCopies removes the copies of a task that was completed long ago.
func removeSourceCopies(t *testing.T, c Config) CleanResult {
	t.Helper()
	c.KeepSourceCopies = time.Hour
	cleaner := Cleaner{Config: c, Completed: func(_ context.Context, tasks []store.ID, _ time.Duration) ([]store.ID, error) {
		return tasks, nil
	}}
	done, err := cleaner.Clean(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// unpublishTask does what a process does with the job's deleted task.
func unpublishTask(t *testing.T, c Config, job *stages.Job, purge bool) {
	t.Helper()
	task := store.DeletedTask{ID: job.Task, Source: job.Source, DeletedAt: time.Now()}
	if purge {
		task.PurgeAt = &task.DeletedAt
	}
	retention := c.Retention(func(ctx context.Context, _ store.ID, stage string) (json.RawMessage, error) {
		return job.Results(ctx, stage)
	})
	for range 2 { // it is repeatable, and repeated a minute later
		if err := retention.Unpublish(t.Context(), task); err != nil {
			t.Fatal(err)
		}
	}
}

func (h *harness) mustFindGeneration(as Assemble) string {
	h.t.Helper()
	name, err := h.PublishLocation().findGeneration(h.t.Context(), h.job.Task, as)
	if err != nil || name == "" {
		h.t.Fatalf("generation is %q, %v", name, err)
	}
	return name
}

func (h *harness) mustPublishAgain(m allResults) {
	h.t.Helper()
	result, err := h.Publish().Work(h.t.Context(), h.job)
	if err != nil {
		h.t.Fatal(err)
	}
	wantPlayable(h.t, filepath.Join(h.PublishDir, result.(Publish).Master), m.tr.Output.Video)
}

func TestUnpublish_KeepsTheOnlyCopyOfAVideo(t *testing.T) {
	t.Parallel()
	for name, separate := range map[string]bool{"one file system": false, "two file systems": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, m := newPublished(t)
			if separate {
				h.DataDir = otherFileSystem(t)
			}
			for range 2 { // deleted, restored, and deleted again
				removeSourceCopies(t, h.Config)
				unpublishTask(t, h.Config, h.job, false)
				if exists(h.PublishedDir(h.job.Task)) {
					t.Fatalf("published files are %q", list(t, h.PublishedDir(h.job.Task)))
				}
				before := snapshot(t, h.DataDir)
				h.mustClean(-1)
				wantSame(t, before, snapshot(t, h.DataDir))
				h.mustPublishAgain(m)
			}
			unpublishTask(t, h.Config, h.job, false)
			if err := h.removeFiles(t.Context(), store.DeletedTask{ID: h.job.Task}); err != nil {
				t.Fatal(err)
			}
			if exists(h.TaskDir(h.job.Task)) || exists(h.PublishedDir(h.job.Task)) {
				t.Error("after the purge, directories of the task are left")
			}
		})
	}
}

func TestUnpublish_KeepsNothingOfATaskThatIsPurgedAtOnce(t *testing.T) {
	t.Parallel()
	h, _ := newPublished(t)
	removeSourceCopies(t, h.Config)
	unpublishTask(t, h.Config, h.job, true)
	if exists(h.TaskDir(h.job.Task)) || exists(h.PublishedDir(h.job.Task)) {
		t.Error("directories of the task are left")
	}
}

func TestUnpublish_ContinuesAfterACrash(t *testing.T) {
	t.Parallel()
	crashes := map[string]func(*harness, allResults) error{
		"after the manifests": func(h *harness, _ allResults) error {
			return os.Remove(filepath.Join(h.PublishedDir(h.job.Task), "master.m3u8"))
		},
		"during the copy": func(h *harness, m allResults) error {
			generation := filepath.Join(h.PublishDir, h.mustFindGeneration(m.as))
			text := read(h.t, filepath.Join(generation, "master.m3u8"))
			tmp := filepath.Join(h.TaskDir(h.job.Task), m.as.Dir+".tmp")
			write(h.t, filepath.Join(tmp, "master.m3u8"), text)
			write(h.t, filepath.Join(tmp, "manifest.mpd"), "<?xml")
			return nil
		},
		"after the copy": func(h *harness, _ allResults) error {
			return h.restoreAssembled(h.t.Context(), h.job.Task, h.job.Results, nil)
		},
		"of the cleaner before": func(h *harness, m allResults) error {
			write(h.t, filepath.Join(h.TaskDir(h.job.Task), m.as.Dir, "master.m3u8"), "#EXTM3U")
			return nil
		},
	}
	for name, crash := range crashes {
		dataDir := (*testing.T).TempDir
		if name == "during the copy" {
			dataDir = otherFileSystem
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, m := newPublished(t)
			removeSourceCopies(t, h.Config)
			h.DataDir = dataDir(t)
			if err := crash(h, m); err != nil {
				t.Fatal(err)
			}
			unpublishTask(t, h.Config, h.job, false)
			if got := list(t, h.TaskDir(h.job.Task)); !slices.Equal(got, []string{m.as.Dir}) {
				t.Errorf("the task's directory has %q", got)
			}
			h.mustPublishAgain(m)
		})
	}
}

func TestUnpublish_WaitsForTheRemovalOfSourceCopies(t *testing.T) {
	t.Parallel()
	h, m := newPublished(t)
	h.KeepSourceCopies = time.Hour
	unpublished := make(chan struct{})
	asked := 0
	cleaner := Cleaner{Config: h.Config, Completed: func(_ context.Context, tasks []store.ID, _ time.Duration) ([]store.ID, error) {
		if asked++; asked == 2 { // the task is deleted after the answer
			go func() {
				defer close(unpublished)
				unpublishTask(t, h.Config, h.job, false)
			}()
			waittest.Until(t, "the manifests are removed", func() bool {
				return !exists(filepath.Join(h.PublishedDir(h.job.Task), "manifest.mpd"))
			})
		}
		return tasks, nil
	}}
	if _, err := cleaner.Clean(t.Context()); err != nil {
		t.Error(err)
	}
	<-unpublished
	h.mustPublishAgain(m)
}

// The task was deleted and restored before a process unpublished it.
func TestPublish_RestoresTheResultThatOnlyThePublishedVideoHas(t *testing.T) {
	t.Parallel()
	h, m := newPublished(t)
	removeSourceCopies(t, h.Config)
	h.mustPublishAgain(m)
}

func TestUnpublish_KeepsTheOnlyCopyOfAVideoWithBuckets(t *testing.T) {
	t.Parallel()
	for name, layout := range map[string]struct{ data, public, other bool }{
		"of all": {data: true, public: true}, "of results": {data: true}, "of published videos": {public: true},
		"of two services": {data: true, public: true, other: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newBucketHosts(t)
			c := Config{DataDir: t.TempDir(), PublishDir: t.TempDir(), Tools: testTools}
			if layout.data {
				c.Bucket = h.bucket("data")
			}
			if layout.public {
				c.PublishBucket = h.bucket("public")
			}
			if layout.other {
				other := s3test.Start(t, s3test.Options{})
				other.MakeBucket(t, "videos")
				c.PublishBucket = copier{t, other}.open("s3://videos/public").Bucket
			}
			for _, stage := range []string{ingestStage, transcodeStage, metadataStage, assembleStage, publishStage} {
				if err := h.run(Stages(c), stage); err != nil {
					t.Fatalf("%s: %v", stage, err)
				}
			}
			for _, deletes := range []bool{true, true, false} {
				if done := removeSourceCopies(t, c); done.SourceCopies != 1 {
					t.Errorf("the cleanup removed %+v", done)
				}
				if found, err := c.DataLocation().finished(t.Context(), path.Join(tasksName, h.job.Task.String())); err != nil || len(found) > 0 {
					t.Fatalf("after the cleanup: %v, %v", found, err)
				}
				if deletes {
					unpublishTask(t, c, h.job, false)
					if stable, err := c.PublishLocation().readStable(t.Context(), h.job.Task); err != nil || stable.newest() > 0 {
						t.Errorf("the stable manifests are %+v, %v", stable, err)
					}
					if found, err := c.PublishLocation().finished(t.Context(), h.job.Task.String()); err != nil || len(found) > 0 {
						t.Errorf("published generations are %v, %v", found, err)
					}
				}
				// Another host restores the video.
				other := c
				if other.Bucket != nil {
					other.DataDir, other.Bucket = t.TempDir(), h.bucket("data")
				}
				if err := h.run(Stages(other), publishStage); err != nil {
					t.Fatal(err)
				}
				switch {
				case layout.other:
					if stable, err := c.PublishLocation().readStable(t.Context(), h.job.Task); err != nil || stable.newest() == 0 {
						t.Errorf("the stable manifests are %+v, %v", stable, err)
					}
				case layout.public:
					if got := h.published(); got[0] == "" || got[0] != got[1] {
						t.Errorf("the stable manifests refer to %q", got)
					}
				default:
					var out Transcode
					if err := json.Unmarshal(h.results[transcodeStage], &out); err != nil {
						t.Fatal(err)
					}
					wantPlayable(t, filepath.Join(c.PublishedDir(h.job.Task), "master.m3u8"), out.Output.Video)
				}
			}
		})
	}
}

func TestUnpublish_WithoutRoomForTheOnlyCopyLeavesTheGenerationUntilThePurge(t *testing.T) {
	t.Parallel()
	h, m := newPublished(t)
	removeSourceCopies(t, h.Config)
	h.DataDir, h.Reserve = otherFileSystem(t), 1<<60
	task := store.DeletedTask{ID: h.job.Task}
	if err := h.unpublish(t.Context(), task, h.job.Results); err == nil {
		t.Error("it succeeded")
	}
	if exists(filepath.Join(h.PublishedDir(h.job.Task), "master.m3u8")) {
		t.Error("the manifest is there")
	}
	h.mustFindGeneration(m.as)
	if err := h.removeFiles(t.Context(), task); err != nil {
		t.Error(err)
	}
	if exists(h.TaskDir(h.job.Task)) || exists(h.PublishedDir(h.job.Task)) {
		t.Error("after the purge, directories of the task are left")
	}
}
