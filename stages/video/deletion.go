package video

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/cuelight/cuelight/internal/flock"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// Retention returns the functions that remove the files of deleted videos, for a [stages.Runner].
// KeepDeleted is its default.
//
// They never touch a source, except for the copy of it that StoreSource made in Bucket.
func (c Config) Retention() *stages.Retention {
	return &stages.Retention{Unpublish: c.unpublish, RemoveFiles: c.removeFiles}
}

// unpublish removes the published video of a deleted task: the manifests first, so that no player finds one
// whose segments are gone. The assembled files stay, and publish can be repeated.
func (c Config) unpublish(ctx context.Context, t store.DeletedTask) error {
	l := c.PublishLocation()
	if l.Bucket == nil {
		if err := c.checkRoot("publish", c.PublishDir); err != nil {
			return fmt.Errorf("unpublish: %w", err)
		}
		lock, err := lockDir(ctx, c.PublishedDir(t.ID))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("unpublish: %w", err)
		}
		defer flock.Unlock(lock) // an attempt that has not noticed the deletion may be publishing
	}
	_, _, err := l.removeTaskFiles(ctx, removal{
		dir: t.ID.String(), files: []string{media.MasterName, media.ManifestName}, stages: []string{generationPrefix},
	})
	if err != nil {
		return fmt.Errorf("unpublish: %w", err)
	}
	return nil
}

// removeFiles removes everything of a deleted task, except for a published video whose task retention has deleted.
func (c Config) removeFiles(ctx context.Context, t store.DeletedTask) error {
	if !t.Expired {
		if err := c.unpublish(ctx, t); err != nil {
			return err
		}
	}
	if err := c.checkRoot("data", c.DataDir); err != nil {
		return fmt.Errorf("remove files: %w", err)
	}
	if _, _, err := c.DataLocation().removeTaskFiles(ctx, resultsOf(t.ID)); err != nil {
		return fmt.Errorf("remove files: %w", err)
	}
	if c.Bucket == nil {
		return nil
	}
	if err := os.RemoveAll(c.TaskDir(t.ID)); err != nil { // copies of what was in the bucket
		return fmt.Errorf("remove copies: %w", err)
	}
	if t.SourceInUse {
		return nil
	}
	if err := c.Bucket.DeleteSource(ctx, t.Source); err != nil {
		return fmt.Errorf("remove stored source: %w", err)
	}
	return nil
}

// resultsOf is all that stages have made of a task in the data location.
func resultsOf(task store.ID) removal {
	return removal{dir: path.Join(tasksName, task.String()), stages: resultStages()}
}

// removeTaskFiles removes all of a task's files in the location that stages have made. Files with other names stay. It
// returns the number of removed names, and the freed bytes on a disk.
func (p Location) removeTaskFiles(ctx context.Context, what removal) (removed int, freed int64, err error) {
	what.isThere = func(dirName) bool { return true }
	remove, _, err := p.divide(ctx, what)
	if err != nil {
		return 0, 0, err
	}
	return p.removeNames(ctx, what, remove)
}
