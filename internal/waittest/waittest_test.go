package waittest_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/internal/waittest"
)

// recorder is a test that records its failure instead of ending.
type recorder struct {
	testing.TB
	failure string
}

// Helper does nothing.
func (r *recorder) Helper() {}

// Fatalf records the message and panics.
func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	panic(r)
}

// failureOf returns the failure of a test that calls wait.
func failureOf(t *testing.T, wait func(testing.TB)) (failure string) {
	t.Helper()
	r := &recorder{TB: t}
	defer func() {
		_ = recover()
		failure = r.failure
	}()
	wait(r)
	return ""
}

func TestUntil_ReturnsWhenTheConditionIsTrueOrFailsAfterTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		seconds := func() int { return int(time.Since(start) / time.Second) }
		waittest.Until(t, "a second has passed", func() bool { return seconds() >= 1 })
		waittest.Equal(t, "the number of seconds", 2, seconds)
		if d := time.Since(start); d > 2100*time.Millisecond {
			t.Errorf("returned after %v", d)
		}
		for _, c := range []struct {
			failure string
			wait    func(testing.TB)
		}{
			{"it is Sunday", func(t testing.TB) { waittest.Until(t, "it is Sunday", func() bool { return false }) }},
			{"the sum is 3, want 4", func(t testing.TB) { waittest.Equal(t, "the sum", 4, func() int { return 3 }) }},
		} {
			start = time.Now()
			if got := failureOf(t, c.wait); !strings.Contains(got, c.failure) || time.Since(start) < waittest.Limit {
				t.Errorf("failure %q after %v, want %q", got, time.Since(start), c.failure)
			}
		}
	})
}
