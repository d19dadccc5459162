package upload

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/cuelight/cuelight/internal/diskspace"
	"github.com/cuelight/cuelight/internal/problem"
)

// reservation is what a principal's unfinished uploads reserve, in bytes.
type reservation struct {
	all       int64
	announced int64 // of uploads of known length: their space on the disk
}

func (r reservation) with(e *record, bytes int64) reservation {
	r.all += bytes
	if e.state.Length >= 0 || e.state.MaxLength > 0 {
		r.announced += bytes
	}
	return r
}

// reserve checks whether the limits permit e. The caller holds u.reserving.
func (u *Uploads) reserve(ctx context.Context, e *record) error {
	unfinished, err := u.unfinished(ctx)
	if err != nil {
		return err
	}
	count, own, others := 0, reservation{}.with(e, u.remaining(e)), make(map[string]reservation)
	for _, other := range unfinished {
		switch {
		case other.ID == e.ID:
		case other.Principal == e.Principal:
			count++
			own = own.with(other, u.reserved(other))
		default:
			others[other.Principal] = others[other.Principal].with(other, u.reserved(other))
		}
	}
	const retryAfter = time.Minute
	switch {
	case count >= u.options.MaxUnfinished:
		return problem.New(problem.TooManyUploads,
			"you have %d unfinished uploads; finish or delete one", count).After(retryAfter)
	case own.all > u.options.MaxReservedPerPrincipal:
		return problem.New(problem.TooManyUploads,
			"your unfinished uploads would have %d bytes to receive, of at most %d; finish or delete one",
			own.all, u.options.MaxReservedPerPrincipal).After(retryAfter)
	}
	err = u.checkShares(own, others)
	if err != nil { // the database is asked only then
		maps.DeleteFunc(others, func(principal string, _ reservation) bool { return u.options.IsRevoked(ctx, principal) })
		err = u.checkShares(own, others)
	}
	return err
}

// checkShares returns a problem if own does not fit next to the reservations of others, each of which counts for half
// of the space at most: none of them alone keeps another principal from uploading.
func (u *Uploads) checkShares(own reservation, others map[string]reservation) error {
	free, _, err := diskspace.Free(u.dir)
	isKnown := err == nil // otherwise a later write fails if the disk is full
	free -= u.options.MinFree
	for _, r := range others {
		own.all += min(r.all, u.options.MaxReserved/2)
		own.announced += min(r.announced, max(free, 0)/2)
	}
	switch {
	case own.all > u.options.MaxReserved:
		return problem.New(problem.UploadsFull, "the server is receiving too many uploads; retry later").After(time.Minute)
	case isKnown && own.announced > free:
		return errDiskFull
	}
	return nil
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

// renewalFactor is how many bytes an upload reserves for each that it has received, after the first
// Options.ReservationTimeout.
const renewalFactor = 8

// reserved returns how many bytes an upload reserves for now: a client that announces much and sends little holds
// little.
func (u *Uploads) reserved(e *record) int64 {
	switch {
	case u.isReservationExpired(e):
		return 0
	case time.Since(e.Created) <= u.options.ReservationTimeout:
		return u.remaining(e)
	}
	return min(u.remaining(e), renewalFactor*e.offset)
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

// checkDisk checks that Options.MinFree is free. If the free space is unknown, it returns nil, and a later write fails
// if the disk is full.
func (u *Uploads) checkDisk() error { return u.checkShares(reservation{}, nil) }
