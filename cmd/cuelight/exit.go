package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/usererr"
)

// The exit codes, as `cuelight --help` lists them.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitPartial     = 3
	exitNotFound    = 4
	exitUnreachable = 10
	exitSchema      = 13
)

const exitCodes = `Exit codes:
  0    all went well
  1    it did not; run: every video failed
  2    used wrongly, or something is missing on this machine
  3    some succeeded, some did not
  4    what was named is not there
  10   the database does not answer, or refuses
  13   the database's tables are missing, or of another version
  129, 130, 143   stopped by SIGHUP, SIGINT, SIGTERM before all was done`

// exitCodeOf has the exit code for every kind of error.
var exitCodeOf = map[usererr.Kind]int{
	usererr.Failure: exitFailure, usererr.Usage: exitUsage, usererr.NotFound: exitNotFound, usererr.Unreachable: exitUnreachable, usererr.Schema: exitSchema,
}

// quiet is an exit code for which all has been said.
type quiet int

func (q quiet) Error() string { return fmt.Sprintf("exit code %d", int(q)) }

// finish says what is wrong, if anything is, and returns the exit code.
func (c *cli) finish(err error) int {
	if err == nil {
		return exitOK
	}
	if code, ok := errors.AsType[quiet](err); ok {
		return int(code)
	}
	if isBrokenPipe(err) {
		return exitFailure // nobody is left to be told
	}
	if s, ok := received(c.sig.ctx); ok && isStopped(err) {
		return s.code()
	}
	p := dbconn.Explain(err)
	fmt.Fprintf(c.err, "cuelight: %s\n", p.Text)
	if p.Hint != "" {
		fmt.Fprintf(c.err, "  %s\n", strings.ReplaceAll(p.Hint, "\n", "\n  "))
	}
	return exitCodeOf[p.Kind]
}

// isStopped: what broke off because the context ended.
func isStopped(err error) bool {
	_, ok := errors.AsType[signalled](err)
	return ok || errors.Is(err, context.Canceled)
}
