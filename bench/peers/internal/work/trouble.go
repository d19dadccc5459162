package work

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
)

// Trouble keeps what goes wrong while a crew works, for the error of its Stop.
// The zero value is ready.
type ErrorList struct {
	mu    sync.Mutex
	first []error
	more  int
}

// kept is how many errors are kept; the rest is counted.
const kept = 3

// Add keeps an error that is not nil.
func (t *ErrorList) Add(err error) {
	if err == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.first) == kept {
		t.more++
		return
	}
	t.first = append(t.first, err)
}

// Err is all there was, or nil.
func (t *ErrorList) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := errors.Join(t.first...)
	if t.more > 0 {
		err = fmt.Errorf("%w\nand %d more", err, t.more)
	}
	return err
}

// Logger is for a system that logs: what it says about errors is trouble, the
// rest is dropped, and so is that something was cancelled, which nobody does but
// Stop.
func (t *ErrorList) Logger() *slog.Logger { return slog.New(&handler{trouble: t}) }

type handler struct {
	trouble *ErrorList
	attrs   []slog.Attr
}

func (h *handler) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }

func (h *handler) Handle(_ context.Context, r slog.Record) error {
	text, cancelled := r.Message, false
	say := func(a slog.Attr) bool {
		text += " " + a.String()
		err, ok := a.Value.Any().(error)
		cancelled = cancelled || ok && errors.Is(err, context.Canceled)
		return true
	}
	for _, a := range h.attrs {
		say(a)
	}
	r.Attrs(say)
	if !cancelled {
		h.trouble.Add(errors.New(text))
	}
	return nil
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{trouble: h.trouble, attrs: append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)}
}

func (h *handler) WithGroup(string) slog.Handler { return h }
