package dbconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

// Explain translates any error into one for the operator.
func Explain(err error) *usererr.Error {
	if e, ok := errors.AsType[*usererr.Error](err); ok {
		return e
	}
	// Before the database's: both may refuse a connection.
	if e, ok := errors.AsType[*storage.ServiceError](err); ok {
		return explainStorage(e)
	}
	if e := ExplainSchema(err); e != nil {
		return e
	}
	if e := explainPrivateServer(err); e != nil {
		return e
	}
	var connect *pgconn.ConnectError
	var pg *pgconn.PgError
	text := usererr.FirstLine(err.Error())
	switch {
	case errors.Is(err, store.ErrNotFound):
		return &usererr.Error{Kind: usererr.NotFound, Text: text, Hint: "cuelight list shows the tasks"}
	case errors.Is(err, store.ErrInvalid) && errors.As(err, &pg):
		return &usererr.Error{
			Kind: usererr.Usage, Text: "invalid submission: " + usererr.FirstLine(pg.Message),
			Hint: usererr.FirstLine(pg.Detail),
		}
	case errors.Is(err, store.ErrInvalid), errors.Is(err, store.ErrNoStage), errors.Is(err, store.ErrRequestIDTaken):
		return &usererr.Error{Kind: usererr.Usage, Text: text}
	case errors.Is(err, store.ErrPurging):
		return &usererr.Error{Text: "the video is being purged and cannot be restored"}
	case errors.Is(err, store.ErrUnpublishing):
		return &usererr.Error{Text: "a daemon is removing the published files", Hint: "try again in a minute"}
	case errors.Is(err, store.ErrOverridden):
		return &usererr.Error{Text: "the task was replaced by another and cannot run again"}
	case errors.As(err, &connect), errors.As(err, &pg) && isUnavailable(pg.Code), isNetworkError(err):
		return &usererr.Error{Kind: usererr.Unreachable, Text: "the database " + DescribeUnavailable(err)}
	case errors.As(err, &pg):
		return &usererr.Error{
			Text: "the database rejected the query: " + usererr.FirstLine(pg.Message), Hint: usererr.FirstLine(pg.Hint),
		}
	case errors.Is(err, context.DeadlineExceeded):
		return &usererr.Error{Kind: usererr.Unreachable, Text: "the database does not answer in time"}
	}
	return &usererr.Error{Text: text}
}

// explainStorage translates a problem of the storage service.
func explainStorage(e *storage.ServiceError) *usererr.Error {
	kind := usererr.Usage
	switch e.Kind {
	case storage.Unavailable, storage.Busy, storage.Cut, storage.Slow, storage.Refused, storage.Name, storage.Full:
		kind = usererr.Unreachable
	}
	return &usererr.Error{Kind: kind, Text: e.Text, Hint: e.Hint}
}

// ExplainSchema translates an error about the tables; it returns nil for any other.
func ExplainSchema(err error) *usererr.Error {
	e := &usererr.Error{Kind: usererr.Schema, Err: err}
	switch {
	case errors.Is(err, store.ErrEncoding):
		e.Text, e.Hint = textFromCause(err, store.ErrEncoding), "create another: create database NAME encoding 'UTF8' template template0"
	case errors.Is(err, store.ErrNoSearchPath):
		e.Text, e.Hint = "no schema of the search_path in the database's address exists", "create it: create schema NAME; then: cuelight migrate"
	case errors.Is(err, store.ErrNoSchema):
		e.Text, e.Hint = "the database has no Cuelight tables", "create them: cuelight migrate"
	case errors.Is(err, store.ErrSchemaOlder):
		e.Text = "the database's " + textFromCause(err, store.ErrSchemaOlder)
		e.Hint = "upgrade them: cuelight migrate; daemons of the version before work on meanwhile"
	case errors.Is(err, store.ErrForeignTables):
		e.Text, e.Hint, _ = strings.Cut(textFromCause(err, store.ErrForeignTables), "; ")
	case errors.Is(err, store.ErrSchemaNewer):
		e.Text = "the database's tables are newer than this program; nothing was changed"
		e.Hint = "use the version of cuelight that created them, or a later one"
	case errors.Is(err, store.ErrSchemaShape):
		e.Text = "the database's " + textFromCause(err, store.ErrSchemaShape) + "; nothing was changed"
		e.Hint = "if stages were added to the program, stop all workers and run: cuelight migrate; otherwise use another " +
			"database, or another schema (search_path in its address)"
	case errors.Is(err, store.ErrSettings):
		e.Text = textFromCause(err, store.ErrSettings)
		e.Hint = "change it for this role: alter role NAME set …, or alter role NAME bypassrls"
	case errors.Is(err, store.ErrTriggersMissing):
		e.Text, e.Hint = "the database's triggers or functions are missing, or their schema was renamed", "load them again: cuelight migrate"
	case errors.Is(err, store.ErrSchemaBroken):
		e.Text = "the database's tables have been altered: " + Reason(err)
		e.Hint = "restore them from a backup, or use another database"
	default:
		return nil
	}
	return e
}

// textFromCause returns the text of an error from its cause on.
func textFromCause(err, cause error) string {
	_, detail, _ := strings.Cut(err.Error(), cause.Error())
	return cause.Error() + detail
}

// explainPrivateServer translates an error of the private server; it returns nil for
// any other.
func explainPrivateServer(err error) *usererr.Error {
	kind := usererr.Unreachable
	for _, setup := range []error{postgres.ErrNotInstalled, postgres.ErrNotCluster, postgres.ErrAccount} {
		if errors.Is(err, setup) {
			kind = usererr.Usage
		}
	}
	if v, ok := errors.AsType[*postgres.VersionError](err); ok {
		text, hint, _ := strings.Cut(v.Error(), "; ")
		return &usererr.Error{Kind: usererr.Usage, Text: text, Hint: hint}
	}
	server, ok := errors.AsType[*postgres.Error](err)
	if !ok {
		return nil
	}
	e := &usererr.Error{Kind: kind, Text: server.Text, Hint: server.Hint}
	if e.Hint == "" {
		e.Hint = server.Detail
	} else if kind == usererr.Usage {
		e.Hint += "\nor use another server: --database-url or CUELIGHT_DATABASE_URL"
	}
	return e
}

// IsLoginError reports whether the server answered that the user, the password or the
// database is wrong (PostgreSQL's class 28, and 3D000), so that waiting does not help.
func IsLoginError(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (strings.HasPrefix(pg.Code, "28") || pg.Code == "3D000")
}

// isUnavailable reports whether a PostgreSQL error code says that the server cannot be
// used now: connection errors (08), too many connections (53300), shutting down (57P).
func isUnavailable(code string) bool {
	return strings.HasPrefix(code, "08") || strings.HasPrefix(code, "57P") || code == "53300"
}

func isNetworkError(err error) bool {
	var op *net.OpError
	return errors.As(err, &op)
}

// DescribeUnavailable returns why the database cannot be used, as the end of a sentence that
// begins with "the database".
func DescribeUnavailable(err error) string {
	var connect *pgconn.ConnectError
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &connect) && errors.As(err, &pg):
		return "refused the connection: " + Reason(err)
	case errors.As(err, &pg) && !isUnavailable(pg.Code):
		return "rejected the query: " + Reason(err)
	case errors.Is(err, store.ErrLocked):
		return "is locked: " + store.ErrLocked.Error()
	}
	return "does not answer: " + Reason(err)
}

// Reason returns why a connection failed, without the addresses that were tried.
func Reason(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return usererr.FirstLine(pg.Message)
	}
	var dns *net.DNSError
	var op *net.OpError
	var call *os.SyscallError
	err = lastAttempt(err)
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
	text := usererr.FirstLine(err.Error())
	if i := strings.LastIndex(text, "): "); i >= 0 {
		text = text[i+3:]
	}
	return text
}

// lastAttempt returns the error of the last of several addresses, or ways to connect,
// that were tried.
func lastAttempt(err error) error {
	for e := err; e != nil; e = errors.Unwrap(e) {
		several, ok := e.(interface{ Unwrap() []error })
		if !ok {
			continue
		}
		if all := several.Unwrap(); len(all) > 0 {
			return lastAttempt(all[len(all)-1])
		}
	}
	return err
}
