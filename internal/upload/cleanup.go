package upload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// orphanAge is how old a directory without a state must be. A new one may get its state
// at any moment.
const orphanAge = time.Hour

// CleanUpResult is the result of [Uploads.CleanUp].
type CleanUpResult struct {
	Expired         int   // deleted unfinished uploads, or parts of uploads
	DeletedFinished int   // deleted finished uploads
	Submitted       int   // complete uploads that got their tasks
	Bytes           int64 // deleted
}

// CleanUp deletes uploads as the package documentation says, and submits complete uploads
// whose submission failed. It continues after errors. Call it every few minutes.
func (u *Uploads) CleanUp(ctx context.Context) (CleanUpResult, error) {
	var result CleanUpResult
	err := u.forEach(ctx, func(id string) error { return u.cleanUpOne(ctx, id, &result) })
	return result, err
}

// forEach calls do for each directory, and joins its errors.
func (u *Uploads) forEach(ctx context.Context, do func(id string) error) error {
	ids, err := u.ids()
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := do(id); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (u *Uploads) cleanUpOne(ctx context.Context, id string, result *CleanUpResult) error {
	if isOrphan, err := u.deleteOrphan(id); isOrphan || err != nil {
		if err == nil {
			result.Expired++
		}
		return err
	}
	submitted, err := u.submitPending(ctx, id)
	if submitted {
		result.Submitted++
	}
	if err != nil {
		return err
	}
	err = u.withLock(ctx, id, u.isAbandoned, func(e *record) error {
		result.Expired++
		result.Bytes += e.offset
		return u.deleteFiles(id)
	})
	if err != nil {
		return err
	}
	return u.deleteUnneeded(ctx, id, result)
}

// deleteOrphan deletes a directory without a state.
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

func (u *Uploads) isExpired(e *record) bool {
	return !e.isComplete() && !e.hasAllBytes() && time.Since(e.lastWrite) > u.options.Expiration
}

// isAbandoned reports whether no client can resume an upload. For a single request that
// is so as soon as the request is over.
func (u *Uploads) isAbandoned(e *record) bool {
	return u.isExpired(e) || e.state.SingleRequest && !e.isComplete()
}

// deleteUnneeded deletes a finished upload that its task does not need.
func (u *Uploads) deleteUnneeded(ctx context.Context, id string, result *CleanUpResult) error {
	return u.withLock(ctx, id, isSubmitted, func(e *record) error {
		state, err := u.options.SourceState(ctx, e.Upload)
		if err != nil {
			return fmt.Errorf("query its task: %w", err)
		}
		since := e.state.TaskEndedSince
		hasEnded, hadEnded := state == TaskEnded, !since.IsZero()
		switch {
		case state == SourceCopied, hasEnded && hadEnded && time.Since(since) >= u.options.TaskEndedRetention:
			result.DeletedFinished++
			result.Bytes += e.Size
			return u.deleteComplete(ctx, e)
		case hasEnded == hadEnded:
			return nil
		case hasEnded:
			e.state.TaskEndedSince = time.Now().UTC()
		default:
			e.state.TaskEndedSince = time.Time{}
		}
		return u.save(e)
	})
}

func isSubmitted(e *record) bool { return e.isComplete() && !e.state.SubmittedAt.IsZero() }
