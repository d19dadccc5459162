// Package console formats output for terminals and for files.
//
// A [Stream] knows whether it is a terminal and what that can show. [Table] prints
// columns that fit the terminal, [Screen] redraws lines in place, and Stream.Rows lays
// out the progress of running stages. The text functions measure, cut and quote strings
// by the columns they take. On anything but a terminal the output has no control
// sequences. The package reads nothing from the terminal.
package console

import (
	"io"
	"strings"

	"golang.org/x/term"

	"github.com/cuelight/cuelight/internal/dbconn"
)

// Stream is a standard stream, with what is known of its terminal.
type Stream struct {
	io.Writer
	fd         int
	IsTerminal bool
	HasColour  bool
	unicode    bool
}

// NewStream examines the stream and the environment.
func NewStream(w io.Writer, env dbconn.Environment) *Stream {
	s := &Stream{Writer: w, fd: -1}
	if f, ok := w.(interface{ Fd() uintptr }); ok {
		s.fd = int(f.Fd())
		s.IsTerminal = term.IsTerminal(s.fd) && env.Get("TERM") != "dumb"
	}
	s.HasColour = s.IsTerminal && env.Get("NO_COLOR") == ""
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := env.Get(name); v != "" {
			v = strings.ToLower(v)
			s.unicode = strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
			break
		}
	}
	return s
}

// Size returns the terminal's current size; 80 by 24 if unknown.
func (s *Stream) Size() (width, height int) {
	if s.fd >= 0 {
		if w, h, err := term.GetSize(s.fd); err == nil && w > 0 && h > 0 {
			return w, h
		}
	}
	return 80, 24
}

// Red, Green, Yellow and Dim are colours for [Stream.Paint]. Output must have the same
// meaning without them.
const (
	Red    = "31"
	Green  = "32"
	Yellow = "33"
	Dim    = "2"
)

// Paint colours text, on terminals that show colours.
func (s *Stream) Paint(colour, text string) string {
	if !s.HasColour || text == "" {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}
