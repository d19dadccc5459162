package store

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cuelight/cuelight/internal/statement"
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
	ErrNoSchema = statement.ErrNoSchema
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
	ErrSchemaBroken = statement.ErrSchemaBroken
	// ErrEventsGone: events after the one given were deleted, or it was never
	// there; begin anew with what the tasks are now, after [Store.LastEvent].
	ErrEventsGone = statement.ErrEventsGone
	// ErrLocked: somebody else's transaction has a row or a whole table locked, for
	// longer than is waited for. Nothing was changed.
	ErrLocked = statement.ErrLocked
	// ErrWorkerUnknown: the worker is not registered, or was given up.
	ErrWorkerUnknown = errors.New("worker is not registered")
)

// explain adds the act to an error and translates PostgreSQL's.
func (s *Store) explain(act string, err error) error {
	state, constraint := statement.State(err)
	switch {
	case state == statement.CheckViolation && constraint == s.graph.tasks()+"_overridden_rests":
		err = ErrOverridden
	case state == statement.CheckViolation && constraint == s.graph.tasks()+"_source_given":
		err = fmt.Errorf("%w: no source", ErrInvalid)
	case state == statement.CheckViolation && constraint == s.graph.tasks()+"_params_object":
		err = fmt.Errorf("%w: params are not a JSON object", ErrInvalid)
	case act == actSubmit && strings.HasPrefix(state, statement.ClassData):
		err = fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return statement.Wrap(s.db, act, err)
}

// IsRetryable reports whether err says only that two transactions conflicted, so that
// the same call may succeed when repeated.
func IsRetryable(err error) bool { return statement.IsRetryable(err) }

// IsRejected reports whether err says that PostgreSQL rejected a value, so that
// repeating the call with the same value will not help. Other errors may pass: a wrong
// password, a missing privilege or table, a full queue.
func IsRejected(err error) bool { return statement.IsRejected(err) }
