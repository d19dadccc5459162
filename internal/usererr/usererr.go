// Package usererr has the errors that a command shows to the person who runs it.
//
// An Error has a Kind, one line of text that says what happened, and a hint that says
// what to do next. The command decides which exit code a kind has. Everything that is
// shown passes through [Printable], so that a file name or a server's message cannot
// send control sequences to a terminal.
//
// The package does not translate the errors of other packages; for those of the
// database see package dbconn.
package usererr

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"
)

// Kind classifies an error by who can do something about it.
type Kind int

// The kinds of errors.
const (
	// Failure means that the operation failed.
	Failure Kind = iota
	// Usage means that a flag or argument is wrong, or that this machine lacks something.
	Usage
	// NotFound means that the named task, worker, key, webhook or profile does not exist.
	NotFound
	// Unreachable means that the database does not answer or refuses the connection.
	Unreachable
	// Schema means that the database's tables are missing or of another version.
	Schema
)

// Error is an error as it is shown.
type Error struct {
	Kind Kind
	Text string // one line: lower case, without a full stop
	Hint string // what to do about it; may be empty or have several lines
	Err  error  // the cause, for errors.Is; may be nil
}

func (e *Error) Error() string { return e.Text }

func (e *Error) Unwrap() error { return e.Err }

// Usagef returns an Error of kind Usage.
func Usagef(format string, args ...any) *Error {
	return &Error{Kind: Usage, Text: fmt.Sprintf(format, args...)}
}

// Printable returns s, quoted as a Go string if a terminal would not print it as it is.
func Printable(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// FirstLine returns the first line of an error's text, printable.
func FirstLine(s string) string {
	s = strings.TrimSpace(s)
	line, _, _ := strings.Cut(s, "\n")
	return Printable(strings.TrimRight(line, " \r"))
}

// SystemMessage returns the operating system's message without the path that
// [fs.PathError] adds, for errors that name the path themselves.
func SystemMessage(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return FirstLine(err.Error())
}
