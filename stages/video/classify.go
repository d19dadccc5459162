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
// first.
const hostPause = 5 * time.Minute

// classify decides which of a stage's errors are permanent and how long the
// others should wait; the package's documentation has the rule.
func classify(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		// What broke because the context ended broke because of that.
		return context.Cause(ctx)
	}
	var refused *media.Refused
	var fetching *fetch.Error
	switch {
	case errors.As(err, &refused):
		return stages.Permanent(err)
	case errors.As(err, &fetching) && fetching.Permanent:
		return stages.Permanent(err)
	case errors.As(err, &fetching) && fetching.RetryAfter > 0:
		return stages.RetryAfter(fetching.RetryAfter, err)
	case errors.Is(err, media.ErrToolMissing):
		return stages.RetryAfter(hostPause,
			fmt.Errorf("%w; to install it: apt-get install ffmpeg, or brew install ffmpeg", err))
	case isHostTrouble(err):
		return stages.RetryAfter(hostPause, plain(err))
	}
	return err
}

// isHostTrouble reports whether somebody must mend this host: make room, mount
// a disk, give a permission.
func isHostTrouble(err error) bool {
	var gone *goneError
	return errors.As(err, &gone) || isFull(err) ||
		errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
}

func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, media.ErrNoSpace)
}

// plain puts what is to be done before what the system said.
func plain(err error) error {
	var full *fullError
	var gone *goneError
	var fetching *fetch.Error
	switch {
	case errors.As(err, &full), errors.As(err, &gone), errors.As(err, &fetching):
		return err
	case isFull(err):
		return fmt.Errorf("the disk is full: %w", err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("the disk is read-only: %w", err)
	}
	return fmt.Errorf("this process may not do that: %w", err)
}
