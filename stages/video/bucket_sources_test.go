package video

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/internal/storage/s3test"
	"github.com/cuelight/cuelight/stages"
)

// receive makes a copy of a file the source of the task, as a host does that receives it.
func (h *bucketHosts) receive(file, name string) {
	h.t.Helper()
	address, err := h.bucket("data").StoreSource(h.t.Context(), "upload-1", file, name)
	if err != nil {
		h.t.Fatal(err)
	}
	h.job.Source = address
}

// ingested returns the result of ingest.
func (h *bucketHosts) ingested() (in Ingest) {
	h.t.Helper()
	if err := json.Unmarshal(h.results[ingestStage], &in); err != nil {
		h.t.Fatal(err)
	}
	return in
}

func TestBucket_AnyHostIngestsWhatAnotherReceived(t *testing.T) {
	t.Parallel()
	h := newBucketHosts(t)
	content := read(t, clips.picture)
	received := path.Join(t.TempDir(), "received")
	write(t, received, content)
	h.receive(received, "Ein Film ü?#%.mp4")
	if err := os.Remove(received); err != nil {
		t.Fatal(err)
	}
	h.proxy.Reset()
	h.mustRun(ingestStage)
	if sent, _ := h.proxy.Bytes(); sent >= int64(len(content)) {
		t.Errorf("ingest sent %d bytes to the service that has the source of %d bytes", sent, len(content))
	}
	in := h.ingested()
	if in.Name != "Ein Film ü?#%.mp4" || in.Bytes != int64(len(content)) || path.Ext(in.File) != ".mp4" {
		t.Errorf("ingest returned %+v", in)
	}
	source := h.job.Source
	h.mustRun(metadataStage)
	if _, _, err := h.bucket("data").SourceDigest(t.Context(), source); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after metadata, the copy of the receiving host: %v", err)
	}
	// Like an upload that was deleted, it is ingested again from the copy of the first time.
	h.mustRun(ingestStage)
	if again := h.ingested(); again.File == in.File || again.Name != in.Name || again.SHA256 != in.SHA256 {
		t.Errorf("the second time ingest returned %+v, the first time %+v", again, in)
	}
	h.mustRun(transcodeStage)
}

func TestStoreSource_OfAFileThatChangesLeavesOnlyWhatOthersStored(t *testing.T) {
	t.Parallel()
	h := newBucketHosts(t)
	b := h.bucket("data")
	file := path.Join(t.TempDir(), "film.mp4")
	write(t, file, "content")
	for _, storedBefore := range []bool{false, true} {
		if storedBefore { // by another process, which has made a task of it
			if _, err := b.StoreSource(t.Context(), "request-1", file, "film.mp4"); err != nil {
				t.Fatal(err)
			}
		}
		h.proxy.Observe(func(_ int, r *http.Request) {
			later := time.Now().Add(time.Hour)
			if err := os.Chtimes(file, later, later); err != nil {
				t.Error(err)
			}
		}, nil)
		_, err := b.StoreSource(t.Context(), "request-1", file, "film.mp4")
		h.proxy.Observe(nil, nil)
		if !errors.Is(err, storage.ErrChanged) {
			t.Errorf("stored before: %v: %v", storedBefore, err)
		}
		found, err := b.storage.ListArtifacts(t.Context(), sourcesDir)
		if err != nil || storedBefore != (len(found) == 1) {
			t.Errorf("stored before: %v: left %v, %v", storedBefore, found, err)
		}
	}
}

func TestBucket_IngestWithoutAnyCopyIsPermanent(t *testing.T) {
	t.Parallel()
	h := newBucketHosts(t)
	h.job.Source = h.bucket("data").SourceAddress("upload-2", "film.mp4")
	if err := h.run(h.host(), ingestStage); !stages.IsPermanent(err) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a copy that does not exist: %v", err)
	}
	// Only what StoreSource makes is a source: not every object below the address.
	h.job.Source = h.bucket("data").String() + "/tasks/x/y"
	if err := h.run(h.host(), ingestStage); !stages.IsPermanent(err) {
		t.Errorf("another object: %v", err)
	}
}

func TestBucket_FailuresOfTheServiceDoNotCountForIngest(t *testing.T) {
	t.Parallel()
	h := newBucketHosts(t)
	h.receive(clips.picture, "film.mp4")
	host := h.host()
	h.proxy.Reset()
	if err := h.run(host, ingestStage); err != nil {
		t.Fatal(err)
	}
	requests := h.proxy.Reset()
	for i, fault := range []s3test.Fault{s3test.CutBefore, s3test.ServerError, s3test.Full} {
		for at := 1 + i; at <= requests; at += 1 + requests/3 {
			h.proxy.Inject(func(number int, _ *http.Request) s3test.Fault {
				if number < at {
					return ""
				}
				return fault
			})
			err := h.run(host, ingestStage)
			h.proxy.Inject(nil)
			h.proxy.Wait()
			h.proxy.Reset()
			if err != nil && !stages.IsPostponed(err) {
				t.Errorf("%s from request %d on: the attempt counts: %v", fault, at, err)
			}
			if err := h.run(host, ingestStage); err != nil {
				t.Errorf("%s from request %d on: the next attempt: %v", fault, at, err)
			}
			h.proxy.Reset()
		}
	}
}
