package video

import (
	"context"
	"encoding/json"
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
// KeepDeleted is its default. Results reads the recorded result of a stage, as store.Store.Result does: with it, the
// published files of a task become its result again if that was removed, and can be published again.
//
// They never touch a source, except for the copy of it that StoreSource made in Bucket.
func (c Config) Retention(
	results func(ctx context.Context, task store.ID, stage string) (json.RawMessage, error),
) *stages.Retention {
	return &stages.Retention{
		Unpublish: func(ctx context.Context, t store.DeletedTask) error {
			if results == nil || t.PurgeAt != nil && !t.PurgeAt.After(t.DeletedAt) {
				return c.unpublish(ctx, t, nil)
			}
			return c.unpublish(ctx, t, func(ctx context.Context, stage string) (json.RawMessage, error) {
				return results(ctx, t.ID, stage)
			})
		},
		RemoveFiles: c.removeFiles,
	}
}

// unpublish removes the published video of a deleted task: the manifests first, so that no player finds one
// whose segments are gone. The assembled files stay, or with results are restored, and publish can be repeated.
func (c Config) unpublish(
	ctx context.Context, t store.DeletedTask, results func(ctx context.Context, stage string) (json.RawMessage, error),
) error {
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
	what := removal{
		dir: t.ID.String(), files: []string{media.MasterName, media.ManifestName}, stages: []string{generationPrefix},
	}
	_, _, err := l.removeNames(ctx, what, nil)
	if err == nil && results != nil {
		err = c.restoreAssembled(ctx, t.ID, results, nil)
	}
	if err == nil {
		_, _, err = l.removeTaskFiles(ctx, what)
	}
	if err != nil {
		return fmt.Errorf("unpublish: %w", err)
	}
	return nil
}

// removeFiles removes everything of a deleted task, except for a published video whose task retention has deleted.
func (c Config) removeFiles(ctx context.Context, t store.DeletedTask) error {
	if !t.Expired {
		if err := c.unpublish(ctx, t, nil); err != nil {
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
	names, err := what.names(ctx, p)
	if err != nil {
		return 0, 0, err
	}
	return p.removeNames(ctx, what, names)
}
