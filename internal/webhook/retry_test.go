package webhook

import (
	"net/http"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/waittest"
)

func TestRun_RespectsRetryAfter(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]string{
		"seconds": "1200",
		"date":    time.Now().Add(20 * time.Minute).UTC().Format(http.TimeFormat),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, Options{})
			rc := newReceiver(t, func(n int, _ request, w http.ResponseWriter) {
				w.Header().Set("Retry-After", header)
				w.WriteHeader(http.StatusServiceUnavailable)
			})
			h, witness := b.add(rc.URL), newReceiver(t, nil)
			b.add(witness.URL)
			b.submit()
			b.run()
			rc.waitForRequests(b, 1)
			waittest.Until(b.t, "the delivery has failed", func() bool { return b.deliveries(h)[0].Attempts == 1 })
			if wait := time.Until(b.deliveries(h)[0].RunAt); wait < 19*time.Minute || wait > 21*time.Minute {
				t.Errorf("waits for %v", wait)
			}
			// Retry-After applies to the receiver, not to one event.
			b.submit()
			witness.waitForRequests(b, 2)
			if n := len(rc.requests()); n != 1 {
				t.Errorf("called %d times", n)
			}
		})
	}
}

func TestRetryAfter_AcceptsSecondsAndDates(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "90": 90 * time.Second, "86400": maxRetryAfter, "99999999999999999999999": maxRetryAfter,
		"-5": 0, "1.5": 0, "soon": 0,
		"Sun, 01 Mar 2026 12:01:00 GMT": time.Minute, "Sun, 01 Mar 2026 11:00:00 GMT": 0,
		"Sun, 08 Mar 2026 12:00:00 GMT": maxRetryAfter, "Sunday, 01-Mar-26 12:00:30 GMT": 30 * time.Second,
	} {
		if got := retryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("%q is %v, want %v", text, got, want)
		}
	}
}

func TestRetrySchedule_LastsThreeDaysWithJitter(t *testing.T) {
	t.Parallel()
	var sum time.Duration
	for _, d := range retrySchedule() {
		sum += d
		for range 100 {
			if j := withJitter(d); j < d*8/10 || j > d*12/10 {
				t.Errorf("%v became %v", d, j)
			}
		}
	}
	if sum < 72*time.Hour || sum > 80*time.Hour {
		t.Errorf("dead after %v", sum)
	}
	if first, second := withJitter(time.Hour), withJitter(time.Hour); first == second {
		t.Error("no jitter")
	}
}
