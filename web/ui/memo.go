package ui

import (
	"context"
	"sync"
	"time"
)

// readWithin is how long a read may take.
const readWithin = 5 * time.Second

// memo keeps what was read for a moment, so that many who ask at once share one
// read. What is slow is kept for longer.
type memo[T any] struct {
	keep time.Duration

	mu    sync.Mutex
	value T
	until time.Time
}

// slowness is how much longer than it took to read something it is kept.
const slowness = 10

// get reads at most once at a time. The read belongs to all who wait for it, so it
// does not end with the one who came first.
func (m *memo[T]) get(ctx context.Context, read func(context.Context) (T, error)) (T, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Now().Before(m.until) {
		return m.value, nil
	}
	if err := ctx.Err(); err != nil { // it went while waiting for another's read
		var none T
		return none, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readWithin)
	defer cancel()
	begun := time.Now()
	value, err := read(ctx)
	if err != nil {
		return value, err
	}
	took := time.Since(begun)
	m.value, m.until = value, time.Now().Add(max(m.keep, slowness*took))
	return value, nil
}

// drop forgets what was read.
func (m *memo[T]) drop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.until = time.Time{}
}
