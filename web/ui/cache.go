package ui

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	readTimeout = 5 * time.Second // for one read
	slowFactor  = 10              // a value is kept this many times longer than its read took
)

var errReadAborted = errors.New("the read was aborted")

// cache keeps a value for a short time, so that many callers share one read.
type cache[T any] struct {
	ttl time.Duration // at least; see slowFactor

	mu       sync.Mutex
	value    T
	expires  time.Time
	inFlight *cachedRead[T]
}

// cachedRead is a read that several callers wait for.
type cachedRead[T any] struct {
	done  chan struct{} // closed when value and err are set
	value T
	err   error
}

// get returns the cached value, or reads it. At most one read runs at a time. All
// callers share it, so it does not end when the first caller's context ends, but it
// has that caller's deadline.
func (c *cache[T]) get(ctx context.Context, read func(context.Context) (T, error)) (T, error) {
	c.mu.Lock()
	if time.Now().Before(c.expires) {
		defer c.mu.Unlock()
		return c.value, nil
	}
	r := c.inFlight
	if r == nil {
		r = &cachedRead[T]{done: make(chan struct{}), err: errReadAborted}
		c.inFlight = r
		c.mu.Unlock()
		c.read(ctx, r, read)
		return r.value, r.err
	}
	c.mu.Unlock()
	select {
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	case <-r.done:
		return r.value, r.err
	}
}

func (c *cache[T]) read(ctx context.Context, r *cachedRead[T], read func(context.Context) (T, error)) {
	started := time.Now()
	deadline := started.Add(readTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		defer close(r.done)
		if c.inFlight != r { // an action invalidated this read
			return
		}
		if c.inFlight = nil; r.err == nil {
			c.value, c.expires = r.value, time.Now().Add(max(c.ttl, slowFactor*time.Since(started)))
		}
	}()
	r.value, r.err = read(ctx)
}

// invalidate drops the value and ignores the result of a read in flight.
func (c *cache[T]) invalidate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expires, c.inFlight = time.Time{}, nil
}
