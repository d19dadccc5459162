// Package line has the plain lines in which the programs that put Cuelight to
// the proof tell what happens: each with the seconds since a beginning.
package line

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Teller writes lines. It may be used by many goroutines at once.
type Teller struct {
	mu    sync.Mutex
	out   io.Writer
	began time.Time
}

// To returns a Teller whose time begins now.
func To(out io.Writer) *Teller { return &Teller{out: out, began: time.Now()} }

// Say writes one line.
func (t *Teller) Say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, "%6.1f s  %s\n", time.Since(t.began).Seconds(), fmt.Sprintf(format, args...))
}

// Print writes as fmt.Fprintf does, without the time.
func (t *Teller) Print(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, format, args...)
}

// Restart makes now the beginning.
func (t *Teller) Restart() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.began = time.Now()
}

// Began is when the time began.
func (t *Teller) Began() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.began
}

// Brief is enough of an error for one line; empty for none.
func Brief(err error) string {
	if err == nil {
		return ""
	}
	const most = 100
	text := strings.Join(strings.Fields(err.Error()), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + " …"
	}
	return text
}
