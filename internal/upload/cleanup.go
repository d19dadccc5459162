package upload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// rubbishAge is how long a directory without a state is left alone: it may be
// about to get one.
const orphanAge = time.Hour

// Tidied says what [Uploads.Tidy] did.
type CleanUpResult struct {
	Expired   int   // unfinished uploads deleted, or what was left of some
	Released  int   // finished files deleted because their tasks need them no more
	Submitted int   // complete uploads handed over that could not be before
	Bytes     int64 // deleted
}

// Tidy deletes what the package's documentation says is deleted by it, and
// hands over what could not be before. It does as much as it can, whatever the
// error. Call it every few minutes.
func (u *Uploads) CleanUp(ctx context.Context) (CleanUpResult, error) {
	var done CleanUpResult
	ids, err := u.ids(ctx)
	if err != nil {
		return done, err
	}
	var errs []error
	for _, id := range ids {
		if ctx.Err() != nil {
			return done, ctx.Err()
		}
		if err := u.cleanUpOne(ctx, id, &done); err != nil {
			errs = append(errs, err)
		}
	}
	return done, errors.Join(errs...)
}

func (u *Uploads) cleanUpOne(ctx context.Context, id string, done *CleanUpResult) error {
	if rubbish, err := u.deleteOrphan(id); rubbish || err != nil {
		if err == nil {
			done.Expired++
		}
		return err
	}
	handed, err := u.submitPending(ctx, id)
	if handed {
		done.Submitted++
	}
	if err != nil {
		return err
	}
	err = u.withLock(ctx, id, u.isAbandoned, func(e *record) error {
		done.Expired++
		done.Bytes += e.offset
		return u.deleteFiles(id)
	})
	if err != nil {
		return err
	}
	return u.releaseUnneeded(ctx, id, done)
}

// tidyRubbish deletes a directory that is no upload.
func (u *Uploads) deleteOrphan(id string) (bool, error) {
	if _, err := u.root.Lstat(filepath.Join(id, stateFile)); !errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	info, err := u.root.Lstat(id)
	if err != nil || time.Since(info.ModTime()) < orphanAge {
		return false, nil
	}
	return true, u.deleteFiles(id)
}

// expired: nobody has added anything for long.
func (u *Uploads) isExpired(e *record) bool {
	return !e.isComplete() && !e.hasAllBytes() && time.Since(e.lastWrite) > u.options.Expiration
}

// lost: it will not be continued. Of a simple upload that nobody holds there is
// nobody to.
func (u *Uploads) isAbandoned(e *record) bool {
	return u.isExpired(e) || e.state.SingleRequest && !e.isComplete()
}

// tidyFinished asks what became of an upload's task.
func (u *Uploads) releaseUnneeded(ctx context.Context, id string, done *CleanUpResult) error {
	return u.withLock(ctx, id, isSubmitted, func(e *record) error {
		fate, err := u.options.SourceState(ctx, e.Upload)
		if err != nil {
			return fmt.Errorf("ask for the fate of its task: %w", err)
		}
		gone := e.state.TaskGoneSince
		switch {
		case fate == SourceCopied, fate == TaskGone && !gone.IsZero() && time.Since(gone) >= u.options.TaskGoneRetention:
			done.Released++
			done.Bytes += e.Size
			return u.deleteFiles(id)
		case fate == TaskGone && gone.IsZero():
			e.state.TaskGoneSince = time.Now().UTC()
			return u.save(e)
		case fate != TaskGone && !gone.IsZero():
			e.state.TaskGoneSince = time.Time{}
			return u.save(e)
		}
		return nil
	})
}

func isSubmitted(e *record) bool { return e.isComplete() && !e.state.SubmittedAt.IsZero() }

// Release deletes a finished upload, whose task the caller knows to need its
// file no more. Where there is none of that id that was handed over, it returns
// ErrNotFound.
func (u *Uploads) Release(ctx context.Context, id string) error {
	released := false
	err := u.withLock(ctx, id, isSubmitted, func(*record) error {
		released = true
		return u.deleteFiles(id)
	})
	if err == nil && !released {
		return fmt.Errorf("release upload %q: %w", id, ErrNotFound)
	}
	return err
}
