package video

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"github.com/cuelight/cuelight/internal/fetch"
	"github.com/cuelight/cuelight/internal/media"
	"github.com/cuelight/cuelight/stages"
)

// hostPause is how long to wait where something on this host must be mended
// first, and hostPatience how long if that was not enough: nights are long.
const (
	hostRetryDelay     = 5 * time.Minute
	hostLongRetryDelay = time.Hour
)

// classify decides which of a stage's errors are permanent, which are not the
// task's at all, and how long the others should wait; the package's
// documentation has the rule.
func classify(ctx context.Context, err error, attempt int) error {
	if ctx.Err() != nil {
		// What broke because the context ended broke because of that.
		return context.Cause(ctx)
	}
	var refused *media.RejectedError
	var fetching *fetch.Error
	var gone *missingError
	var full *diskFullError
	pause := hostRetryDelay
	if attempt > 1 {
		pause = hostLongRetryDelay
	}
	postpone := stages.Postpone
	if isOneTaskOnly(err) {
		postpone = stages.PostponeTask
	}
	switch {
	case errors.As(err, &gone):
		return postpone(hostRetryDelay, err)
	case errors.As(err, &refused):
		return stages.Permanent(err)
	case errors.As(err, &full) && full.neverFits():
		return stages.Permanent(err)
	case errors.Is(err, media.ErrMismatch) && attempt > 1 && !isHostError(err):
		// Once it may have been this host's memory or disk. The same source and
		// the same program would only come to the same end.
		return stages.Permanent(err)
	case errors.As(err, &fetching) && fetching.Permanent:
		return stages.Permanent(err)
	case errors.As(err, &fetching) && fetching.RetryAfter > 0:
		return stages.RetryAfter(fetching.RetryAfter, err)
	case errors.Is(err, media.ErrToolMissing):
		return stages.Postpone(hostRetryDelay,
			fmt.Errorf("%w; to install it: apt-get install ffmpeg, or brew install ffmpeg", err))
	case errors.Is(err, media.ErrStarved):
		return stages.Postpone(hostRetryDelay, err)
	case errors.Is(err, media.ErrSandbox):
		return postpone(hostRetryDelay, fmt.Errorf("%w; cuelight doctor says what this host offers, --sandbox how much is needed", err))
	case isWholeHost(err):
		return postpone(hostRetryDelay, explainHostError(err))
	case isHostError(err):
		return stages.RetryAfter(pause, explainHostError(err))
	}
	return err
}

// isHostError reports whether something is the matter with this host that
// somebody must mend, or that passes: make room, mount a disk, give a
// permission, wait until others need less memory.
func isHostError(err error) bool {
	return isWholeHost(err) || errors.Is(err, fs.ErrPermission) || errors.Is(err, media.ErrMemory) ||
		isAny(err, syscall.EIO, syscall.ENOMEM)
}

// isOneTaskOnly reports whether the error stops this task and no other: its own directory
// is missing, it needs more room than others, or only root may read its source.
func isOneTaskOnly(err error) bool {
	var gone *missingError
	var full *diskFullError
	return errors.As(err, &gone) && gone.oneTask || errors.As(err, &full) && full.fitsSmallerTasks() ||
		fetch.IsTooLarge(err) || errors.Is(err, media.ErrSourceNotReadable)
}

// isWholeHost reports whether it is so whatever the task.
func isWholeHost(err error) bool {
	return isFull(err) || isAny(err, syscall.EROFS, syscall.ESTALE, syscall.EMFILE, syscall.ENFILE)
}

func isAny(err error, errnos ...syscall.Errno) bool {
	for _, errno := range errnos {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

func isFull(err error) bool {
	return isAny(err, syscall.ENOSPC, syscall.EDQUOT) || errors.Is(err, media.ErrNoSpace)
}

// explainHostError puts what is to be done before what the system said.
func explainHostError(err error) error {
	var full *diskFullError
	var fetching *fetch.Error
	switch {
	case errors.As(err, &full), errors.As(err, &fetching), errors.Is(err, media.ErrMemory):
		return err
	case isFull(err):
		return fmt.Errorf("the disk is full: %w", err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("the disk is read-only: %w", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("this process may not do that: %w", err)
	}
	return fmt.Errorf("this host has a fault: %w", err)
}
