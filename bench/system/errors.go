package system

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
)

// FirstError keeps the first error of workers for their Stop. The zero value is ready, and
// several goroutines may use it.
type FirstError struct{ first atomic.Pointer[error] }

// Add adds an error; nil is ignored.
func (l *FirstError) Add(err error) {
	if err != nil {
		l.first.CompareAndSwap(nil, &err)
	}
}

// Err returns the first error, or nil.
func (l *FirstError) Err() error {
	if err := l.first.Load(); err != nil {
		return *err
	}
	return nil
}

// Logger returns a logger for a system that logs. It adds logged errors to the list and
// drops all other records. It also drops cancellations: only Stop cancels.
func (l *FirstError) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelError}))
}

// Write adds a line of a log: a handler writes a record at once.
func (l *FirstError) Write(line []byte) (int, error) {
	if !strings.Contains(string(line), context.Canceled.Error()) {
		l.Add(errors.New(strings.TrimSpace(string(line))))
	}
	return len(line), nil
}
