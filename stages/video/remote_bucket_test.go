package video

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cuelight/cuelight/internal/storage/s3test"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func TestRemoteStages_FetchTheSourceFromTheBucket(t *testing.T) {
	t.Parallel()
	for _, bucket := range []string{"reachable", "cut in between", "not reachable", "refuses"} {
		t.Run(bucket, func(t *testing.T) {
			t.Parallel()
			h := newBucketHosts(t)
			s := newRemoteSiteOver(t, h.bucket("data"))
			source, size := paddedClip(t)
			signed, cuts := new(atomic.Int64), new(atomic.Int64)
			h.proxy.Inject(func(_ int, r *http.Request) s3test.Fault {
				if strings.HasPrefix(r.Header.Get("Authorization"), "Bearer") {
					t.Error("the key of the worker arrived at the bucket")
				}
				if !r.URL.Query().Has("X-Amz-Signature") {
					return ""
				}
				signed.Add(1)
				switch {
				case bucket == "refuses":
					return s3test.ServerError
				case bucket == "cut in between" && cuts.Add(1) == 1:
					return s3test.Truncate
				}
				return ""
			})
			s.workLocally(RemoteStageNames()...)
			link, transport := newCutter(t, s.url, 0, [2]int64{}), remote.NewTransport()
			if bucket == "not reachable" {
				transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
					if strings.HasSuffix(h.proxy.Endpoint, address) {
						return nil, errors.New("there is no route")
					}
					return new(net.Dialer).DialContext(ctx, network, address)
				}
			}
			s.workRemotelyOver(transport, link.url, "key-1", testTools)
			task := s.submit(source)
			tr, p := s.waitPublished(task)
			wantPlayable(t, filepath.Join(s.PublishDir, p.Master), append(tr.Output.Video, tr.Output.Audio...))
			history, err := s.History(t.Context(), task)
			if err != nil || len(history) != attemptsOfTask {
				t.Errorf("the history is %+v, %v", history, err)
			}
			down, fromBucket := link.through[1].Load(), bucket == "reachable" || bucket == "cut in between"
			// Workers read those blocks of a source that they need, not its padding.
			if fromBucket && down > size/2 || !fromBucket && down < size/2 {
				t.Errorf("the coordinator sent %d bytes for a source of %d", down, size)
			}
			if n := signed.Load(); fromBucket && n == 0 || bucket == "not reachable" && n > 0 {
				t.Errorf("%d signed requests arrived at the bucket", n)
			}
		})
	}
}

func TestRemoteFiles_AddressIsOfTheSourceAloneAndForGetAlone(t *testing.T) {
	t.Parallel()
	h := newBucketHosts(t)
	s := newAttackerOn(newRemoteSiteOver(t, h.bucket("data")))
	claim := "/claims/" + s.metadata.String() + "/input/"
	path := claim + s.source
	got := s.send("GET", "key-evil", path, nil, nil)
	address := got.header.Get("Location")
	if got.status != http.StatusTemporaryRedirect || len(got.body) > 0 || got.header.Get("Cache-Control") != "private, no-store" {
		t.Fatalf("the answer is %d %s %v", got.status, got.body, got.header)
	}
	direct := s.send("GET", "key-evil", path+"?redirect=no", nil, nil)
	if direct.status != http.StatusOK || string(direct.body) != read(t, clips.picture) {
		t.Errorf("without redirects: %d, %d bytes", direct.status, len(direct.body))
	}
	if other := s.send("GET", "key-2", path, nil, nil); other.status < 400 {
		t.Errorf("another key got %d", other.status)
	}
	if other := s.send("GET", "key-evil", claim+"other", nil, nil); other.status != http.StatusNotFound {
		t.Errorf("another file: %d", other.status)
	}
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	other := *u
	other.Path = strings.ReplaceAll(u.Path, filepath.Base(s.source), ".cuelight-manifest.json")
	for name, c := range map[string]struct {
		method, url string
		want        int
	}{
		"get": {"GET", address, http.StatusOK}, "put": {"PUT", address, http.StatusForbidden},
		"delete": {"DELETE", address, http.StatusForbidden}, "another object": {"GET", other.String(), http.StatusForbidden},
	} {
		r, err := http.NewRequest(c.method, c.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := s.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != c.want {
			t.Errorf("%s: %d", name, response.StatusCode)
		}
	}
}

func TestRemoteFiles_FetchAWholeSourceOnlyIfItFits(t *testing.T) {
	t.Parallel()
	h := newBucketHosts(t)
	source, size := paddedClip(t)
	h.job.Source = source
	h.mustRun(ingestStage)
	// An older version has stored no hashes of blocks, and another description of the source.
	h.replaceObject(".cuelight-manifest.json", func(text []byte) []byte {
		return regexp.MustCompile(`(?s),\s*"blocks": \[.*?\]`).ReplaceAll(text, nil)
	})
	in := h.ingested()
	in.Info.Version = 0
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	number, _ := store.Video().Stage(transcodeStage)
	claim := engine.Claim{Task: h.job.Task, Stage: number, Part: 1, Spec: wholeSpec, Attempt: 1, Token: store.ID{1}}
	for _, limit := range []int64{size, 4 * size} {
		files := NewRemoteFiles(
			Config{DataDir: t.TempDir(), PublishDir: t.TempDir(), Bucket: h.bucket("data"), ScratchLimit: limit, Reserve: -1},
			func(context.Context, store.ID, string) (json.RawMessage, error) { return raw, nil })
		isFull := func(err error) bool {
			_, ok := errors.AsType[*scratchFullError](err)
			return ok
		}
		input, err := files.OpenInput(t.Context(), claim, filepath.ToSlash(in.File))
		if fits := limit > size; isFull(err) == fits || fits == (input == nil) {
			t.Errorf("with room for %d bytes, a worker's read of %d: %v", limit, size, err)
		}
		if input != nil {
			input.Close()
			continue
		}
		if _, err := files.Accept(t.Context(), claim, json.RawMessage(`{}`)); !isFull(err) {
			t.Errorf("the check: %v", err)
		}
	}
}

// A coordinator on another host, with the same bucket, takes over a worker that has sent its files.
func TestRemoteFiles_ThatAnotherHostReceivedCountForNoAttempt(t *testing.T) {
	t.Parallel()
	h := newBucketHosts(t)
	a := newAttackerOn(newRemoteSiteOver(t, h.bucket("data")))
	claim, transcode := a.deliverPoster(), a.claimOf(transcodeStage)
	second := a.Config
	second.DataDir, second.Bucket = t.TempDir(), h.bucket("data")
	other := NewRemoteFiles(second, a.Result)
	result := json.RawMessage(`{"poster":"poster.jpg"}`)
	rendition := json.RawMessage(`{"sent":3}`)
	for _, c := range []struct {
		claim  engine.Claim
		result json.RawMessage
	}{{claim, result}, {transcode, rendition}, {transcode, json.RawMessage(`{}`)}, {claim, result}} {
		if accepted, err := other.Accept(t.Context(), c.claim, c.result); !errors.Is(err, remote.ErrOutputsElsewhere) {
			t.Errorf("%s: %s, %v", c.result, accepted, err)
		}
	}
	if accepted, err := NewRemoteFiles(a.Config, a.Result).Accept(t.Context(), claim, result); err != nil ||
		!strings.Contains(string(accepted), posterFile) {
		t.Errorf("where the files are: %s, %v", accepted, err)
	}
}
