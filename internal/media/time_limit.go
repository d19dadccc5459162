package media

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

const (
	// DefaultTimeFactor leaves the slowest preset, with the largest pictures on a
	// single processor, time to come to its end.
	DefaultTimeFactor = 100
	// leastTime is what every call may take beside, however short the source is.
	minTimeLimit = 30 * time.Minute
	// readRate is the bytes per second at which the slowest disk is read, for a
	// source whose duration is not known yet.
	slowestRead = 1 << 20
)

// within bounds all that a call does by the length of its source in seconds. What
// stands still is found sooner, by Stall; this is for what goes on without an end.
func (t Tools) withTimeLimit(ctx context.Context, length float64) (context.Context, context.CancelFunc) {
	limit := t.timeLimit(length)
	if limit <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w: it was stopped after %v", ErrTooLong, limit))
}

// timeLimit is how long a call may take; 0 for as long as it likes.
func (t Tools) timeLimit(length float64) time.Duration {
	if t.TimeFactor < 0 {
		return 0
	}
	length = min(max(length, 0), maxDuration) * cmp.Or(t.TimeFactor, DefaultTimeFactor)
	return cmp.Or(t.minTimeLimit, minTimeLimit) + time.Duration(length*float64(time.Second)).Round(time.Second)
}

// probeLength is how long a source of so many bytes counts as before it was looked
// at, so that it may be read as slowly as readRate.
func (t Tools) probeSeconds(size int64) float64 {
	return float64(size) / slowestRead / max(cmp.Or(t.TimeFactor, DefaultTimeFactor), 1)
}
