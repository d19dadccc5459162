package ui

import (
	"context"
	"errors"
	"sync"
	"time"
)

// readWithin is how long a read may take.
const readTimeout = 5 * time.Second

// memo keeps what was read for a moment, so that many who ask at once share one
// read. What is slow is kept for longer.
type cache[T any] struct {
	minAge time.Duration

	mu       sync.Mutex
	value    T
	until    time.Time
	inFlight *cachedRead[T] // the read under way
}

// shared is a read that several wait for.
type cachedRead[T any] struct {
	done  chan struct{} // closed when there is what follows
	value T
	err   error
}

// slowness is how much longer than it took to read something it is kept.
const slowFactor = 10

// get reads at most once at a time. The read belongs to all who wait for it, so it
// does not end with the one who came first, but it has no more time than that one.
func (m *cache[T]) get(ctx context.Context, read func(context.Context) (T, error)) (T, error) {
	m.mu.Lock()
	if time.Now().Before(m.until) {
		defer m.mu.Unlock()
		return m.value, nil
	}
	r := m.inFlight
	if r == nil {
		r = &cachedRead[T]{done: make(chan struct{}), err: errors.New("reading it came to no end")}
		m.inFlight = r
		m.mu.Unlock()
		m.read(ctx, r, read)
		return r.value, r.err
	}
	m.mu.Unlock()
	select {
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	case <-r.done:
		return r.value, r.err
	}
}

func (m *cache[T]) read(ctx context.Context, r *cachedRead[T], read func(context.Context) (T, error)) {
	within := time.Now().Add(readTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(within) {
		within = d
	}
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), within)
	defer cancel()
	begun := time.Now()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		defer close(r.done)
		if m.inFlight != r { // something was done since
			return
		}
		if m.inFlight = nil; r.err == nil {
			m.value, m.until = r.value, time.Now().Add(max(m.minAge, slowFactor*time.Since(begun)))
		}
	}()
	r.value, r.err = read(ctx)
}

// drop forgets what was read, and what is being read.
func (m *cache[T]) invalidate() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.until, m.inFlight = time.Time{}, nil
}
