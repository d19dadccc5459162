package video

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cuelight/cuelight/stages"
)

// moveSources moves results and stored sources from one location to another, and removes them from there.
func (h *bucketHosts) moveSources(from, to Location) {
	h.t.Helper()
	m := &Move{Data: Route{from, to}}
	if err := moveAll(h.t.Context(), m); err != nil {
		h.t.Fatal(err)
	}
	if err := errors.Join(m.Remove(h.t.Context(), h.job.Task), m.RemoveSources(h.t.Context())); err != nil {
		h.t.Fatal(err)
	}
	if names, err := m.sources(h.t.Context()); from.Bucket != nil && (err != nil || len(names) > 0) {
		h.t.Errorf("left in %s: %q, %v", from, names, err)
	}
}

// stagesAt returns the stages with their results in a location.
func (h *bucketHosts) stagesAt(data Location) []stages.Stage {
	h.t.Helper()
	c := Config{
		DataDir: data.Dir, PublishDir: h.t.TempDir(), Bucket: data.Bucket, Tools: testTools,
	}
	if data.Bucket != nil {
		c.DataDir = h.t.TempDir()
	}
	return Stages(c)
}

// storedIn lists the stored sources in a location.
func storedIn(t *testing.T, l Location) []string {
	t.Helper()
	names, err := (&Move{Data: Route{From: l}}).sources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestMove_TasksWithStoredSourcesAreIngestedAfterwards(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"pending", "retried"} {
		for _, kind := range []string{"bucket", "directory", "directory and another bucket"} {
			t.Run(before+"/"+kind, func(t *testing.T) {
				t.Parallel()
				h := newBucketHosts(t)
				received := filepath.Join(t.TempDir(), "received")
				write(t, received, read(t, clips.picture))
				h.receive(received, "Ein Film ü?.mp4")
				if err := os.Remove(received); err != nil {
					t.Fatal(err)
				}
				if before == "retried" {
					h.mustRun(ingestStage)
					h.mustRun(metadataStage)
				}
				at := Location{Bucket: h.bucket("data")}
				for to := range strings.SplitSeq(kind, " and ") {
					next := Location{Bucket: h.bucket("other")}
					if to == "directory" {
						next = Location{Dir: t.TempDir()}
					}
					h.moveSources(at, next)
					at = next
				}
				all := h.stagesAt(at)
				if err := h.run(all, ingestStage); err != nil {
					t.Fatalf("ingest: %v (permanent: %t)", err, stages.IsPermanent(err))
				}
				if in := h.ingested(); in.Name != "Ein Film ü?.mp4" || path.Ext(in.File) != ".mp4" {
					t.Errorf("ingest returned %+v", in)
				}
				for _, stage := range []string{metadataStage, transcodeStage, assembleStage} {
					if err := h.run(all, stage); err != nil {
						t.Fatalf("%s: %v", stage, err)
					}
				}
				if left := storedIn(t, at); len(left) > 0 {
					t.Errorf("left in the new location: %q", left)
				}
				if err := h.run(all, ingestStage); err != nil {
					t.Errorf("ingest from its own copy: %v", err)
				}
			})
		}
	}
}

func TestMove_WithoutItsStoredSourceATaskFailsForGood(t *testing.T) {
	t.Parallel()
	h := newBucketHosts(t)
	h.job.Source = h.bucket("data").SourceAddress("upload-2", "film.mp4")
	for _, l := range []Location{{Dir: t.TempDir()}, {Bucket: h.bucket("other")}} {
		if err := h.run(h.stagesAt(l), ingestStage); !stages.IsPermanent(err) || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", l, err)
		}
	}
}

func TestMove_LeavesForeignFilesNextToStoredSources(t *testing.T) {
	t.Parallel()
	h := newMoveTest(t)
	foreign := []string{"film.mp4", "films/holiday.mp4", "upload-2/source.mp4", "upload-2/other.mp4"}
	for _, name := range foreign {
		file := filepath.Join(h.DataDir, sourcesDir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, file, "x")
	}
	m := h.toBucket()
	if err := moveAll(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if err := m.RemoveSources(t.Context()); err != nil {
		t.Fatal(err)
	}
	if moved := storedIn(t, m.Data.To); len(moved) != 1 || moved[0] != movedSource {
		t.Errorf("it moved %q", moved)
	}
	for _, name := range append(foreign, "upload-1/source.mp4") {
		if !exists(filepath.Join(h.DataDir, sourcesDir, name)) {
			t.Errorf("%s was removed", name)
		}
	}
}

func TestMove_RefusesSourcesThatItWouldNotCopy(t *testing.T) {
	t.Parallel()
	h := newBucketHosts(t)
	old := Location{Bucket: h.bucket("data")}
	mark := func() {
		if err := old.writeMoved(context.Background(), DataContent, Moved{To: "s3://elsewhere"}); err != nil {
			t.Error(err)
		}
	}
	refused := func(id string) {
		t.Helper()
		_, err := h.bucket("data").StoreSource(t.Context(), id, clips.picture, "film.mp4")
		if err == nil || !strings.Contains(err.Error(), "was moved to s3://elsewhere") {
			t.Errorf("%s: %v", id, err)
		}
	}
	var once sync.Once
	h.proxy.Observe(func(_ int, r *http.Request) {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, sourcesDir) {
			once.Do(mark) // a move begins while the source is being stored
		}
	}, nil)
	refused("upload-1")
	h.proxy.Observe(nil, nil)
	refused("upload-2")
	if left := storedIn(t, old); len(left) > 1 {
		t.Errorf("what is refused from the beginning was stored: %q", left)
	}
}

func TestStoredSourceID_IsThatOfItsAddressOnly(t *testing.T) {
	t.Parallel()
	for address, id := range map[string]string{
		"s3://videos/sources/upload-1/film.mp4":       "upload-1",
		"s3://videos/a/sources/b/sources/x/%2Ffilm":   "x",
		"s3://videos/data/tasks/upload-1/film.mp4":    "",
		"s3://sources/upload-1/film.mp4":              "",
		"s3://videos/sources/../film.mp4":             "",
		"s3://videos/sources//film.mp4":               "",
		"/videos/data/sources/upload-1/film.mp4":      "",
		"https://videos/data/sources/upload-1/film":   "",
		"s3://videos/sources/upload-1/film.mp4/again": "",
	} {
		if got := StoredSourceID(address); got != id {
			t.Errorf("%s: %q", address, got)
		}
	}
}
