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
	version, err := s.version(ctx)
	if err == nil && version < SchemaVersion {
		err = fmt.Errorf("%w: version %d, this program needs %d", ErrSchemaOlder, version, SchemaVersion)
	}
	if err != nil {
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
	case shape != s.graph.String():
		return version, fmt.Errorf("%w: the database has %q, the program %q", ErrSchemaShape, shape, s.graph.String())
	}
	return version, nil
}

const migrateLockSQL = `
/* lock migrations */
select pg_advisory_xact_lock(hashtext('cuelight migrate'))`

// Migrate creates the pipeline's tables, in one transaction; any number of
// processes may call it at once. It changes nothing where they exist, and returns
// [ErrSchemaOlder], [ErrSchemaNewer] or [ErrSchemaShape] where they are not those
// of this program.
//
// It reports the version it found, 0 for no tables.
func (s *Store) Migrate(ctx context.Context) (from int, err error) {
	for range migrateTries {
		// A worker may lock the tables in another order, which ends in a deadlock.
		if from, err = s.migrate(ctx); !IsRetryable(err) {
			break
		}
	}
	if err != nil {
		return from, fmt.Errorf("migrate pipeline %s: %w", s.graph.name, err)
	}
	return from, nil
}

// migrateTries is how often Migrate tries in all.
const migrateTries = 5

func (s *Store) migrate(ctx context.Context) (from int, err error) {
	err = pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, migrateLockSQL); err != nil {
			return err
		}
		from, err = s.WithTx(tx).version(ctx)
		if err != nil && !errors.Is(err, ErrNoSchema) {
			return err
		}
		switch {
		case from == SchemaVersion:
			return nil
		case from > 0:
			return fmt.Errorf("%w: version %d is older than the first release; use a new schema or database",
				ErrSchemaOlder, from)
		}
		return execAll(ctx, tx, s.graph.SchemaSQL(), s.graph.TriggersSQL())
	})
	return from, err
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
