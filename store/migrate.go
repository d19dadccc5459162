package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/statement"
)

// Only the schema in which Migrate would create the tables is searched, not the
// rest of the search_path.
const schemaSQL = `
/* find schema table */
select to_regclass(quote_ident(current_schema()) || '.cuelight_schema') is not null, current_schema() is not null,
       current_setting('server_encoding')`

const versionSQL = `
/* schema version */
select s.version, coalesce((to_jsonb(s) ->> 'migrated_to')::integer, s.version), s.shape
  from cuelight_schema s where s.pipeline = $1`

// Check compares the tables with what this package needs, and changes
// nothing. It returns [ErrEncoding], [ErrNoSchema], [ErrNoSearchPath], [ErrSchemaOlder], [ErrSchemaUnknown], [ErrSchemaNewer],
// [ErrSchemaShape] or [ErrSchemaBroken].
func (s *Store) Check(ctx context.Context) error {
	if _, err := s.version(ctx); err != nil {
		return fmt.Errorf("check tables of pipeline %s: %w", s.graph.name, err)
	}
	return nil
}

// Version returns the version of the tables; 0 if there are none. It is the number of the last migration.
func (s *Store) Version(ctx context.Context) (int, error) {
	version, err := s.version(ctx)
	for _, known := range []error{ErrNoSchema, ErrSchemaOlder, ErrSchemaUnknown, ErrSchemaNewer, ErrSchemaShape} {
		if errors.Is(err, known) {
			return version, nil
		}
	}
	return version, err
}

// version returns the version of the tables, and why this program cannot use them. The column migrated_to is
// missing in version 13.
func (s *Store) version(ctx context.Context) (int, error) {
	var there, hasSchema bool
	var encoding string
	if err := s.db.QueryRow(ctx, schemaSQL).Scan(&there, &hasSchema, &encoding); err != nil {
		return 0, err
	}
	if err := CheckEncoding(encoding); err != nil {
		return 0, err
	}
	switch {
	case !hasSchema:
		return 0, ErrNoSearchPath
	case !there:
		return 0, ErrNoSchema
	}
	var oldest, version int // of programs, and of the tables
	var shape string
	err := s.db.QueryRow(ctx, versionSQL, s.graph.name).Scan(&oldest, &version, &shape)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, ErrNoSchema
	case err != nil:
		return 0, s.explain("read version", err)
	case oldest > SchemaVersion:
		return version, fmt.Errorf("%w: version %d, for programs from version %d on; this one has %d",
			ErrSchemaNewer, version, oldest, SchemaVersion)
	case version < oldestSchema:
		return version, fmt.Errorf("%w: version %d is from before the first release; use a new schema or database",
			ErrSchemaUnknown, version)
	case version < SchemaVersion:
		return version, fmt.Errorf("%w: version %d, this program needs %d", ErrSchemaOlder, version, SchemaVersion)
	case shape != s.graph.String():
		return version, fmt.Errorf("%w: the database has %q, the program %q", ErrSchemaShape, shape, s.graph.String())
	}
	return version, nil
}

// CheckEncoding returns [ErrEncoding] unless the encoding of a database, as the server names it, is UTF8.
func CheckEncoding(encoding string) error {
	if encoding == "UTF8" {
		return nil
	}
	return fmt.Errorf("%w is %s, but UTF8 is needed", ErrEncoding, encoding)
}

// noTimeoutSQL lifts the role's statement_timeout: a migration may wait for another one, and
// reads large tables.
const noTimeoutSQL = `
/* lift statement timeout */
set local statement_timeout = 0`

const migrateLockSQL = `
/* lock migrations */
select pg_advisory_xact_lock(hashtext('cuelight migrate'))`

// MigrateResult says what [Store.Migrate] found and changed.
type MigrateResult struct {
	From  int      // version of the tables before; 0: there were none
	Added []string // stages added to existing tables
}

// Migrate creates the pipeline's tables, upgrades those of an earlier version, or adds to them
// the stages that the graph has and they have not, in one transaction; any number of processes may call it
// at once. Otherwise it changes nothing. It returns [ErrEncoding], [ErrSchemaUnknown], [ErrSchemaNewer] or
// [ErrSchemaShape] where the tables are not those of this program.
//
// An upgrade by one version may run while programs of the version before work on the tables: it only adds to them.
// It locks the tables for some milliseconds; where it would have to wait for longer than a fifth of a second, or after half
// a minute for longer than 1.2 s, it tries again a second later, for up to a minute, and then returns [ErrLocked].
// Before, it builds new indexes without locking others out, in a session without the role's timeouts, which takes as long as
// reading the tables a few times, and as the transactions that are open then. If that fails, it changes nothing else; call it
// again. Behind a pooler the role's timeouts apply. But in a transaction of the caller it locks the tables meanwhile.
//
// A task that has completed all stages counts an added stage as completed, without a
// result; so does one that has started a stage behind the added one. Other tasks run it,
// unless they are cancelled. To run it for completed tasks, retry them from it:
//
//	st.RetryAll(ctx, store.Filter{Status: store.StatusCompleted}, "subtitles", store.RetryAllOptions{})
//
// The needs of existing stages may change as well, and a stage may begin to divide.
//
// Migrate does not remove or rename stages, because their status and history would be
// lost, and does not change stages while a worker of the pipeline runs: both are
// ErrSchemaShape. While it adds stages, it holds the table of tasks locked and reads it
// once or twice, some seconds for a million tasks.
func (s *Store) Migrate(ctx context.Context) (r MigrateResult, err error) {
	err = retry(ctx, func(time.Duration) error { return s.buildIndexes(ctx) })
	if err == nil {
		err = retry(ctx, func(tried time.Duration) error {
			r, err = s.migrate(ctx, lockWait(tried))
			return err
		})
	}
	if err != nil {
		return r, fmt.Errorf("migrate pipeline %s: %w", s.graph.name, err)
	}
	return r, nil
}

// retry repeats a part of a migration where another transaction is in its way. A worker may lock the tables in another
// order, which ends in a deadlock.
func retry(ctx context.Context, try func(tried time.Duration) error) error {
	for began := time.Now(); ; {
		err := try(time.Since(began))
		if !IsRetryable(err) && !errors.Is(err, ErrLocked) || time.Since(began) > migrateTimeout ||
			ctxsleep.For(ctx, migrateRetryDelay) != nil {
			return err
		}
	}
}

const (
	// migrateTimeout is how long Migrate tries again.
	migrateTimeout = time.Minute
	// migrateRetryDelay lets others work for much longer than a try makes them wait; see lockWait.
	migrateRetryDelay = time.Second
)

// lockWait is how long an upgrade waits for a lock, and others for the upgrade, by the time since its first try. It is
// shorter than they wait for a lock themselves, so that they go on at once when the upgrade stops waiting. Only later it
// is longer than the server's deadlock_timeout of a second, after which an autovacuum makes way.
func lockWait(tried time.Duration) time.Duration {
	if tried < migrateTimeout/2 {
		return time.Second / 5
	}
	return 6 * time.Second / 5
}

const setVersionSQL = `
/* set version */
update cuelight_schema
   set version = greatest(version, $2), migrated_to = $3, applied_at = now()
 where pipeline = $1`

// upgrade applies the migrations after a version of the tables.
func (s *Store) upgrade(ctx context.Context, tx pgx.Tx, from int, lockWait time.Duration) error {
	_, err := tx.Exec(ctx, statement.LimitLockWaitSQL, lockWait.Milliseconds())
	for _, ix := range s.graph.newIndexes(from) {
		if err == nil { // an index that is being built makes it fail at its lock
			_, err = ix.dropInvalid(ctx, tx, "")
		}
	}
	if err == nil {
		err = execAll(ctx, tx, s.graph.migrationSQL(from)...)
	}
	if err == nil {
		_, err = tx.Exec(ctx, setVersionSQL, s.graph.name, oldestProgram, SchemaVersion)
	}
	if err == nil {
		err = execAll(ctx, tx, s.graph.TriggersSQL())
	}
	return s.explain("upgrade", err)
}

func (s *Store) migrate(ctx context.Context, lockWait time.Duration) (r MigrateResult, err error) {
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		for _, sql := range []string{noTimeoutSQL, migrateLockSQL} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		r.From, err = s.WithTx(tx).version(ctx)
		if errors.Is(err, ErrSchemaOlder) {
			if err := s.upgrade(ctx, tx, r.From, lockWait); err != nil {
				return err
			}
			_, err = s.WithTx(tx).version(ctx) // of the upgraded tables
		}
		switch {
		case errors.Is(err, ErrNoSearchPath):
		case errors.Is(err, ErrNoSchema):
			return execAll(ctx, tx, s.graph.SchemaSQL(), s.graph.TriggersSQL())
		case errors.Is(err, ErrSchemaShape):
			r.Added, err = s.changeStages(ctx, tx)
		}
		return err
	})
	return r, err
}

// execAll runs files of many statements, which needs the simple protocol. Each is a
// transaction for psql; here all are part of tx.
func execAll(ctx context.Context, tx pgx.Tx, files ...string) error {
	for _, sql := range files {
		sql = strings.Replace(strings.Replace(sql, "\nbegin;\n", "\n", 1), "\ncommit;\n", "\n", 1)
		if _, err := tx.Conn().PgConn().Exec(ctx, sql).ReadAll(); err != nil {
			return err
		}
	}
	return nil
}
