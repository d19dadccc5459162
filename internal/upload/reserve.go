package upload

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/cuelight/cuelight/internal/diskspace"
	"github.com/cuelight/cuelight/internal/problem"
)

// reserve checks whether the limits permit e. The caller holds u.reserving.
func (u *Uploads) reserve(ctx context.Context, e *record) error {
	unfinished, err := u.unfinished(ctx)
	if err != nil {
		return err
	}
	count, own, all, onDisk := 0, u.remaining(e), u.remaining(e), u.announcedRemaining(e)
	for _, other := range unfinished {
		if other.ID == e.ID {
			continue
		}
		var n int64
		if !u.isReservationExpired(other) {
			n = u.remaining(other)
			onDisk += u.announcedRemaining(other)
		}
		if all += n; other.Principal == e.Principal {
			count++
			own += n
		}
	}
	const retryAfter = time.Minute
	switch {
	case count >= u.options.MaxUnfinished:
		return problem.New(problem.TooManyUploads,
			"you have %d unfinished uploads; finish or delete one", count).After(retryAfter)
	case own > u.options.MaxReservedPerPrincipal:
		return problem.New(problem.TooManyUploads,
			"your unfinished uploads would have %d bytes to receive, of at most %d; finish or delete one",
			own, u.options.MaxReservedPerPrincipal).After(retryAfter)
	case all > u.options.MaxReserved:
		return problem.New(problem.UploadsFull,
			"the server is receiving too many uploads; retry later").After(retryAfter)
	}
	return u.checkDisk(onDisk)
}

// HasOpen reports whether a request has an upload, or a client may be about to continue one.
func (u *Uploads) HasOpen(ctx context.Context) (bool, error) {
	u.mu.Lock()
	active := len(u.active)
	u.mu.Unlock()
	if active > 0 {
		return true, nil
	}
	unfinished, err := u.unfinished(ctx)
	return slices.ContainsFunc(unfinished, func(e *record) bool { return !u.isReservationExpired(e) }), err
}

// remaining returns how many bytes an upload can still receive.
func (u *Uploads) remaining(e *record) int64 { return max(u.maxLength(e)-e.offset, 0) }

// announcedRemaining returns remaining if the length is known, and otherwise 0.
func (u *Uploads) announcedRemaining(e *record) int64 {
	if e.state.Length < 0 && e.state.MaxLength == 0 {
		return 0
	}
	return u.remaining(e)
}

// maxLength returns the length, or the maximum length if it is unknown.
func (u *Uploads) maxLength(e *record) int64 {
	if e.state.Length >= 0 {
		return e.state.Length
	}
	if e.state.MaxLength > 0 {
		return min(e.state.MaxLength, u.options.MaxBytes)
	}
	return u.options.MaxBytes
}

// isReservationExpired limits how long a client without data can block others.
func (u *Uploads) isReservationExpired(e *record) bool {
	return time.Since(e.lastWrite) > u.options.ReservationTimeout
}

// renewReservation reserves an upload's bytes again if its reservation expired. The
// caller has locked the upload.
func (u *Uploads) renewReservation(ctx context.Context, e *record) error {
	if e.isComplete() || e.hasAllBytes() || !u.isReservationExpired(e) {
		return nil
	}
	u.reserving.Lock()
	defer u.reserving.Unlock()
	if err := u.reserve(ctx, e); err != nil {
		return err
	}
	e.lastWrite = time.Now()
	if err := u.root.Chtimes(filepath.Join(e.ID, partFile), e.lastWrite, e.lastWrite); err != nil {
		return fmt.Errorf("continue upload: %w", err)
	}
	return nil
}

// checkDisk checks that need bytes fit on the disk. If the free space is unknown, it
// returns nil, and a later write fails if the disk is full.
func (u *Uploads) checkDisk(need int64) error {
	free, _, err := diskspace.Free(u.dir)
	if err != nil || free-need >= u.options.MinFree {
		return nil
	}
	return errDiskFull
}
