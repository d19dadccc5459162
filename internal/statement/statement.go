// Package statement has what every package that sends SQL shares: it turns the
// errors of PostgreSQL into those of Cuelight ([Wrap]), makes text that PostgreSQL
// can store ([CleanText]), and runs reads whose plan must not depend on settings or
// on statistics ([Read]).
//
// It does not open connections; package dbconn does.
package statement

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrNoSchema, ErrSchemaBroken, ErrEventsGone and ErrLocked are errors that [Wrap] finds.
// Package store documents them.
var (
	ErrNoSchema     = errors.New("tables are missing")
	ErrSchemaBroken = errors.New("tables differ from those that Cuelight created")
	ErrEventsGone   = errors.New("events after that id were deleted")
	ErrLocked       = errors.New("another transaction has locked the row or the table")
)

// SQLSTATEs, see PostgreSQL's appendix A.
const (
	// CheckViolation is the SQLSTATE of a row that a check constraint rejects.
	CheckViolation = "23514"
	// UniqueViolation is the SQLSTATE of a row that a unique index rejects.
	UniqueViolation = "23505"

	undefinedTable    = "42P01"
	undefinedColumn   = "42703"
	undefinedFunction = "42883"
	undefinedObject   = "42704"
	datatypeMismatch  = "42804"
	serialization     = "40001"
	deadlock          = "40P01"
	lockTimeout       = "55P03"
	readOnly          = "25006" // a standby, or a primary that was set read-only
	eventsGone        = "CL001" // raised by the events function in triggers.sql
	tooComplex        = "54001" // JSON nested deeper than the server's stack

	// ClassData begins the SQLSTATEs of invalid values.
	ClassData = "22"
)

// State returns the SQLSTATE and the constraint of err, both empty where err is not
// from PostgreSQL.
func State(err error) (state, constraint string) {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code, pg.ConstraintName
	}
	return "", ""
}

// Wrap adds the act to an error and translates PostgreSQL's. It resets a pool whose
// server refuses to write: after a failover its connections lead to the old primary,
// and new ones find the new primary if the address names both.
func Wrap(db any, act string, err error) error {
	if err == nil {
		return nil
	}
	switch state, _ := State(err); state {
	case readOnly:
		if pool, ok := db.(interface{ Reset() }); ok {
			pool.Reset()
		}
	case lockTimeout:
		err = fmt.Errorf("%w: %w", ErrLocked, err)
	case eventsGone:
		err = ErrEventsGone
	case undefinedTable:
		err = fmt.Errorf("%w: %w", ErrNoSchema, err)
	case undefinedColumn, undefinedFunction, undefinedObject, datatypeMismatch:
		err = fmt.Errorf("%w: %w", ErrSchemaBroken, err)
	}
	return fmt.Errorf("%s: %w", act, err)
}

// IsRetryable reports whether err says only that two transactions conflicted, so that
// the same call may succeed when repeated.
func IsRetryable(err error) bool {
	state, _ := State(err)
	return state == deadlock || state == serialization
}

// IsRejected reports whether err says that PostgreSQL rejected a value, so that
// repeating the call with the same value will not help. Other errors may pass: a wrong
// password, a missing privilege or table, a full queue.
func IsRejected(err error) bool {
	state, _ := State(err)
	if len(state) != 5 {
		return false
	}
	switch state[:2] {
	case ClassData, "23", "P0": // values, constraints, exceptions raised by triggers
		return true
	}
	return state == tooComplex
}

// CleanText returns text that PostgreSQL can store: valid UTF-8 without NUL, of at
// most 64 KiB.
func CleanText(s string) string {
	const maxBytes = 64 << 10
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
	if len(s) > maxBytes {
		s = strings.ToValidUTF8(s[:maxBytes], "") + " …"
	}
	return s
}

// saveSettingsSQL turns off JIT compilation, which takes a hundred times longer than
// these statements, and plans that read whole tables, which PostgreSQL chooses where
// it has no statistics. The settings hold for one statement, also in a caller's transaction.
const saveSettingsSQL = `
/* settings of a read */
select set_config('cuelight.saved_settings', concat_ws(' ', current_setting('jit'), current_setting('enable_seqscan'),
                  current_setting('enable_bitmapscan'), current_setting('plan_cache_mode')), true),
       set_config('jit', 'off', true), set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true), set_config('plan_cache_mode', 'force_generic_plan', true)`

const restoreSettingsSQL = `
/* restore settings */
select set_config('jit', saved[1], true), set_config('enable_seqscan', saved[2], true),
       set_config('enable_bitmapscan', saved[3], true), set_config('plan_cache_mode', saved[4], true)
  from (select string_to_array(current_setting('cuelight.saved_settings'), ' ') as saved offset 0) as s`

// Read runs a query with a generic plan that uses indexes, in one round trip, and
// calls each with its rows.
func Read(
	ctx context.Context, db interface {
		SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
	}, sql string, args []any, each func(pgx.Rows) error,
) error {
	var b pgx.Batch
	b.Queue(saveSettingsSQL)
	b.Queue(sql, args...).Query(each)
	b.Queue(restoreSettingsSQL)
	return db.SendBatch(ctx, &b).Close()
}

// LimitLockWaitSQL makes the rest of a transaction fail rather than wait for a lock for longer than $1 milliseconds.
const LimitLockWaitSQL = `
/* limit lock waits */
select set_config('lock_timeout', $1::bigint::text, true)`

// BackgroundLockWait is the limit for statements that nothing waits for, in milliseconds: meanwhile heartbeats may lack their
// connection.
const BackgroundLockWait = 500
