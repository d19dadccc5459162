// Package ctxsleep sleeps for as long as a context allows.
package ctxsleep

import (
	"context"
	"time"
)

// For sleeps for d and returns nil. When ctx is done earlier, For returns the
// cause. A duration of zero or less only checks ctx.
func For(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
