package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/web"
	"github.com/cuelight/cuelight/web/ui"
)

const (
	// resultAge is how long the addresses in a result are used again.
	resultAge = 30 * time.Second
	// resultTimeout limits how long a page waits for the address of a picture.
	resultTimeout = 2 * time.Second
	// resultRetryDelay is how long no result is read after an error.
	resultRetryDelay = 5 * time.Second
	// maxResults is how many results are kept.
	maxResults = 5000
	// serviceRetryAfter is the Retry-After of a file that the storage service does not deliver.
	serviceRetryAfter = 5 * time.Second
)

// publishedResults finds the files of published videos in a bucket by the results of the publish stage.
// To ask the bucket for each row of a page would take too long.
type publishedResults struct {
	read func(ctx context.Context, task store.ID, stage string) (json.RawMessage, error)
	base string // path of the web server

	mu      sync.Mutex // guards the rest
	kept    map[store.ID]keptResult
	retryAt time.Time // after an error: a page must not wait for each of its rows
}

// keptResult is a result of the publish stage; its paths are empty if there is none.
type keptResult struct {
	video.Publish
	status store.Status // of the stage when it was read
	until  time.Time
}

// result returns the newest result of a task's publish stage, which may be that of an older version.
func (p *publishedResults) result(ctx context.Context, t store.Task) video.Publish {
	status := t.Stages[len(t.Stages)-1].Status
	p.mu.Lock()
	found := p.kept[t.ID]
	isFresh := found.status == status && time.Now().Before(found.until) || time.Now().Before(p.retryAt)
	p.mu.Unlock()
	if isFresh {
		return found.Publish
	}
	fresh := keptResult{status: status, until: time.Now().Add(resultAge)}
	raw, err := p.read(ctx, t.ID, publishStage)
	if err == nil {
		err = json.Unmarshal(raw, &fresh.Publish)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		if !errors.Is(ctx.Err(), context.Canceled) { // a client that has left says nothing about the database
			p.retryAt = time.Now().Add(resultRetryDelay)
		}
		return found.Publish // the last known one
	}
	if p.kept == nil || len(p.kept) >= maxResults {
		p.kept = make(map[store.ID]keptResult)
	}
	p.kept[t.ID] = fresh
	return fresh.Publish
}

// url returns the address of a file, given its path; empty for none.
func (p *publishedResults) url(path string) string {
	if path == "" {
		return ""
	}
	return web.PublishedPath(p.base, path)
}

func (p *publishedResults) poster(t store.Task) (string, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), resultTimeout)
	defer cancel()
	address := p.url(p.result(ctx, t).Poster)
	return address, address != ""
}

func (p *publishedResults) playback(ctx context.Context, t store.Task) (ui.Playback, bool) {
	r := p.result(ctx, t)
	return ui.Playback{HLS: p.url(r.Master), DASH: p.url(r.Manifest), Poster: p.url(r.Poster)}, r.Master != ""
}

// openPublished opens published files in a bucket.
func openPublished(b *video.Bucket) func(context.Context, string) (web.PublishedFile, error) {
	return func(ctx context.Context, name string) (web.PublishedFile, error) {
		f, modified, version, err := b.Open(ctx, name)
		if _, isService := errors.AsType[*storage.ServiceError](err); isService {
			answer := problem.New(problem.Unavailable, "the storage service is not available; try again later")
			return web.PublishedFile{}, fmt.Errorf("%w: %w", answer.After(serviceRetryAfter), err)
		}
		return web.PublishedFile{ReadSeekCloser: f, Modified: modified, ETag: `"` + version + `"`}, err
	}
}
