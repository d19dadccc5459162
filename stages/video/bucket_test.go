package video

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/internal/storage/s3test"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// bucketHosts are hosts that share a bucket and nothing else.
type bucketHosts struct {
	t       *testing.T
	server  *s3test.Server
	proxy   *s3test.Proxy
	dir     string // of the server's files
	env     func(string) string
	job     *stages.Job
	results map[string]json.RawMessage // by stage
}

func newBucketHosts(t *testing.T) *bucketHosts {
	t.Helper()
	if clips.picture == "" {
		t.Skip("there is no ffmpeg here")
	}
	server := s3test.Start(t, s3test.Options{})
	server.MakeBucket(t, "videos")
	h := &bucketHosts{
		t: t, server: server, proxy: s3test.NewProxy(t, server), dir: server.Dir, results: make(map[string]json.RawMessage),
	}
	h.env = func(name string) string {
		if name == "AWS_ENDPOINT_URL" {
			return h.proxy.Endpoint
		}
		return server.Env()(name)
	}
	h.job = &stages.Job{
		Task: store.ID{15: 7}, Source: clips.picture, Attempt: 1,
		Results: func(_ context.Context, stage string) (json.RawMessage, error) {
			if raw := h.results[stage]; raw != nil {
				return raw, nil
			}
			return nil, store.ErrNotFound
		},
	}
	return h
}

// bucket opens the bucket at a prefix.
func (h *bucketHosts) bucket(prefix string) *Bucket {
	h.t.Helper()
	b, err := OpenBucket("s3://videos/"+prefix, h.env)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(b.Close)
	return b
}

// host returns the stages of another host.
func (h *bucketHosts) host() []stages.Stage {
	h.t.Helper()
	return Stages(Config{
		DataDir: h.t.TempDir(), PublishDir: h.t.TempDir(), Bucket: h.bucket("data"), PublishBucket: h.bucket("public"),
		Tools: testTools,
	})
}

// run runs a stage and remembers its result.
func (h *bucketHosts) run(all []stages.Stage, name string) error {
	h.t.Helper()
	i := slices.IndexFunc(all, func(s stages.Stage) bool { return s.Name == name })
	result, err := do(h.t.Context(), all[i], h.job)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(result)
	if err != nil {
		h.t.Fatal(err)
	}
	h.results[name] = raw
	return nil
}

func (h *bucketHosts) mustRun(name string) {
	h.t.Helper()
	if err := h.run(h.host(), name); err != nil {
		h.t.Fatalf("%s: %v", name, err)
	}
}

// published reads the stable manifests and everything that they refer to, and returns the
// generations that they name; empty for a manifest that does not exist.
func (h *bucketHosts) published() (generations [2]string) {
	h.t.Helper()
	public := h.bucket("public").storage
	for i, name := range []string{media.MasterName, media.ManifestName} {
		text, _, err := public.ReadDocument(context.Background(), path.Join(h.job.Task.String(), name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			h.t.Fatal(err)
		}
		served := generationSet{}
		served.add(string(text))
		if len(served) != 1 {
			h.t.Fatalf("%s refers to the generations %v", name, served)
		}
		for _, generation := range served {
			generations[i] = generation
			dir := path.Join(h.t.TempDir(), "copy")
			if _, err := public.GetArtifact(context.Background(), path.Join(h.job.Task.String(), generation), dir, nil, nil); err != nil {
				h.t.Fatalf("%s refers to %s, which is not whole: %v", name, generation, err)
			}
			var out Transcode
			if err := json.Unmarshal(h.results[transcodeStage], &out); err != nil {
				h.t.Fatal(err)
			}
			wantPlayable(h.t, path.Join(dir, name), append(slices.Clone(out.Output.Video), out.Output.Audio...))
		}
	}
	return generations
}

func TestBucket_HostsThatShareNothingElsePublishAVideo(t *testing.T) {
	t.Parallel()
	h := newBucketHosts(t)
	for _, stage := range []string{ingestStage, transcodeStage, metadataStage, assembleStage, publishStage} {
		h.mustRun(stage) // each on a host of its own
	}
	first := h.published()
	if first[0] == "" || first[0] != first[1] {
		t.Fatalf("the stable manifests refer to %q", first)
	}
	// Running stages again makes newer results, on whatever host, and removes the older ones.
	h.mustRun(transcodeStage)
	h.mustRun(assembleStage)
	h.mustRun(publishStage)
	second := h.published()
	if second[0] == first[0] || !strings.HasPrefix(second[0], "gen-0002-") {
		t.Errorf("the second generation is %s, the first was %s", second[0], first[0])
	}
	left, err := h.bucket("data").storage.ListArtifacts(t.Context(), path.Join("tasks", h.job.Task.String()))
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range left {
		if strings.HasPrefix(path.Base(a.Name), "transcode-0001-") {
			t.Errorf("%s is still there", a.Name)
		}
	}
}

func TestBucket_NoFailureLeavesAPublishHalfDone(t *testing.T) {
	t.Parallel()
	h := newBucketHosts(t)
	for _, stage := range []string{ingestStage, transcodeStage, metadataStage, assembleStage, publishStage} {
		h.mustRun(stage)
	}
	host := h.host()
	h.proxy.Reset()
	if err := h.run(host, publishStage); err != nil {
		t.Fatal(err)
	}
	requests := h.proxy.Reset()
	// Package storage tests every request of its operations; here every fault meets some requests.
	for i, fault := range []s3test.Fault{s3test.CutBefore, s3test.CutAfter, s3test.ServerError} {
		for at := 1 + i; at <= requests; at += 1 + requests/3 {
			before := h.published()
			h.proxy.Reset()
			// From this request on the service is away, also for repeated requests.
			h.proxy.Inject(func(number int, _ *http.Request) s3test.Fault {
				if number < at {
					return ""
				}
				if number == at {
					return fault
				}
				return s3test.CutBefore
			})
			err := h.run(host, publishStage)
			h.proxy.Inject(nil)
			h.proxy.Wait()
			if err == nil {
				t.Fatalf("%s at request %d: publish succeeded without the service", fault, at)
			}
			if !stages.IsPostponed(err) {
				t.Errorf("%s at request %d: the attempt counts: %v", fault, at, err)
			}
			// Each manifest has the old or the new generation, and both are whole.
			during := h.published()
			if during[0] == "" || during[1] == "" {
				t.Fatalf("%s at request %d: the stable manifests refer to %q, before to %q", fault, at, during, before)
			}
			if err := h.run(host, publishStage); err != nil {
				t.Fatalf("%s at request %d: the next attempt failed: %v", fault, at, err)
			}
			if after := h.published(); after[0] != after[1] || after[0] == before[0] {
				t.Fatalf("%s at request %d: the next attempt published %q", fault, at, after)
			}
		}
	}
}

func TestBucket_PublishesFromADirectory(t *testing.T) {
	t.Parallel()
	h := newBucketHosts(t)
	all := Stages(Config{
		DataDir: t.TempDir(), PublishDir: t.TempDir(), PublishBucket: h.bucket("public"), Tools: testTools,
	})
	for _, stage := range []string{ingestStage, transcodeStage, metadataStage, assembleStage, publishStage} {
		if err := h.run(all, stage); err != nil {
			t.Fatalf("%s: %v", stage, err)
		}
	}
	if got := h.published(); got[0] == "" || got[0] != got[1] {
		t.Errorf("the stable manifests refer to %q", got)
	}
	if _, err := os.Stat(clips.picture); err != nil {
		t.Errorf("the source: %v", err)
	}
}
