package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Only the schema in which Migrate would create the tables is searched, not the
// rest of the search_path.
const schemaSQL = `
/* find schema table */
select to_regclass(format('%I.cuelight_schema', current_schema())) is not null`

const versionSQL = `
/* schema version */
select version, shape from cuelight_schema where pipeline = $1`

// Check compares the tables with what this package needs, and changes
// nothing. It returns [ErrNoSchema], [ErrSchemaOlder], [ErrSchemaNewer],
// [ErrSchemaShape] or [ErrSchemaBroken].
func (s *Store) Check(ctx context.Context) error {
	if _, err := s.version(ctx); err != nil {
		return fmt.Errorf("check tables of pipeline %s: %w", s.graph.name, err)
	}
	return nil
}

// version returns the version of the tables, or why this program cannot use them.
func (s *Store) version(ctx context.Context) (int, error) {
	var there bool
	if err := s.db.QueryRow(ctx, schemaSQL).Scan(&there); err != nil {
		return 0, err
	}
	if !there {
		return 0, ErrNoSchema
	}
	var version int
	var shape string
	err := s.db.QueryRow(ctx, versionSQL, s.graph.name).Scan(&version, &shape)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, ErrNoSchema
	case err != nil:
		return 0, s.explain("read version", err)
	case version > SchemaVersion:
		return version, fmt.Errorf("%w: version %d, this program supports %d", ErrSchemaNewer, version, SchemaVersion)
	case version < SchemaVersion:
		return version, fmt.Errorf("%w: version %d is from before the first release; use a new schema or database",
			ErrSchemaOlder, version)
	case shape != s.graph.String():
		return version, fmt.Errorf("%w: the database has %q, the program %q", ErrSchemaShape, shape, s.graph.String())
	}
	return version, nil
}

const migrateLockSQL = `
/* lock migrations */
select pg_advisory_xact_lock(hashtext('cuelight migrate'))`

// MigrateResult says what [Store.Migrate] found and changed.
type MigrateResult struct {
	From  int      // version of the tables before; 0: there were none
	Added []string // stages added to existing tables
}

// Migrate creates the pipeline's tables, or adds to them the stages that the graph has
// and they have not, in one transaction; any number of processes may call it at once.
// Otherwise it changes nothing. It returns [ErrSchemaOlder], [ErrSchemaNewer] or
// [ErrSchemaShape] where the tables are not those of this program.
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
	for range migrateTries {
		// A worker may lock the tables in another order, which ends in a deadlock.
		if r, err = s.migrate(ctx); !IsRetryable(err) {
			break
		}
	}
	if err != nil {
		return r, fmt.Errorf("migrate pipeline %s: %w", s.graph.name, err)
	}
	return r, nil
}

// migrateTries is how often Migrate tries in all.
const migrateTries = 5

func (s *Store) migrate(ctx context.Context) (r MigrateResult, err error) {
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, migrateLockSQL); err != nil {
			return err
		}
		r.From, err = s.WithTx(tx).version(ctx)
		switch {
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
