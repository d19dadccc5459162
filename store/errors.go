package store

import (
	"errors"
	"fmt"
	"strings"

	"github.com/cuelight/cuelight/internal/statement"
)

// Errors of a Store's methods, for [errors.Is]. Other errors are the database's, wrapped
// with the act.
var (
	// ErrNotFound: the task does not exist.
	ErrNotFound = errors.New("no such task")
	// ErrNoStage: the pipeline has no stage of that name.
	ErrNoStage = errors.New("no such stage")
	// ErrPurging: the deleted task's files are being removed, so it cannot be restored.
	ErrPurging = errors.New("task is being purged")
	// ErrUnpublishing: what the deleted task has published is being removed. It can be restored afterwards.
	ErrUnpublishing = errors.New("published files of the task are being removed")
	// ErrOverridden: another task overrides this one, so it is never worked on again.
	ErrOverridden = errors.New("task is overridden by another")
	// ErrInvalid: a submission without a source, with parameters that are not a JSON
	// object, or with text that PostgreSQL cannot store.
	ErrInvalid = errors.New("invalid submission")
	// ErrRequestIDTaken: the submitter has used the request id for another source. The
	// [Receipt] has that task's id.
	ErrRequestIDTaken = errors.New("request id was used for another source")
	// ErrEncoding: the database's encoding is not UTF8, so it cannot store every text.
	ErrEncoding = errors.New("the encoding of the database")
	// ErrNoSchema: the pipeline's tables do not exist; see [Store.Migrate].
	ErrNoSchema = statement.ErrNoSchema
	// ErrNoSearchPath: no schema of the connection's search_path exists. It is an ErrNoSchema, too.
	ErrNoSearchPath = fmt.Errorf("%w: no schema of the search_path exists", ErrNoSchema)
	// ErrSchemaOlder: an older version of this package created the tables; see
	// [Store.Migrate].
	ErrSchemaOlder = errors.New("tables are older than this program")
	// ErrForeignTables: the schema has tables of these names that are not Cuelight's.
	ErrForeignTables = errors.New("tables of the same names belong to another program")
	// ErrSchemaNewer: a newer version of this package created or upgraded the tables.
	ErrSchemaNewer = errors.New("tables are newer than this program")
	// ErrSchemaShape: the tables belong to another graph of the same name; see
	// [Store.Migrate], which can add stages.
	ErrSchemaShape = errors.New("tables have other stages than the program")
	// ErrSchemaBroken: a column or function is missing or was changed.
	ErrSchemaBroken = statement.ErrSchemaBroken
	// ErrTriggersMissing: triggers or functions are missing, or know the schema by a name that it had; see [Store.Migrate], which
	// loads them again. It is an ErrSchemaBroken, too.
	ErrTriggersMissing = fmt.Errorf("%w: triggers or functions are missing, or their schema was renamed", ErrSchemaBroken)
	// ErrSettings: with a setting of the database, the role or the session this package does not work: default_transaction_isolation,
	// client_encoding or row-level security.
	ErrSettings = errors.New("a setting of the database does not fit")
	// ErrEventsGone: events after the given id were deleted, or the id does not exist in
	// this database. Read the tasks, and then the events after [Store.EventWatermark].
	ErrEventsGone = statement.ErrEventsGone
	// ErrLocked: another transaction has locked a row or a table for too long. Nothing was
	// changed.
	ErrLocked = statement.ErrLocked
	// ErrWorkerUnknown: the worker is not registered, or was lost.
	ErrWorkerUnknown = errors.New("worker is not registered")
	// ErrInvalidWorker: a worker's name, capabilities or metadata cannot be stored.
	ErrInvalidWorker = errors.New("invalid worker")
	// ErrTooManyWorkers: the principal of a worker has registered as many as it may have at once.
	ErrTooManyWorkers = errors.New("too many workers")
)

// explain adds the act to an error and translates PostgreSQL's.
func (s *Store) explain(act string, err error) error {
	state, constraint := statement.State(err)
	switch {
	case state == statement.CheckViolation && constraint == s.graph.prefix+"tasks_overridden":
		err = ErrOverridden
	case state == statement.CheckViolation && constraint == "source_not_empty":
		err = fmt.Errorf("%w: no source", ErrInvalid)
	case state == statement.CheckViolation && constraint == "is_object":
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

const actSubmit = "submit"
