package video

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/stages"
)

// relocateSources copies results and stored sources from one location to another, and records that.
func (h *bucketHosts) relocateSources(from, to Location) {
	h.t.Helper()
	copier{h.t, h.server}.relocate(Relocation{DataContent: {from, to}})
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
	names, err := l.storedSources(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestRelocation_TasksWithStoredSourcesAreIngestedAfterwards(t *testing.T) {
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
					h.relocateSources(at, next)
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

func TestRelocation_WithoutItsStoredSourceATaskFailsForGood(t *testing.T) {
	t.Parallel()
	h := newBucketHosts(t)
	h.job.Source = h.bucket("data").SourceAddress("upload-2", "film.mp4")
	for _, l := range []Location{{Dir: t.TempDir()}, {Bucket: h.bucket("other")}} {
		if err := h.run(h.stagesAt(l), ingestStage); !stages.IsPermanent(err) || !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", l, err)
		}
	}
}

func TestRelocation_LeavesForeignFilesNextToStoredSources(t *testing.T) {
	t.Parallel()
	h := newRelocationTest(t)
	foreign := []string{"film.mp4", "films/holiday.mp4", "upload-2/source.mp4", "upload-2/other.mp4"}
	for _, name := range foreign {
		file := filepath.Join(h.DataDir, sourcesDir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, file, "x")
	}
	if found := storedIn(t, h.DataLocation()); len(found) != 1 || found[0] != storedSourceName {
		t.Errorf("it takes %q for stored sources", found)
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
