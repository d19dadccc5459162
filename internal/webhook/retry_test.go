package webhook

import (
	"net/http"
	"testing"
	"time"
)

func TestRetryAfterIsRespected(t *testing.T) {
	t.Parallel()
	for name, header := range map[string]string{
		"seconds": "1200",
		"date":    time.Now().Add(20 * time.Minute).UTC().Format(http.TimeFormat),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, Options{})
			rc := receive(t, func(n int, _ received, w http.ResponseWriter) {
				w.Header().Set("Retry-After", header)
				w.WriteHeader(http.StatusServiceUnavailable)
			})
			h, witness := b.add(rc.URL), receive(t, nil)
			b.add(witness.URL)
			b.submit()
			b.run()
			rc.wait(b, 1)
			b.until("it has failed", func() bool { return b.deliveries(h)[0].Attempts == 1 })
			if wait := time.Until(b.deliveries(h)[0].RunAt); wait < 19*time.Minute || wait > 21*time.Minute {
				t.Errorf("waits for %v", wait)
			}
			// It is about the receiver, not about one event.
			b.submit()
			witness.wait(b, 2)
			if n := len(rc.got()); n != 1 {
				t.Errorf("called %d times", n)
			}
		})
	}
}

func TestRetryAfterForms(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "0": 0, "90": 90 * time.Second, "86400": retryAfterMost, "99999999999999999999999": retryAfterMost,
		"-5": 0, "1.5": 0, "soon": 0,
		"Sun, 01 Mar 2026 12:01:00 GMT": time.Minute, "Sun, 01 Mar 2026 11:00:00 GMT": 0,
		"Sun, 08 Mar 2026 12:00:00 GMT": retryAfterMost, "Sunday, 01-Mar-26 12:00:30 GMT": 30 * time.Second,
	} {
		if got := retryAfter(http.Header{"Retry-After": {text}}, now); got != want {
			t.Errorf("%q is %v, want %v", text, got, want)
		}
	}
}

func TestScheduleEndsAfterThreeDaysAndIsJittered(t *testing.T) {
	t.Parallel()
	var sum time.Duration
	for _, d := range schedule() {
		sum += d
		for range 100 {
			if j := jittered(d); j < d*8/10 || j > d*12/10 {
				t.Errorf("%v became %v", d, j)
			}
		}
	}
	if sum < 72*time.Hour || sum > 80*time.Hour {
		t.Errorf("given up after %v", sum)
	}
	if first, second := jittered(time.Hour), jittered(time.Hour); first == second {
		t.Error("no jitter")
	}
}
