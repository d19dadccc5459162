package webhook

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// retrySchedule returns the wait after each failed attempt. After the last attempt, three
// days after the first, a delivery is dead. Standard Webhooks recommends this schedule.
func retrySchedule() []time.Duration {
	return []time.Duration{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
		10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}
}

// maxRetryAfter limits a receiver's Retry-After. A receiver can repeat it.
const maxRetryAfter = time.Hour

// attemptResult is a finished attempt.
type attemptResult struct {
	dueDelivery
	response
	outcome Outcome
	retryIn time.Duration
}

// classify sets the outcome and the time to the next attempt.
func (w *Webhooks) classify(r *attemptResult) {
	switch {
	case r.isDelivered():
		r.outcome = Delivered
	case r.status == http.StatusGone:
		r.outcome = Gone
	case r.attempts >= len(w.options.schedule):
		r.outcome = Dead
	default:
		r.outcome = Failed
		r.retryIn = max(withJitter(w.options.schedule[r.attempts]), r.retryAfter)
	}
}

// rowStatus returns the status of the row. After 410, the delivery stays pending for
// when an operator enables the webhook again.
func (r attemptResult) rowStatus() string {
	switch r.outcome {
	case Delivered:
		return "delivered"
	case Dead:
		return "dead"
	}
	return "pending"
}

// withJitter changes d by up to a fifth, to spread attempts that failed together.
func withJitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// retryAfter parses the header Retry-After: seconds or a date.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	// A number that is out of range means the maximum.
	if s, err := strconv.ParseUint(text, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(s, uint64(maxRetryAfter/time.Second))) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}
