package waittest_test

import (
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

// Fatalf records the format and panics.
func (r *recorder) Fatalf(format string, _ ...any) {
	r.failure = format
	panic(r)
}

func TestUntil_ReturnsWhenTheConditionIsTrueOrFailsAfterTheLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		waittest.Until(t, "a second has passed", func() bool { return time.Since(start) >= time.Second })
		if d := time.Since(start); d > 1100*time.Millisecond {
			t.Errorf("returned after %v", d)
		}
		r := &recorder{TB: t}
		func() {
			defer func() { _ = recover() }()
			waittest.Until(r, "pigs fly", func() bool { return false })
		}()
		if d := time.Since(start); !strings.Contains(r.failure, "not true") || d < waittest.Limit {
			t.Errorf("failure %q after %v", r.failure, d)
		}
	})
}
