// Package readcache keeps the result of a read for a short time, so that many callers share it.
//
//	stats := readcache.Cache[Stats]{MaxAge: time.Second, Timeout: 5 * time.Second}
//	s, err := stats.Get(ctx, readStats)
//
// One read runs at a time, for all callers that wait. Errors are not kept.
package readcache

import (
	"context"
	"errors"
	"sync"
	"time"
)

var errAborted = errors.New("the read was aborted")

// Cache keeps a value. Many goroutines may use it.
type Cache[T any] struct {
	MaxAge time.Duration
	// Factor keeps the value for at least so many times as long as its read took, so that slow reads are rare.
	Factor  int
	Timeout time.Duration // of a read

	mu       sync.Mutex
	value    T
	expires  time.Time
	inFlight *call[T]
}

// call is a read that several callers wait for.
type call[T any] struct {
	done  chan struct{} // closed when value and err are set
	value T
	err   error
}

// Get returns the value, or reads it. A read serves all callers that wait, so it does not end with the context of the
// first one, but it has that one's deadline.
func (c *Cache[T]) Get(ctx context.Context, read func(context.Context) (T, error)) (T, error) {
	c.mu.Lock()
	if time.Now().Before(c.expires) {
		defer c.mu.Unlock()
		return c.value, nil
	}
	r := c.inFlight
	if r == nil {
		r = &call[T]{done: make(chan struct{}), err: errAborted}
		c.inFlight = r
		c.mu.Unlock()
		c.run(ctx, r, read)
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

func (c *Cache[T]) run(ctx context.Context, r *call[T], read func(context.Context) (T, error)) {
	started := time.Now()
	deadline := started.Add(c.Timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	defer func() { // also if read panics
		c.mu.Lock()
		defer c.mu.Unlock()
		defer close(r.done)
		if c.inFlight != r { // Invalidate was called
			return
		}
		if c.inFlight = nil; r.err == nil {
			c.value, c.expires = r.value, time.Now().Add(max(c.MaxAge, time.Duration(c.Factor)*time.Since(started)))
		}
	}()
	r.value, r.err = read(ctx)
}

// Invalidate drops the value. Callers that come later do not get the result of a read that is in flight now.
func (c *Cache[T]) Invalidate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expires, c.inFlight = time.Time{}, nil
}
