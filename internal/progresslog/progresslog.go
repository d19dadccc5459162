// Package progresslog writes the progress of a long-running program for a person: one line
// per message, with the seconds since a start time. It is for the commands that test and
// measure Cuelight. Call [New] first. It is not for a daemon, whose log is structured.
package progresslog

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Log writes lines. Many goroutines may use it at once.
type Log struct {
	mu      sync.Mutex
	out     io.Writer
	started time.Time
}

// New returns a Log whose time starts now.
func New(out io.Writer) *Log { return &Log{out: out, started: time.Now()} }

// Logf writes one line, with the time.
func (l *Log) Logf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.out, "%6.1f s  %s\n", time.Since(l.started).Seconds(), fmt.Sprintf(format, args...))
}

// Printf writes as fmt.Fprintf does, without the time.
func (l *Log) Printf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.out, format, args...)
}

// Restart sets the start time to now.
func (l *Log) Restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.started = time.Now()
}

// Started returns the start time.
func (l *Log) Started() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.started
}

// Brief shortens the text of an error to one line; "" for no error.
func Brief(err error) string {
	if err == nil {
		return ""
	}
	const limit = 100
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + " …"
	}
	return text
}
