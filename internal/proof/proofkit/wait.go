package proofkit

import (
	"context"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
)

// Retry calls try until it succeeds, ctx is done or the limit has passed, and returns the last
// error. Each call gets 5 s.
func Retry(ctx context.Context, limit time.Duration, try func(context.Context) error) error {
	var tryErr error
	_, err := Poll(ctx, limit, 100*time.Millisecond, func() (bool, error) {
		tryCtx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		tryErr = try(tryCtx)
		return tryErr == nil, nil
	})
	if tryErr != nil {
		return tryErr
	}
	return err
}

// Poll calls isDone until it returns true or an error, or until the limit has passed. It reports
// whether isDone returned true.
func Poll(ctx context.Context, limit, interval time.Duration, isDone func() (bool, error)) (bool, error) {
	for deadline := time.Now().Add(limit); ; {
		done, err := isDone()
		if done || err != nil || time.Now().After(deadline) {
			return done, err
		}
		if err := ctxsleep.For(ctx, interval); err != nil {
			return false, err
		}
	}
}
