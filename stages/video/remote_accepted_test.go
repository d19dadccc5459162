package video

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store/engine"
)

// posterPayload follows the picture in the posters of an attacker.
const posterPayload = "<script>"

// deliverPoster uploads the poster of the attacker's claim, and returns the claim.
func (a *attacker) deliverPoster() engine.Claim {
	a.t.Helper()
	h, m := readyHarness(a.t)
	poster, err := os.ReadFile(filepath.Join(h.TaskDir(h.job.Task), m.md.Dir, posterFile))
	if err != nil {
		a.t.Fatal(err)
	}
	poster = append(poster, posterPayload...)
	claim := a.claimOf(metadataStage)
	files := NewRemoteFiles(a.Config, a.Result)
	if err := files.WriteOutput(a.t.Context(), claim, posterFile, 0, int64(len(poster)), "", bytes.NewReader(poster)); err != nil {
		a.t.Fatal(err)
	}
	return claim
}

func TestAccept_MakesANewPictureOfThePoster(t *testing.T) {
	t.Parallel()
	a := newAttacker(t)
	dir := a.wantOneResult(a.acceptAll(a.deliverPoster(), 1))
	if got := read(t, filepath.Join(dir, posterFile)); strings.Contains(got, posterPayload) {
		t.Error("the accepted poster has bytes of the worker")
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 2 {
		t.Errorf("the files are %v, %v", all, err)
	}
}

// acceptAll calls Accept of several coordinators at the same time, each until it succeeds.
func (a *attacker) acceptAll(claim engine.Claim, n int) (results []string) {
	a.t.Helper()
	results = make([]string, n)
	var all sync.WaitGroup
	for i := range n {
		files := NewRemoteFiles(a.Config, a.Result)
		all.Go(func() {
			waittest.Until(a.t, "the files are accepted", func() bool {
				raw, err := files.Accept(context.Background(), claim, json.RawMessage(`{}`))
				results[i] = string(raw)
				return err == nil
			})
		})
	}
	all.Wait()
	return results
}

// wantOneResult requires that all coordinators have found the same complete directory.
func (a *attacker) wantOneResult(results []string) (dir string) {
	a.t.Helper()
	var md Metadata
	if err := json.Unmarshal([]byte(results[0]), &md); err != nil || md.Poster != posterFile || len(md.Warnings) > 0 {
		a.t.Fatalf("the result is %s, %v", results[0], err)
	}
	for _, other := range results[1:] {
		if other != results[0] {
			a.t.Errorf("the results differ: %s and %s", results[0], other)
		}
	}
	finished, err := filepath.Glob(filepath.Join(a.TaskDir(a.task), metadataStage+"-*[0-9a-z]"))
	if err != nil || len(withoutTmp(finished)) != 1 {
		a.t.Errorf("the directories are %q, %v", finished, err)
	}
	dir = filepath.Join(a.TaskDir(a.task), md.Dir)
	for _, name := range []string{posterFile, metadataFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			a.t.Error(err)
		}
	}
	return dir
}

func withoutTmp(dirs []string) (finished []string) {
	for _, dir := range dirs {
		if !strings.HasSuffix(dir, ".tmp") {
			finished = append(finished, dir)
		}
	}
	return finished
}

func TestRemoteFiles_HaveOneResultAtSeveralCoordinators(t *testing.T) {
	t.Parallel()
	a := newAttacker(t)
	claim := a.deliverPoster()
	results := a.acceptAll(claim, 5)
	dir := a.wantOneResult(results)
	before, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	// The first report may be recorded by now, so the files must stay where they are.
	results = append(results, a.acceptAll(claim, 1)...)
	a.wantOneResult(results)
	if after, err := os.Stat(dir); err != nil || !os.SameFile(before, after) || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("the accepted files were changed: %v", err)
	}
}

func TestAccept_RemovesWhatAKilledCheckLeft(t *testing.T) {
	t.Parallel()
	a := newAttacker(t)
	claim := a.deliverPoster()
	receiving, err := filepath.Glob(filepath.Join(a.TaskDir(a.task), metadataStage+"-*.tmp"))
	if err != nil || len(receiving) != 1 {
		t.Fatalf("the directories are %q, %v", receiving, err)
	}
	left := filepath.Join(receiving[0], ".poster-1")
	if err := errors.Join(os.Mkdir(left, 0o755), os.WriteFile(filepath.Join(left, posterFile), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	dir := a.wantOneResult(a.acceptAll(claim, 1))
	if all, err := os.ReadDir(dir); err != nil || len(all) != 2 {
		t.Errorf("the files are %v, %v", all, err)
	}
}

func TestRemoteFiles_AreCheckedAgainAfterTheirCoordinatorDied(t *testing.T) {
	t.Parallel()
	a := newAttacker(t)
	claim := a.deliverPoster()
	a.wantOneResult(a.acceptAll(claim, 1))
	// It has died before it recorded the result.
	records, err := filepath.Glob(filepath.Join(a.TaskDir(a.task), metadataStage+"-*.tmp"))
	if err != nil || len(records) != 1 {
		t.Fatalf("the records are %q, %v", records, err)
	}
	if err := os.RemoveAll(records[0]); err != nil {
		t.Fatal(err)
	}
	a.wantOneResult(a.acceptAll(claim, 5))
}

// slowFiles answer after longer than a coordinator waits for them.
type slowFiles struct{ *RemoteFiles }

func (f slowFiles) Accept(ctx context.Context, c engine.Claim, result json.RawMessage) (json.RawMessage, error) {
	accepted, err := f.RemoteFiles.Accept(ctx, c, result)
	select {
	case <-time.After(1500 * time.Millisecond):
	case <-ctx.Done():
	}
	return accepted, err
}

// Each request goes to another coordinator than the one before.
func TestRemoteStages_PublishThroughTwoCoordinators(t *testing.T) {
	t.Parallel()
	s := newRemoteSite(t)
	var targets []*url.URL
	for range 2 {
		u, err := url.Parse(s.startCoordinator(slowFiles{NewRemoteFiles(s.Config, s.Result)}).URL)
		if err != nil {
			t.Fatal(err)
		}
		targets = append(targets, u)
	}
	var requests atomic.Int64
	transport := &http.Transport{}
	balancer := httptest.NewServer(&httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(targets[requests.Add(1)%2])
		r.SetXForwarded()
	}})
	t.Cleanup(func() {
		balancer.CloseClientConnections()
		balancer.Close()
		transport.CloseIdleConnections()
	})
	s.workLocally(RemoteStageNames()...)
	s.workRemotely(balancer.URL, "key-honest")
	task := s.submit(clips.picture)
	tr, p := s.waitPublished(task)
	wantPlayable(t, filepath.Join(s.PublishDir, p.Master), append(tr.Output.Video, tr.Output.Audio...))
	history, err := s.History(t.Context(), task)
	if err != nil || len(history) != attemptsOfTask {
		t.Errorf("the history is %+v, %v", history, err)
	}
}
