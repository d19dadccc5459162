package proofkit

import (
	"context"
	"time"
)

// Pause waits for d. It returns the cause of ctx if that is done first.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// Retry calls try until it succeeds, ctx is done or the limit has passed, and returns the last
// error. Each call gets 5 s.
func Retry(ctx context.Context, limit time.Duration, try func(context.Context) error) error {
	deadline := time.Now().Add(limit)
	for {
		tryCtx, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := try(tryCtx)
		cancel()
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		_ = Pause(ctx, 100*time.Millisecond) // the next check sees that ctx is done
	}
}
