package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func TestMigrate_RejectsTablesFromBeforeTheFirstRelease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec("update cuelight_schema set version = 5, migrated_to = 5")
	r, err := b.Migrate(t.Context())
	if r.From != 5 || !errors.Is(err, store.ErrSchemaUnknown) {
		t.Errorf("Migrate returned %+v, %v", r, err)
	}
	if err := b.Check(t.Context()); !errors.Is(err, store.ErrSchemaUnknown) {
		t.Errorf("check returned %v", err)
	}
}

// olderSchemas returns the schemas in testdata by their version: each with rows.
func olderSchemas(t *testing.T) map[string]pgtest.Schema {
	t.Helper()
	files, err := filepath.Glob("testdata/schemas/???.sql")
	must(t, err)
	schemas := make(map[string]pgtest.Schema)
	for _, file := range files {
		tables, err := os.ReadFile(file)
		must(t, err)
		rows, err := os.ReadFile(strings.TrimSuffix(file, ".sql") + "_data.sql")
		must(t, err)
		schemas[strings.TrimSuffix(filepath.Base(file), ".sql")] = pgtest.SQL(string(tables), string(rows))
	}
	return schemas
}

// contentSQL describes the rows of the tables that a pipeline of version 13 has.
const contentSQL = `
select md5(string_agg(content, ',' order by content)) from (
  select (to_jsonb(t) - 'user_context')::text from tasks t union all select to_jsonb(p)::text from parts p
  union all select to_jsonb(a)::text from attempts a union all select to_jsonb(w)::text from workers w
  union all select to_jsonb(o)::text from outbox o union all select to_jsonb(p)::text from cuelight_pauses p
  union all select (to_jsonb(k) - 'labels')::text from cuelight_keys k union all select to_jsonb(a)::text from cuelight_audit a
  union all select (to_jsonb(w) - 'format')::text from cuelight_webhooks w) as rows (content)`

func TestMigrate_UpgradesEveryOlderSchemaAndKeepsItsRows(t *testing.T) {
	t.Parallel()
	for version, schema := range olderSchemas(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			pool := pgtest.New(t, schema)
			var before, after string
			must(t, pool.QueryRow(ctx, contentSQL).Scan(&before))
			st := store.New(pool, store.Video())
			if err := st.Check(ctx); !errors.Is(err, store.ErrSchemaOlder) {
				t.Errorf("Check returned %v before the upgrade", err)
			}
			r, err := st.Migrate(ctx)
			must(t, err)
			if fmt.Sprintf("%03d", r.From) != version {
				t.Errorf("Migrate returned %+v for version %s", r, version)
			}
			must(t, st.Check(ctx))
			wantCatalogOf(t, pool, store.Video())
			must(t, pool.QueryRow(ctx, contentSQL).Scan(&after))
			if before != after {
				t.Error("rows were changed")
			}
		})
	}
}

// statementsOf returns the statements in testdata that programs of a version send.
func statementsOf(t *testing.T, version string) []string {
	t.Helper()
	file, err := os.ReadFile("testdata/statements/" + version + ".sql")
	must(t, err)
	_, all, _ := strings.Cut(string(file), "\n\n") // the first lines are a comment
	return strings.Split(strings.TrimSuffix(all, ";\n"), ";\n\n")
}

// statementOf returns the first of them with a name.
func statementOf(t *testing.T, version, name string) string {
	t.Helper()
	for _, sql := range statementsOf(t, version) {
		if strings.HasPrefix(sql, "/* "+name+" */") {
			return sql
		}
	}
	t.Fatalf("version %s has no statement %q", version, name)
	return ""
}

func TestMigrate_LeavesStatementsOfTheVersionBeforeValid(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	version := fmt.Sprintf("%03d", store.SchemaVersion-1)
	conn, err := pgtest.New(t, olderSchemas(t)[version]).Acquire(ctx)
	must(t, err)
	defer conn.Release()
	_, err = store.New(conn.Conn(), store.Video()).Migrate(ctx)
	must(t, err)
	for _, sql := range statementsOf(t, version) {
		if _, err := conn.Conn().Prepare(ctx, "", sql); err != nil {
			t.Errorf("%v in the statement\n%s", err, sql)
		}
	}
}

// programs of version 13 read these two columns.
func TestMigrate_LetsProgramsOfTheVersionBeforeWorkOn(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool := pgtest.New(t, olderSchemas(t)["013"])
	st := store.New(pool, store.Video())
	_, err := st.Migrate(ctx)
	must(t, err)
	var version int
	must(t, pool.QueryRow(ctx, "select version from cuelight_schema where pipeline = 'video'").Scan(&version))
	if version != 13 {
		t.Errorf("the tables are for programs from version %d on, want 13", version)
	}
}

func TestMigrate_CreatesAPipelineNextToOneOfTheVersionBefore(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, olderSchemas(t)["013"])
	st := store.New(pool, mustGraph(t, "audio", store.Node{Name: "only"}))
	_, err := st.Migrate(t.Context())
	must(t, err)
	must(t, st.Check(t.Context()))
	if err := store.New(pool, store.Video()).Check(t.Context()); !errors.Is(err, store.ErrSchemaOlder) {
		t.Errorf("the other pipeline: %v", err)
	}
}

// A worker holds a lock on the table of tasks for as long as its transaction.
func TestMigrate_TriesAgainWhereATableIsLocked(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool := pgtest.New(t, olderSchemas(t)["013"])
	tx, err := pool.Begin(ctx)
	must(t, err)
	defer tx.Rollback(context.WithoutCancel(ctx))
	_, err = tx.Exec(ctx, "select from tasks")
	must(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := store.New(pool, store.Video()).Migrate(ctx)
		ended <- err
	}()
	waitForLock(t, pool)
	must(t, tx.Rollback(ctx))
	must(t, <-ended)
	must(t, engine.New(pool, store.Video()).NotifyEvents(ctx))
}

// An upgrade that waits for a lock makes all wait who come after it.
func TestMigrate_DelaysOthersOnlyBrieflyWhileATableIsLocked(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool := pgtest.New(t, olderSchemas(t)["014"])
	st := store.New(pool, store.Video())
	tx, err := pool.Begin(ctx)
	must(t, err)
	defer tx.Rollback(context.WithoutCancel(ctx))
	_, err = tx.Exec(ctx, "select from tasks for update")
	must(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := st.Migrate(ctx)
		ended <- err
	}()
	for range 2 {
		waitForLock(t, pool)
		// It goes on although the first transaction does not; lockWait says after how long.
		_, err := pool.Exec(ctx, "insert into tasks (source) values ('a.mp4')")
		must(t, err)
	}
	must(t, tx.Rollback(ctx))
	must(t, <-ended)
	must(t, st.Check(ctx))
}

// waitForLock waits until a session waits for a lock on the table of tasks.
func waitForLock(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	waittest.Until(t, "a session waits for a lock", func() (waits bool) {
		must(t, pool.QueryRow(t.Context(), `
			select exists (select from pg_locks where relation = 'tasks'::regclass and not granted)`).Scan(&waits))
		return waits
	})
}

// deadlockingPool is a database whose first transactions end in a deadlock.
type deadlockingPool struct {
	*pgxpool.Pool
	deadlocks int
}

func (d *deadlockingPool) Begin(ctx context.Context) (pgx.Tx, error) {
	if d.deadlocks--; d.deadlocks >= 0 {
		return nil, &pgconn.PgError{Code: "40P01"}
	}
	return d.Pool.Begin(ctx)
}

func TestMigrate_IsRetriedAfterADeadlock(t *testing.T) {
	t.Parallel()
	st := store.New(&deadlockingPool{pgtest.New(t, pgtest.Schema{}), 2}, store.Video())
	if r, err := st.Migrate(t.Context()); err != nil || r.From != 0 {
		t.Errorf("Migrate returned %+v, %v", r, err)
	}
	must(t, st.Check(t.Context()))
}
