package main

import (
	"errors"
	"io"
	"strings"
	"syscall"

	"golang.org/x/term"

	"github.com/cuelight/cuelight/internal/dbconn"
)

// stream is one of the standard streams, and what it is connected to.
type stream struct {
	io.Writer
	fd       int
	terminal bool
	colour   bool
	unicode  bool
}

func newStream(w io.Writer, env dbconn.Environment) *stream {
	s := &stream{Writer: w, fd: -1}
	if f, ok := w.(interface{ Fd() uintptr }); ok {
		s.fd = int(f.Fd())
		s.terminal = term.IsTerminal(s.fd) && env.Get("TERM") != "dumb"
	}
	s.colour = s.terminal && env.Get("NO_COLOR") == ""
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := env.Get(name); v != "" {
			v = strings.ToLower(v)
			s.unicode = strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
			break
		}
	}
	return s
}

// size is the terminal's, as it is now; 80 by 24 where nobody knows.
func (s *stream) size() (width, height int) {
	if s.fd >= 0 {
		if w, h, err := term.GetSize(s.fd); err == nil && w > 0 && h > 0 {
			return w, h
		}
	}
	return 80, 24
}

// The colours, for a word and never for its meaning alone.
const (
	red    = "31"
	green  = "32"
	yellow = "33"
	dim    = "2"
)

func (s *stream) paint(colour, text string) string {
	if !s.colour || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// isBrokenPipe: whoever read our output has gone.
func isBrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }
