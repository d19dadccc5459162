package webhook

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// schedule is how long a delivery waits after it failed for the first time, the
// second, and so on; after the last it is dead, a good three days after the first.
// It is the one that Standard Webhooks suggests.
func retrySchedule() []time.Duration {
	return []time.Duration{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
		10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}
}

// retryAfterMost is how long a receiver may ask us to wait beyond the schedule. If
// it needs longer, it can say so again.
const maxRetryAfter = time.Hour

// jittered spreads out what failed at the same moment by a fifth either way.
func withJitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// retryAfter is what the header says, as seconds or as a date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if text == "" {
		return 0
	}
	// A number that is too large for its type is the largest.
	if s, err := strconv.ParseUint(text, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(s, uint64(maxRetryAfter/time.Second))) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}
