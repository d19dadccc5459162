package store

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// What a Store's methods may return, to be matched with [errors.Is]. Anything
// else is the database's own error, wrapped with what was being done.
var (
	// ErrNotFound: there is no such task.
	ErrNotFound = errors.New("no such task")
	// ErrNoStage: the pipeline has no stage of that name.
	ErrNoStage = errors.New("no such stage")
	// ErrOverridden: the task was replaced by another and is never worked on
	// again.
	ErrOverridden = errors.New("task was replaced by another")
	// ErrInvalid: a submission that cannot be: no source, parameters that are
	// not a JSON object, text that PostgreSQL cannot hold. [ErrInvalidKey] is one.
	ErrInvalid = errors.New("invalid submission")
	// ErrRequestTaken: the submitter has used the request id for a task with
	// another source. The [Receipt] names that task.
	ErrRequestTaken = errors.New("the request id names a task with another source")
	// ErrNoSchema: the pipeline's tables are not there; see [Store.Migrate].
	ErrNoSchema = errors.New("tables are missing")
	// ErrSchemaOlder: the tables were made by an older version of this
	// package; see [Store.Migrate].
	ErrSchemaOlder = errors.New("tables are older than this program")
	// ErrSchemaNewer: the tables were made by a newer version of this package.
	// Nothing was changed.
	ErrSchemaNewer = errors.New("tables are newer than this program")
	// ErrSchemaShape: the tables are those of another graph under the same
	// name. Nothing was changed.
	ErrSchemaShape = errors.New("tables belong to a pipeline with other stages")
	// ErrSchemaBroken: something in the tables is not as this package made it: a
	// column or a function is missing, or is another.
	ErrSchemaBroken = errors.New("tables are not as they were made")
	// ErrEventsGone: events after the one given were deleted, or it was never
	// there; begin anew with what the tasks are now, after [Store.LastEvent].
	ErrEventsGone = errors.New("events after that place are gone")
	// ErrLocked: somebody else's transaction has a row or a whole table locked, for
	// longer than is waited for. Nothing was changed.
	ErrLocked = errors.New("another transaction has locked the row or the table")
	// ErrWorkerUnknown: the worker is not registered, or was given up.
	ErrWorkerUnknown = errors.New("worker is not registered")
)

// SQLSTATEs that mean something here; see PostgreSQL's appendix A.
const (
	stateCheckViolation    = "23514"
	stateUndefinedTable    = "42P01"
	stateUndefinedColumn   = "42703"
	stateUndefinedFunction = "42883"
	stateUndefinedObject   = "42704"
	stateDatatypeMismatch  = "42804"
	stateSerialization     = "40001"
	stateDeadlock          = "40P01"
	stateLockTimeout       = "55P03"
	stateReadOnly          = "25006" // a standby, or a primary that was set so
	stateEventsGone        = "CL001" // raised by the events function in triggers.sql
	classData              = "22"    // values that cannot be
)

// cleanText makes text that PostgreSQL can hold: valid UTF-8 without NUL, and
// of an error message no more than a person will read.
func cleanText(s string) string {
	const most = 64 << 10
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + " …"
	}
	return s
}

// pgState is the SQLSTATE and the constraint that err carries, if any.
func pgState(err error) (state, constraint string) {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code, pg.ConstraintName
	}
	return "", ""
}

// explain turns what the database refuses into the error that says why.
func (s *Store) explain(act string, err error) error {
	if err == nil {
		return nil
	}
	state, constraint := pgState(err)
	switch {
	case state == stateReadOnly:
		s.closeBadConnection()
	case state == stateCheckViolation && constraint == s.graph.tasks()+"_overridden_rests":
		err = ErrOverridden
	case state == stateCheckViolation && constraint == s.graph.tasks()+"_source_given":
		err = fmt.Errorf("%w: no source", ErrInvalid)
	case state == stateCheckViolation && constraint == s.graph.tasks()+"_params_object":
		err = fmt.Errorf("%w: params are not a JSON object", ErrInvalid)
	case act == actSubmit && strings.HasPrefix(state, classData):
		err = fmt.Errorf("%w: %w", ErrInvalid, err)
	case state == stateLockTimeout:
		err = fmt.Errorf("%w: %w", ErrLocked, err)
	case state == stateEventsGone:
		err = ErrEventsGone
	case state == stateUndefinedTable:
		err = fmt.Errorf("%w: %w", ErrNoSchema, err)
	case state == stateUndefinedColumn, state == stateUndefinedFunction, state == stateUndefinedObject, state == stateDatatypeMismatch:
		err = fmt.Errorf("%w: %w", ErrSchemaBroken, err)
	}
	return fmt.Errorf("%s: %w", act, err)
}

// abandon closes the connections to a server that refuses to write: it was the
// primary and is so no longer, and would keep them for ever. The next ones find
// the one that writes, if the address names several.
func (s *Store) closeBadConnection() {
	if pool, ok := s.db.(interface{ Reset() }); ok {
		pool.Reset()
	}
}

// Again reports whether err only says that two transactions got in each
// other's way, so that the same call may simply be made again.
func IsRetryable(err error) bool {
	state, _ := pgState(err)
	return state == stateDeadlock || state == stateSerialization
}

// Refuses reports whether err says that the database has something against a
// value it was given: giving it the same again will not help. Everything else
// may be the moment's: a password, a privilege or a table that is missing, a
// queue that is full, come back.
func IsRejected(err error) bool {
	const tooNested = "54001" // JSON, deeper than the server's stack
	state, _ := pgState(err)
	if len(state) != 5 {
		return false
	}
	switch state[:2] {
	case classData, "23", "P0": // appendix A: values, constraints, what somebody's trigger raises
		return true
	}
	return state == tooNested
}
