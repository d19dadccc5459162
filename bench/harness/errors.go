package harness

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

// ErrUnavailable says that a system cannot run on this machine, such as one that needs Node
// where Node is missing. The results omit it, with the reason. Setup and Start wrap it.
var ErrUnavailable = errors.New("not available on this machine")

// ErrorList collects the errors of workers for their Stop. The zero value is ready, and
// several goroutines may use it.
type ErrorList struct {
	mu    sync.Mutex
	first []error
	more  int
}

const maxErrors = 3 // kept; further ones are counted

// Add adds an error; nil is ignored.
func (l *ErrorList) Add(err error) {
	if err == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.first) == maxErrors {
		l.more++
		return
	}
	l.first = append(l.first, err)
}

// Err returns all errors as one, or nil.
func (l *ErrorList) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := errors.Join(l.first...)
	if l.more > 0 {
		err = fmt.Errorf("%w\nand %d more", err, l.more)
	}
	return err
}

// Logger returns a logger for a system that logs. It adds logged errors to the list and
// drops all other records. It also drops cancellations: only Stop cancels.
func (l *ErrorList) Logger() *slog.Logger { return slog.New(&errorHandler{list: l}) }

type errorHandler struct {
	list  *ErrorList
	attrs []slog.Attr
}

// Enabled reports whether records of the level are errors.
func (h *errorHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }

// Handle adds the record to the list, with the attributes of its logger.
func (h *errorHandler) Handle(_ context.Context, r slog.Record) error {
	text, cancelled := r.Message, false
	add := func(a slog.Attr) bool {
		text += " " + a.String()
		err, ok := a.Value.Any().(error)
		cancelled = cancelled || ok && errors.Is(err, context.Canceled)
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	if !cancelled {
		h.list.Add(errors.New(text))
	}
	return nil
}

// WithAttrs returns a handler that adds attributes to each error.
func (h *errorHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &errorHandler{list: h.list, attrs: append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)}
}

// WithGroup returns the same handler, because the list has no groups.
func (h *errorHandler) WithGroup(string) slog.Handler { return h }
