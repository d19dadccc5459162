package childproc

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

// tailBytes is how much a Tail keeps, and lineBytes the longest line of Lines.
const tailBytes, lineBytes = 2 << 10, 1 << 20

// Tail is a writer that keeps the end of what is written to it.
type Tail struct {
	mu   sync.Mutex
	text []byte
}

// Write never fails.
func (t *Tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = bytes.Clone(t.text[max(0, len(t.text)-tailBytes):])
	return len(b), nil
}

// String is the text without the white space around it.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}

// Lines returns a writer that calls f with each complete line, without its end. A
// line longer than a mebibyte arrives in parts. The slice is valid during the call.
func Lines(f func(line []byte)) io.Writer { return &lines{f: f} }

type lines struct {
	f    func([]byte)
	rest []byte
}

// Write calls f with the lines that b completes, and keeps the rest.
func (l *lines) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	text := l.rest
	for {
		line, after, found := bytes.Cut(text, []byte("\n"))
		if !found && len(text) < lineBytes {
			break
		}
		l.f(bytes.TrimSuffix(line, []byte("\r")))
		text = after
	}
	l.rest = append(l.rest[:0], text...)
	return len(b), nil
}
