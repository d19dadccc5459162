package video

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/internal/storage/s3test"
	"github.com/cuelight/cuelight/stages"
)

// largeClip makes a video of some hundred MB, whose index is at the end.
func largeClip(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "large.mp4")
	out, err := exec.Command("ffmpeg", "-loglevel", "error", "-f", "lavfi", "-i", "nullsrc=s=320x180:r=25:d=90,noise=alls=100:allf=t+u",
		"-c:v", "libx264", "-preset", "ultrafast", "-qp", "0", "-g", "25", "-pix_fmt", "yuv420p", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return file
}

// replaceObject changes an object of the source's artifact behind the back of Cuelight.
func (h *bucketHosts) replaceObject(name string, change func([]byte) []byte) {
	h.t.Helper()
	client, ctx := h.server.Client(h.t), context.Background()
	key := path.Join("data", artifactName(h.job.Task, filepath.Dir(h.ingested().File)), name)
	object, err := client.GetObject(ctx, "videos", key, minio.GetObjectOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	defer object.Close()
	content, err := io.ReadAll(object)
	if err != nil {
		h.t.Fatal(err)
	}
	content = change(content)
	_, err = client.PutObject(ctx, "videos", key, bytes.NewReader(content), int64(len(content)), minio.PutObjectOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
}

func TestBucket_MetadataReadsAPartOfALargeSource(t *testing.T) {
	t.Parallel()
	h := newBucketHosts(t)
	if err := (Tools{}).CheckServe(); err != nil {
		t.Skip(err)
	}
	h.receive(largeClip(t), "large.mp4")
	h.mustRun(ingestStage)
	size := h.ingested().Bytes
	received := func() int64 {
		h.proxy.Reset()
		h.mustRun(metadataStage)
		_, received := h.proxy.Bytes()
		return received
	}
	parts := received()
	t.Logf("the poster of %d MiB took %d MiB", size>>20, parts>>20)
	if parts > size/3 {
		t.Errorf("%d of %d bytes were read", parts, size)
	}
	// An older version has stored no hashes of blocks.
	h.replaceObject(".cuelight-manifest.json", func(text []byte) []byte {
		return regexp.MustCompile(`(?s),\s*"blocks": \[.*?\]`).ReplaceAll(text, nil)
	})
	if whole := received(); whole < size {
		t.Errorf("without hashes of blocks, %d of %d bytes were read", whole, size)
	}
}

func TestBucket_FailuresOfTheServiceDoNotCountWhileASourceIsRead(t *testing.T) {
	t.Parallel()
	h := newBucketHosts(t)
	h.mustRun(ingestStage)
	for _, stage := range []string{transcodeStage, metadataStage} {
		for _, fault := range []s3test.Fault{s3test.CutBefore, s3test.ServerError, s3test.Truncate} {
			host := h.host()
			h.proxy.Inject(func(_ int, r *http.Request) s3test.Fault {
				if strings.Contains(r.URL.Path, "/source") {
					return fault
				}
				return ""
			})
			err := h.run(host, stage)
			h.proxy.Inject(nil)
			if service, ok := errors.AsType[*storage.ServiceError](err); !ok || !stages.IsPostponed(err) {
				t.Errorf("%s, %s: %v, %v", stage, fault, err, service)
			}
			if err := h.run(host, stage); err != nil {
				t.Errorf("%s, after %s: %v", stage, fault, err)
			}
		}
	}
}

func TestBucket_DamagedSourceIsNotTranscoded(t *testing.T) {
	t.Parallel()
	h := newBucketHosts(t)
	h.mustRun(ingestStage)
	h.replaceObject(filepath.Base(h.ingested().File), func(content []byte) []byte {
		content[len(content)/2] ^= 1
		return content
	})
	for _, stage := range []string{transcodeStage, metadataStage} {
		if err := h.run(h.host(), stage); !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("%s: %v", stage, err)
		}
	}
}
