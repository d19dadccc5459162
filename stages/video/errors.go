package video

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
	"time"

	"github.com/cuelight/cuelight/internal/diskspace"
	"github.com/cuelight/cuelight/internal/fetch"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/stages"
)

// hostRetryDelay is the wait after an error of the host, the longest one where the
// attempt is postponed and the stage suspended. hostLongRetryDelay is the wait after
// the second one in a row: a repair may take a night.
const (
	hostRetryDelay     = 5 * time.Minute
	hostLongRetryDelay = time.Hour
)

// classify decides which errors are permanent, which are postponed because the
// task did not cause them, and how long the others wait. The package
// documentation has the rules.
func classify(ctx context.Context, err error, attempt int) error {
	if ctx.Err() != nil {
		// The end of the context caused all later errors.
		return context.Cause(ctx)
	}
	pause := hostRetryDelay
	if attempt > 1 {
		pause = hostLongRetryDelay
	}
	postpone := stages.Postpone
	if isOneTaskOnly(err) {
		postpone = stages.PostponeTask
	}
	fetching, isFetching := errors.AsType[*fetch.Error](err)
	service, isService := errors.AsType[*storage.ServiceError](err)
	scratch, isScratchFull := errors.AsType[*scratchFullError](err)
	switch {
	case isScratchFull && scratch.need <= scratch.limit:
		return stages.PostponeUntilIdle(scratchWait, err)
	case isScratchFull:
		return stages.PostponeTask(hostRetryDelay, err)
	case isService:
		return stages.Postpone(hostRetryDelay, service)
	case isMissing(err):
		return postpone(hostRetryDelay, err)
	case isPermanent(err, attempt):
		return stages.Permanent(err)
	case isFetching && fetching.RetryAfter > 0:
		return stages.RetryAfter(fetching.RetryAfter, err)
	case errors.Is(err, media.ErrToolMissing):
		return stages.Postpone(hostRetryDelay,
			fmt.Errorf("%w; install it: apt-get install ffmpeg, or brew install ffmpeg", err))
	case errors.Is(err, media.ErrStarved):
		return stages.PostponeUntilIdle(hostRetryDelay, err)
	case errors.Is(err, media.ErrInputStalled):
		return stages.Postpone(hostRetryDelay, err)
	case errors.Is(err, media.ErrSandbox):
		return postpone(hostRetryDelay,
			fmt.Errorf("%w; run cuelight doctor to see what this host supports, or change --sandbox", err))
	case isWholeHost(err) && !isOneTaskOnly(err):
		return stages.PostponeUntilIdle(hostRetryDelay, explainHostError(err))
	case isWholeHost(err):
		return stages.PostponeTask(hostRetryDelay, explainHostError(err))
	case isHostError(err):
		return stages.RetryAfter(pause, explainHostError(err))
	}
	return err
}

func isMissing(err error) bool {
	_, ok := errors.AsType[*missingError](err)
	return ok
}

// isPermanent reports whether the source is the reason, so that no other attempt helps.
func isPermanent(err error, attempt int) bool {
	_, isRejected := errors.AsType[*media.RejectedError](err)
	_, isParams := errors.AsType[*ParamsError](err)
	fetching, isFetching := errors.AsType[*fetch.Error](err)
	full, isFull := errors.AsType[*diskspace.FullError](err)
	// The first time, this host's memory or disk may have been the cause of a mismatch.
	// The second time, the source is.
	mismatch := errors.Is(err, media.ErrMismatch) && attempt > 1 && !isHostError(err)
	return isRejected || isParams || mismatch || isFetching && fetching.Permanent || isFull && full.ExceedsDisk()
}

// isHostError reports whether this host must be repaired, or must wait: for space, a
// mount, a permission or memory.
func isHostError(err error) bool {
	return isWholeHost(err) || errors.Is(err, fs.ErrPermission) || errors.Is(err, media.ErrMemory) ||
		isAny(err, syscall.EIO, syscall.ENOMEM)
}

// isOneTaskOnly reports whether the error affects no other task: its own directory is
// missing, it needs more space than others, or only root may read its source.
func isOneTaskOnly(err error) bool {
	missing, isMissing := errors.AsType[*missingError](err)
	full, isFull := errors.AsType[*diskspace.FullError](err)
	return isMissing && missing.oneTask || isFull && full.HasRoomForSmaller() ||
		errors.Is(err, media.ErrSourceNotReadable)
}

// isWholeHost reports whether the error affects every task.
func isWholeHost(err error) bool {
	return isFull(err) || isAny(err, syscall.EROFS, syscall.ESTALE, syscall.EMFILE, syscall.ENFILE)
}

func isAny(err error, errnos ...syscall.Errno) bool {
	return slices.ContainsFunc(errnos, func(errno syscall.Errno) bool { return errors.Is(err, errno) })
}

func isFull(err error) bool {
	return isAny(err, syscall.ENOSPC, syscall.EDQUOT) || errors.Is(err, media.ErrNoSpace)
}

// explainHostError puts the cause before the system's message.
func explainHostError(err error) error {
	_, isNoticed := errors.AsType[*diskspace.FullError](err)
	_, isFetching := errors.AsType[*fetch.Error](err)
	switch {
	case isNoticed, isFetching, errors.Is(err, media.ErrMemory):
		return err
	case isFull(err):
		return fmt.Errorf("the disk is full: %w; free some space", err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("the disk is read-only: %w; mount it writable", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("this process may not access a file: %w; change the permissions", err)
	}
	return fmt.Errorf("this host has a fault: %w; check its disks and limits", err)
}
