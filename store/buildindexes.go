package store

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/ctxsleep"
)

// An index is created by a migration.
type index struct{ name, table, sql string }

// indexPattern is a statement of a migration that creates an index.
var indexPattern = regexp.MustCompile(`(?ms)^create index if not exists (\S+) on (\S+) .*?;$`)

// newIndexes returns the indexes that upgrade tables of an earlier version.
func (g Graph) newIndexes(from int) (all []index) {
	for _, sql := range g.migrationSQL(from) {
		for _, m := range indexPattern.FindAllStringSubmatch(sql, -1) {
			all = append(all, index{name: m[1], table: m[2], sql: m[0]})
		}
	}
	return all
}

// buildIndexes builds the indexes of the migrations before they are applied, without locking out others: on a large table
// that takes minutes. It does nothing in a transaction of the caller, where the migrations build them.
func (s *Store) buildIndexes(ctx context.Context) error {
	from, err := s.version(ctx)
	if !errors.Is(err, ErrSchemaOlder) {
		return nil // Migrate finds the error again
	}
	conn, release, err := idleConn(ctx, s.db)
	if conn == nil {
		return err
	}
	defer release()
	restore, advice, err := prepareSession(ctx, conn)
	if err != nil {
		return s.explain("prepare to build indexes", err)
	}
	defer restore()
	for _, ix := range s.graph.newIndexes(from) {
		if err := ix.build(ctx, conn); err != nil {
			return s.explain("build index "+ix.name+" without locking others out"+advice, err)
		}
	}
	return nil
}

// idleConn returns a connection of the database that is in no transaction, with a function to call afterwards; nil if there
// is none.
func idleConn(ctx context.Context, db DB) (conn *pgx.Conn, release func(), err error) {
	if pool, ok := db.(interface {
		Acquire(ctx context.Context) (*pgxpool.Conn, error)
	}); ok {
		c, err := pool.Acquire(ctx)
		if err != nil {
			return nil, nil, err
		}
		return c.Conn(), c.Release, nil
	}
	if c, ok := db.(*pgx.Conn); ok && c.PgConn().TxStatus() == 'I' {
		conn = c
	}
	return conn, func() {}, nil
}

// lockBuildsSQL does not wait for the lock, because a build waits for the snapshots of all others, also for that of a
// statement which waits. It is not the lock of migrations, for which others wait.
const lockBuildsSQL = `
/* lock index builds */
select pg_try_advisory_lock(hashtext('cuelight build indexes'))`

// liftTimeoutsSQL lifts the role's limits, which are for other statements, and returns them. The view lists its settings
// before the first is changed.
const liftTimeoutsSQL = `
/* lift timeouts */
select jsonb_object_agg(name, setting)::text, count(set_config(name, '0', false))
  from pg_settings
 where name in ('statement_timeout', 'lock_timeout', 'transaction_timeout')`

const restoreSessionSQL = `
/* restore session */
select count(set_config(key, value, false)), pg_advisory_unlock(hashtext('cuelight build indexes'))
  from jsonb_each_text($1::text::jsonb)`

// restoreTimeout is how long the end of a build may take.
const restoreTimeout = 5 * time.Second

// prepareSession waits until no other process builds indexes, and lifts the timeouts until restore is called. The session behind a
// pooler belongs to others, too, so it is left as it is: an error then needs the advice.
func prepareSession(ctx context.Context, conn *pgx.Conn) (restore func(), advice string, err error) {
	var pid uint32 // a pooler makes up its own
	if err := conn.QueryRow(ctx, "select pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid); err != nil {
		return nil, "", err
	}
	if pid != conn.PgConn().PID() {
		return func() {}, " (the pooler may be the cause; connect to the server itself)", nil
	}
	for locked := false; ; {
		if err := conn.QueryRow(ctx, lockBuildsSQL).Scan(&locked); err != nil {
			return nil, "", err
		}
		if locked {
			break
		}
		if err := ctxsleep.For(ctx, migrateRetryDelay); err != nil {
			return nil, "", err
		}
	}
	var timeouts string
	restore = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTimeout)
		defer cancel()
		if _, err := conn.Exec(ctx, restoreSessionSQL, timeouts); err != nil {
			_ = conn.Close(ctx) // a pool does not use it again
		}
	}
	if err := conn.QueryRow(ctx, liftTimeoutsSQL).Scan(&timeouts, nil); err != nil {
		restore()
		return nil, "", err
	}
	return restore, "", nil
}

// build builds the index. A table that is missing is created by a migration, with its indexes.
func (ix index) build(ctx context.Context, conn *pgx.Conn) error {
	hasTable, err := ix.dropInvalid(ctx, conn, "concurrently")
	if err == nil && hasTable {
		_, err = conn.Exec(ctx, strings.Replace(ix.sql, "create index", "create index concurrently", 1))
	}
	return err
}

// Tables, and their indexes, are in the schema in which Migrate would create them.
const indexStateSQL = `
/* index state */
select to_regclass(quote_ident(current_schema()) || '.' || $1) is not null,
       exists (select from pg_index
                where indexrelid = to_regclass(quote_ident(current_schema()) || '.' || $2) and not indisvalid)`

// dropInvalid drops the index if its building was interrupted: `create index if not exists` would keep it, and no query
// uses it. It reports whether the index's table exists.
func (ix index) dropInvalid(ctx context.Context, db DB, concurrently string) (hasTable bool, err error) {
	var invalid bool
	if err := db.QueryRow(ctx, indexStateSQL, ix.table, ix.name).Scan(&hasTable, &invalid); err != nil || !invalid {
		return hasTable, err
	}
	_, err = db.Exec(ctx, fmt.Sprintf("drop index %s %s", concurrently, ix.name))
	return true, err
}
