package main

import (
	"context"
	"time"
)

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// insist tries until it succeeds, or the limit is over; then the error is the
// last one.
func insist(ctx context.Context, limit time.Duration, try func(context.Context) error) error {
	const once = 5 * time.Second
	late := time.Now().Add(limit)
	for {
		within, cancel := context.WithTimeout(ctx, once)
		err := try(within)
		cancel()
		if err == nil || ctx.Err() != nil || time.Now().After(late) {
			return err
		}
		_ = pause(ctx, 100*time.Millisecond)
	}
}
