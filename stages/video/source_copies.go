package video

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/cuelight/cuelight/internal/flock"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

const (
	// sourceCopiesInterval is the shortest time from one search for old copies of sources to the next.
	sourceCopiesInterval = time.Hour
	// sourceCopiesBatch is how many tasks one question to the database is about.
	sourceCopiesBatch = 500
)

// removeSourceCopies removes from the data location what stages made of tasks that were completed at least
// Config.KeepSourceCopies ago: all that publishing does not need any more.
func (t *Cleaner) removeSourceCopies(ctx context.Context, done *CleanResult) error {
	keep := t.Config.KeepSourceCopies
	if keep <= 0 || t.Completed == nil || time.Since(t.sourceCopiesRemoved) < sourceCopiesInterval {
		return nil
	}
	l := t.Config.DataLocation()
	tasks, err := l.tasks(ctx, tasksName)
	if err != nil {
		return fmt.Errorf("clean up copies of sources: %w", err)
	}
	var first error
	for some := range slices.Chunk(tasks, sourceCopiesBatch) {
		old, err := t.Completed(ctx, some, keep)
		if err != nil {
			return fmt.Errorf("clean up copies of sources: %w", err)
		}
		for _, task := range old {
			if err := t.removeSourceCopy(ctx, l, task, done); err != nil && first == nil {
				first = fmt.Errorf("clean up %s: %w", task, err)
			}
			if ctx.Err() != nil {
				return first
			}
		}
	}
	t.sourceCopiesRemoved = time.Now()
	return first
}

// removeSourceCopy asks once more, because the task may have been retried or deleted since the question about many. A
// deletion that finds the results here deletes the published files, so it waits until they are removed.
func (t *Cleaner) removeSourceCopy(ctx context.Context, l Location, task store.ID, done *CleanResult) error {
	what := resultsOf(task)
	if l.Bucket == nil {
		lock, err := lockDir(ctx, l.path(what.dir))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer flock.Unlock(lock)
	}
	still, err := t.Completed(ctx, []store.ID{task}, t.Config.KeepSourceCopies)
	if err != nil || len(still) == 0 {
		return err
	}
	removed, freed, err := l.removeTaskFiles(ctx, what)
	if removed > 0 {
		done.SourceCopies++
	}
	done.Removed += removed
	done.Bytes += freed
	return err
}

// classify is the function of this name, but an error is permanent if the files of earlier stages are missing where
// they are removed some time after the publication.
func (c Config) classify(ctx context.Context, err error, attempt int) error {
	missing, ok := errors.AsType[*missingError](err)
	if !ok || !missing.oneTask || c.KeepSourceCopies <= 0 || ctx.Err() != nil {
		return classify(ctx, err, attempt)
	}
	return stages.Permanent(fmt.Errorf("%w Files of earlier stages are removed %s after a video is published: retry it from stage %s",
		missing, c.KeepSourceCopies, ingestStage))
}
