package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/internal/usererr"
)

// The exit codes that the help lists.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	exitPartial = 3
)

// exitCodeOf has the exit code of every kind of error.
var exitCodeOf = map[usererr.Kind]int{
	usererr.Failure:     exitFailure,
	usererr.Usage:       exitUsage,
	usererr.NotFound:    4,
	usererr.Unreachable: 10,
	usererr.Schema:      13,
}

const exitCodesHelp = `Exit codes:
  0    success
  1    failure; run: every video failed
  2    wrong usage, or this machine lacks something
  3    some succeeded, some failed
  4    the named task, worker, key, webhook or profile does not exist
  10   the database or the storage service does not answer, or refuses the connection
  13   the database's tables are missing, or of another version
  129, 130, 143   stopped by SIGHUP, SIGINT, SIGTERM before the end`

// exitStatus is an exit code for an outcome that has been printed already.
type exitStatus int

func (s exitStatus) Error() string { return fmt.Sprintf("exit code %d", int(s)) }

// finish prints an error, if there is one to print, and returns the exit code.
func (c *cli) finish(err error) int {
	switch {
	case err == nil:
		return exitOK
	case isBrokenPipe(err), errors.Is(err, ops.ErrNotCompleted): // the events have shown the outcome
		return exitFailure
	}
	if status, ok := errors.AsType[exitStatus](err); ok {
		return int(status)
	}
	if s, ok := daemon.SignalOf(c.sig.Ctx); ok && isStopped(err) {
		return s.ExitCode()
	}
	e := dbconn.Explain(err)
	fmt.Fprintf(c.err, "cuelight: %s\n", e.Text)
	if e.Hint != "" {
		fmt.Fprintf(c.err, "  %s\n", strings.ReplaceAll(e.Hint, "\n", "\n  "))
	}
	return exitCodeOf[e.Kind]
}

// isStopped reports whether err comes from a cancelled context.
func isStopped(err error) bool {
	_, ok := errors.AsType[daemon.SignalError](err)
	return ok || errors.Is(err, context.Canceled)
}

// isBrokenPipe reports whether the reader of the output has closed it.
func isBrokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }
