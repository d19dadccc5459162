package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/stages/video"
	"github.com/cuelight/cuelight/web"
)

// serviceRetryAfter is the Retry-After of a file that the storage service does not deliver.
const serviceRetryAfter = 5 * time.Second

// newPlayback returns the addresses of published videos. Without keys, as of a daemon that neither serves them nor is given a file
// with keys, it finds no video.
func (d *Daemon) newPlayback() (a playback.Addresses, err error) {
	a.URL = cmp.Or(d.HTTP.PublicURL, d.HTTP.BasePath)
	if d.HTTP.Listen == "" && d.HTTP.PlaybackKeys == "" {
		return a, nil
	}
	a.Keys, err = d.HTTP.loadPlaybackKeys(d.Config.DataDir)
	if d.Config.PublishBucket == nil {
		a.IsThere = func(_ context.Context, file string) (bool, error) {
			_, err := os.Stat(filepath.Join(d.Config.PublishDir, filepath.FromSlash(file)))
			if errors.Is(err, fs.ErrNotExist) {
				return false, nil
			}
			return err == nil, err
		}
	}
	return a, err
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
