package web

import (
	"context"
	"sync"
	"time"
)

// memo keeps what was read for a moment, and has one at a time read it.
type memo[T any] struct {
	once sync.Once
	turn chan struct{} // held by whoever reads or looks

	value T
	at    time.Time
}

// get returns what is not older than keep.
func (m *memo[T]) get(ctx context.Context, keep time.Duration, read func(context.Context) (T, error)) (T, error) {
	var none T
	m.once.Do(func() { m.turn = make(chan struct{}, 1) })
	select {
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return none, ctx.Err()
	}
	if !m.at.IsZero() && time.Since(m.at) < keep {
		return m.value, nil
	}
	value, err := read(ctx)
	if err != nil {
		return none, err
	}
	m.value, m.at = value, time.Now()
	return value, nil
}
