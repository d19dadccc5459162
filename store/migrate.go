package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/statement"
)

// Only the schema in which Migrate would create the tables is searched, not the
// rest of the search_path.
const schemaSQL = `
/* find tables */
select (select count(*) from pg_attribute where attrelid = to_regclass(quote_ident(current_schema()) || '.{pipeline}')
                                            and attname in ('name', 'version', 'stages')) = 3,
       array(select name from unnest('{TABLES}'::text[]) as name
              where to_regclass(quote_ident(current_schema()) || '.' || name) is not null),
       current_schema() is not null, current_setting('server_encoding')`

const versionSQL = `
/* version of the tables */
select name, version, stages from {pipeline}`

// Check compares the tables, and the settings of the session, with what this package needs, and changes
// nothing. It returns [ErrEncoding], [ErrNoSchema], [ErrNoSearchPath], [ErrForeignTables], [ErrSchemaOlder], [ErrSchemaNewer],
// [ErrSchemaShape], [ErrSchemaBroken], [ErrTriggersMissing] or [ErrSettings].
func (s *Store) Check(ctx context.Context) error {
	_, err := s.version(ctx)
	if err == nil {
		err = s.checkSettings(ctx)
	}
	if err != nil {
		return fmt.Errorf("check tables of pipeline %s: %w", s.graph.name, err)
	}
	return nil
}

const settingsSQL = `
/* settings that others chose, and damage */
select current_setting('default_transaction_isolation'), current_setting('client_encoding'),
       array(select name from unnest('{TABLES}'::text[]) as name
              where row_security_active(quote_ident(current_schema()) || '.' || name)),
       ` + isBroken

// checkSettings returns why the session, or what Migrate has loaded, does not work.
func (s *Store) checkSettings(ctx context.Context) error {
	var isolation, encoding string
	var hidden []string
	var broken bool
	if err := s.queryRow(ctx, s.withTables(settingsSQL)).Scan(&isolation, &encoding, &hidden, &broken); err != nil {
		return err
	}
	switch {
	case isolation != "read committed":
		return fmt.Errorf("%w: default_transaction_isolation is %s, but read committed is needed", ErrSettings, isolation)
	case encoding != "UTF8":
		return fmt.Errorf("%w: client_encoding is %s, but UTF8 is needed", ErrSettings, encoding)
	case len(hidden) > 0:
		return fmt.Errorf("%w: row-level security hides rows of %s from this role", ErrSettings, strings.Join(hidden, ", "))
	case broken:
		return ErrTriggersMissing
	}
	return nil
}

// withTables fills the names of the pipeline's tables in.
func (s *Store) withTables(sql string) string {
	return strings.Replace(sql, "'{TABLES}'", "'{"+strings.Join(s.graph.tables(), ",")+"}'", 1)
}

// version returns the version of the tables, and why this program cannot use them.
func (s *Store) version(ctx context.Context) (version int, err error) {
	var there, hasSchema bool
	var tables []string
	var encoding, name, shape string
	if err := s.queryRow(ctx, s.withTables(schemaSQL)).Scan(&there, &tables, &hasSchema, &encoding); err != nil {
		return 0, err
	}
	if err := CheckEncoding(encoding); err != nil {
		return 0, err
	}
	switch {
	case !hasSchema:
		return 0, ErrNoSearchPath
	case !there && len(tables) > 0:
		advice := "create a schema for Cuelight (create schema cuelight) and connect with search_path=cuelight"
		if slices.Contains(tables, s.graph.prefix+"attempts") {
			advice = "if they are of an earlier checkout of Cuelight, use a new data directory or database; if not, " + advice
		}
		return 0, fmt.Errorf("%w: %s; %s", ErrForeignTables, strings.Join(tables, ", "), advice)
	case !there:
		return 0, ErrNoSchema
	}
	err = s.queryRow(ctx, versionSQL).Scan(&name, &version, &shape)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		err = ErrNoSchema
	case err != nil:
		err = s.explain("read version", err)
	case version > SchemaVersion:
		err = fmt.Errorf("%w: version %d, this program has %d", ErrSchemaNewer, version, SchemaVersion)
	case version < SchemaVersion:
		err = fmt.Errorf("%w: version %d, this program needs %d", ErrSchemaOlder, version, SchemaVersion)
	case name != s.graph.name || shape != s.graph.String():
		err = fmt.Errorf("%w: the database has %s: %q, the program %s: %q", ErrSchemaShape, name, shape, s.graph.name, s.graph.String())
	}
	return version, err
}

// tables lists the names of the pipeline's tables.
func (g Graph) tables() (names []string) {
	for _, name := range []string{
		"tasks", "steps", "attempts", "outbox", "positions", "workers", "pauses", "deleted_tasks", "pipeline",
	} {
		names = append(names, g.prefix+name)
	}
	return names
}

// CheckEncoding returns [ErrEncoding] unless the encoding of a database, as the server names it, is UTF8.
func CheckEncoding(encoding string) error {
	if encoding == "UTF8" {
		return nil
	}
	return fmt.Errorf("%w is %s, but UTF8 is needed", ErrEncoding, encoding)
}

// migrateSettingsSQL lifts limits that others chose for other work: a migration may wait for another one, and reads large tables.
// A snapshot must show what another migration has committed. The lock is taken in a statement of its own for the same reason.
var migrateSettingsSQL = []string{
	"set transaction isolation level read committed",
	"set local statement_timeout = 0",
	"/* of PostgreSQL 17 */ select set_config(name, '0', true) from pg_settings where name = 'transaction_timeout'",
	"/* lock migrations */ select pg_advisory_xact_lock(hashtext('cuelight migrate'))",
}

// MigrateResult says what [Store.Migrate] found and changed.
type MigrateResult struct {
	From     int      // version of the tables before; 0: there were none
	Added    []string // stages added to existing tables
	Repaired bool     // triggers or functions were missing, or their schema had been renamed
}

// Migrate creates the pipeline's tables, upgrades those of an earlier version, or adds to them the stages that the graph has and
// they have not, in one transaction; any number of processes may call it at once. Otherwise it loads its functions and
// triggers again if some are missing. It returns [ErrEncoding], [ErrForeignTables], [ErrSchemaNewer] or [ErrSchemaShape] where the
// tables are not those of this program, and [ErrLocked] if it had to wait for a lock for a minute.
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
// ErrSchemaShape. While it adds stages, it holds the table of tasks locked and writes it
// once, some seconds for a million tasks.
func (s *Store) Migrate(ctx context.Context) (r MigrateResult, err error) {
	for began := time.Now(); ; {
		r, err = s.migrate(ctx)
		// A worker may lock the tables in another order, which ends in a deadlock.
		if !IsRetryable(err) && !errors.Is(err, ErrLocked) || time.Since(began) > migrateTimeout ||
			ctxsleep.For(ctx, migrateRetryDelay) != nil {
			break
		}
	}
	if err != nil {
		return r, fmt.Errorf("migrate pipeline %s: %w", s.graph.name, err)
	}
	return r, nil
}

const (
	// migrateTimeout is how long Migrate tries again.
	migrateTimeout = time.Minute
	// migrateRetryDelay lets others work for much longer than a try makes them wait.
	migrateRetryDelay = time.Second
	// migrateLockWait is how long a migration waits for a lock, and others for it. It is longer than the server's
	// deadlock_timeout of a second, after which an autovacuum makes way.
	migrateLockWait = 6 * time.Second / 5
)

// migration upgrades tables of the version before.
type migration struct {
	version int    // of the tables after it
	sql     string // with the names of [Graph.SQL]
}

// migrations are in order. Each has all changes of one version, except those of triggers.sql, which replaces its functions
// and triggers.
var migrations []migration

const setVersionSQL = `
/* set version */
update {pipeline} set version = $1, since = now()`

func (s *Store) migrate(ctx context.Context) (r MigrateResult, err error) {
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		in := s.WithTx(tx)
		settings := migrateSettingsSQL
		if _, ofCaller := s.db.(pgx.Tx); ofCaller {
			settings = settings[1:] // its isolation is the caller's
		}
		for _, sql := range settings {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		r.From, err = in.version(ctx)
		if errors.Is(err, ErrSchemaOlder) {
			if err := in.upgrade(ctx, tx, r.From); err != nil {
				return err
			}
			_, err = in.version(ctx) // of the upgraded tables
		}
		switch {
		case errors.Is(err, ErrNoSchema) && !errors.Is(err, ErrNoSearchPath):
			return execAll(ctx, tx, s.graph.SchemaSQL(), s.graph.TriggersSQL())
		case errors.Is(err, ErrSchemaShape):
			r.Added, err = in.changeStages(ctx, tx)
			return err
		case err != nil:
			return err
		}
		r.Repaired, err = in.repair(ctx, tx)
		return s.explain("repair", err)
	})
	return r, err
}

const brokenSQL = `
/* find missing functions */
select ` + isBroken

// isBroken is the condition that functions or triggers are missing, or of a schema that had another name.
const isBroken = `to_regproc(quote_ident(current_schema()) || '.cuelight_{name}_backlog') is null
    or (select count(*) from pg_trigger where not tgisinternal
           and tgrelid in (to_regclass(quote_ident(current_schema()) || '.{tasks}'),
                           to_regclass(quote_ident(current_schema()) || '.{steps}'))) < 6
    or exists (select from pg_proc
                where pronamespace = quote_ident(current_schema())::regnamespace and proname ~ '^cuelight_{name}_'
                  and array_to_string(proconfig, ' ') ~ 'search_path='
                  and 'search_path=' || quote_ident(current_schema()) || ', pg_temp' <> all (proconfig))`

// repair loads the functions and triggers again if some are missing, or belong to a schema that was renamed since.
func (s *Store) repair(ctx context.Context, tx pgx.Tx) (broken bool, err error) {
	if err := s.queryRow(ctx, brokenSQL).Scan(&broken); err != nil || !broken {
		return false, err
	}
	return true, execAll(ctx, tx, s.graph.SchemaSQL(), s.graph.TriggersSQL())
}

// upgrade applies the migrations after a version of the tables.
func (s *Store) upgrade(ctx context.Context, tx pgx.Tx, from int) error {
	_, err := tx.Exec(ctx, statement.LimitLockWaitSQL, migrateLockWait.Milliseconds())
	for _, m := range migrations {
		if err == nil && m.version > from {
			err = execAll(ctx, tx, s.graph.SQL(m.sql))
		}
	}
	if err == nil {
		_, err = s.exec(ctx, setVersionSQL, SchemaVersion)
	}
	if err == nil {
		err = execAll(ctx, tx, s.graph.TriggersSQL())
	}
	return s.explain("upgrade", err)
}

// execAll runs files of many statements, which needs the simple protocol. Each is a
// transaction for psql; here all are part of tx, and its search_path stays.
func execAll(ctx context.Context, tx pgx.Tx, files ...string) error {
	for _, sql := range files {
		sql = strings.Replace(strings.Replace(sql, "\nbegin;\n", "\n", 1), "\ncommit;\n", "\n", 1)
		sql = "select set_config('cuelight.search_path', current_setting('search_path'), true);" + sql +
			";select set_config('search_path', current_setting('cuelight.search_path'), true)"
		if _, err := tx.Conn().PgConn().Exec(ctx, sql).ReadAll(); err != nil {
			return err
		}
	}
	return nil
}
