package web

import (
	"context"
	"time"
)

// cached keeps a value for a short time and lets one request at a time read it again.
type cached[T any] struct {
	lock   chan struct{} // has room for one; a channel, so that waiting ends with the request
	value  T
	readAt time.Time
}

func newCached[T any]() *cached[T] { return &cached[T]{lock: make(chan struct{}, 1)} }

// get returns the value, which is at most maxAge old.
func (c *cached[T]) get(ctx context.Context, maxAge time.Duration, read func(context.Context) (T, error)) (T, error) {
	var none T
	select {
	case c.lock <- struct{}{}:
		defer func() { <-c.lock }()
	case <-ctx.Done():
		return none, ctx.Err()
	}
	if !c.readAt.IsZero() && time.Since(c.readAt) < maxAge {
		return c.value, nil
	}
	value, err := read(ctx)
	if err != nil {
		return none, err
	}
	c.value, c.readAt = value, time.Now()
	return value, nil
}
