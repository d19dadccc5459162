package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/store"
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

// problem is an error in the words it is shown in.
type problem struct {
	code int
	text string // one line, without a full stop
	hint string // what to do about it, or empty
}

func (p *problem) Error() string { return p.text }

func usagef(format string, args ...any) *problem {
	return &problem{code: exitUsage, text: fmt.Sprintf(format, args...)}
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
	p := explain(err)
	fmt.Fprintf(c.err, "cuelight: %s\n", p.text)
	if p.hint != "" {
		fmt.Fprintf(c.err, "  %s\n", strings.ReplaceAll(p.hint, "\n", "\n  "))
	}
	return p.code
}

// isStopped: what broke off because the context ended.
func isStopped(err error) bool {
	_, ok := errors.AsType[signalled](err)
	return ok || errors.Is(err, context.Canceled)
}

// explain finds the words and the exit code for any error.
func explain(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if p := explainSchema(err); p != nil {
		return p
	}
	if p := explainPrivate(err); p != nil {
		return p
	}
	var connect *pgconn.ConnectError
	var pg *pgconn.PgError
	switch {
	case errors.Is(err, store.ErrNotFound):
		return &problem{code: exitNotFound, text: firstLine(err.Error()), hint: "cuelight list shows what there is"}
	case errors.Is(err, store.ErrInvalid) && errors.As(err, &pg):
		return &problem{code: exitUsage, text: "invalid submission: " + firstLine(pg.Message), hint: firstLine(pg.Detail)}
	case errors.Is(err, store.ErrInvalid), errors.Is(err, store.ErrNoStage), errors.Is(err, store.ErrRequestTaken):
		return &problem{code: exitUsage, text: firstLine(err.Error())}
	case errors.Is(err, store.ErrOverridden):
		return &problem{code: exitFailure, text: "the task was replaced by another, and is never worked on again"}
	case errors.As(err, &connect), errors.As(err, &pg) && isAway(pg.Code), isNetwork(err):
		return &problem{code: exitUnreachable, text: "the database " + absence(err)}
	case errors.As(err, &pg):
		return &problem{code: exitFailure, text: "the database refused: " + firstLine(pg.Message), hint: firstLine(pg.Hint)}
	case errors.Is(err, context.DeadlineExceeded):
		return &problem{code: exitUnreachable, text: "the database does not answer in time"}
	}
	return &problem{code: exitFailure, text: firstLine(err.Error())}
}

func explainSchema(err error) *problem {
	p := &problem{code: exitSchema}
	switch {
	case errors.Is(err, store.ErrNoSchema):
		p.text, p.hint = "the database has no tables of Cuelight", "make them: cuelight migrate"
	case errors.Is(err, store.ErrSchemaOlder):
		p.text, p.hint = "the database's tables are older than this program", "bring them up to date: cuelight migrate"
	case errors.Is(err, store.ErrSchemaNewer):
		p.text, p.hint = "the database's tables are newer than this program; nothing was changed", "use the version of cuelight that made them, or a later one"
	case errors.Is(err, store.ErrSchemaShape):
		p.text, p.hint = "the database's tables belong to a pipeline with other stages; nothing was changed", "use another database, or another schema (search_path in its address)"
	case errors.Is(err, store.ErrSchemaBroken):
		p.text, p.hint = "the database's tables are not as Cuelight made them: "+reason(err), "restore them from a backup, or use another database"
	default:
		return nil
	}
	return p
}

// explainPrivate is about the private server, whose errors have their words.
func explainPrivate(err error) *problem {
	code := exitUnreachable
	for _, setUp := range []error{postgres.ErrNotInstalled, postgres.ErrNotCluster, postgres.ErrAccount} {
		if errors.Is(err, setUp) {
			code = exitUsage
		}
	}
	const other = "or name a server of your own with --database-url or CUELIGHT_DATABASE_URL"
	if e, ok := errors.AsType[*postgres.VersionError](err); ok {
		text, advice, _ := strings.Cut(e.Error(), "; ")
		return &problem{code: exitUsage, text: text, hint: advice}
	}
	e, ok := errors.AsType[*postgres.Error](err)
	if !ok {
		return nil
	}
	p := &problem{code: code, text: e.Problem, hint: e.Advice}
	if p.hint == "" {
		p.hint = e.Detail
	} else if code == exitUsage {
		p.hint += "\n" + other
	}
	return p
}

// isAway: PostgreSQL's codes for a server or a database that cannot be used
// now: connections (08), too many of them (53300), shutting down (57P).
func isAway(code string) bool {
	return strings.HasPrefix(code, "08") || strings.HasPrefix(code, "57P") || code == "53300"
}

func isNetwork(err error) bool {
	var op *net.OpError
	return errors.As(err, &op)
}

// absence says of a database that cannot be used what it does, or does not.
func absence(err error) string {
	var connect *pgconn.ConnectError
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &connect) && errors.As(err, &pg):
		return "refuses us: " + reason(err)
	case errors.As(err, &pg) && !isAway(pg.Code):
		return "refuses what it is asked: " + reason(err)
	}
	if errors.Is(err, store.ErrLocked) {
		return "lets us wait: " + store.ErrLocked.Error()
	}
	return "does not answer: " + reason(err)
}

// lastTried is the error of the last of several addresses or ways to connect:
// those before it were only worth a try.
func lastTried(err error) error {
	for e := err; e != nil; e = errors.Unwrap(e) {
		several, ok := e.(interface{ Unwrap() []error })
		if !ok {
			continue
		}
		if all := several.Unwrap(); len(all) > 0 {
			return lastTried(all[len(all)-1])
		}
	}
	return err
}

// reason is why a connection failed, without the addresses that were tried.
func reason(err error) string {
	var pg *pgconn.PgError
	var dns *net.DNSError
	var op *net.OpError
	var call *os.SyscallError
	switch {
	case errors.As(err, &pg):
		return firstLine(pg.Message)
	}
	err = lastTried(err)
	switch {
	case errors.As(err, &dns):
		return fmt.Sprintf("%s: %s", dns.Name, dns.Err)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &op) && op.Timeout():
		return "no answer in time"
	case errors.As(err, &call):
		return call.Err.Error()
	case errors.As(err, &op):
		return op.Err.Error()
	}
	text := firstLine(err.Error())
	if i := strings.LastIndex(text, "): "); i >= 0 {
		text = text[i+3:]
	}
	return text
}
