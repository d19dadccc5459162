package system

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
)

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
func (l *ErrorList) Logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(lineWriter(l.addLine), &slog.HandlerOptions{Level: slog.LevelError}))
}

func (l *ErrorList) addLine(line string) {
	if !strings.Contains(line, context.Canceled.Error()) {
		l.Add(errors.New(strings.TrimSpace(line)))
	}
}

// lineWriter is called with each line: a handler writes a record at once.
type lineWriter func(line string)

// Write calls the function.
func (w lineWriter) Write(b []byte) (int, error) {
	w(string(b))
	return len(b), nil
}
