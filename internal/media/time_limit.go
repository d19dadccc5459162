package media

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

const (
	// DefaultTimeFactor is enough for the slowest preset with the largest pictures
	// on a single processor.
	DefaultTimeFactor = 100
	// minTimeLimit is added to every limit, however short the source is.
	minTimeLimit = 30 * time.Minute
	// slowestRead is the speed of the slowest disk in bytes per second, for a
	// source of unknown duration.
	slowestRead = 1 << 20
)

// withTimeLimit limits a call in proportion to the source's length in seconds.
// It ends calls that make progress forever; Stall ends stalled ones earlier.
func (t Tools) withTimeLimit(ctx context.Context, length float64) (context.Context, context.CancelFunc) {
	limit := t.timeLimit(length)
	if limit <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w: stopped after %v", ErrTooLong, limit))
}

// timeLimit is how long a call may take; 0 means no limit.
func (t Tools) timeLimit(length float64) time.Duration {
	if t.TimeFactor < 0 {
		return 0
	}
	length = min(max(length, 0), maxDuration) * cmp.Or(t.TimeFactor, DefaultTimeFactor)
	return cmp.Or(t.minTimeLimit, minTimeLimit) + time.Duration(length*float64(time.Second)).Round(time.Second)
}

// probeSeconds is the length to assume for an unprobed source of that size, so
// that reading it at slowestRead stays within the limit.
func (t Tools) probeSeconds(size int64) float64 {
	return float64(size) / slowestRead / max(cmp.Or(t.TimeFactor, DefaultTimeFactor), 1)
}
