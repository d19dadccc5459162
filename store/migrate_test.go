package store_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
)

func TestMigrate_CreatesTheTablesOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := context.Background()
	g, err := store.NewGraph("other", store.Node{Name: "only"})
	if err != nil {
		t.Fatal(err)
	}
	s := newTables(b.pool, g)
	if err := s.Check(ctx); !errors.Is(err, store.ErrNoSchema) {
		t.Errorf("check without tables: %v", err)
	}
	versions := make(chan int, 6)
	for range cap(versions) {
		go func() {
			r, err := s.Migrate(ctx)
			if err != nil {
				t.Error(err)
			}
			versions <- r.From
		}()
	}
	var from []int
	for range cap(versions) {
		from = append(from, <-versions)
	}
	slices.Sort(from)
	current := store.SchemaVersion
	if !slices.Equal(from, []int{0, current, current, current, current, current}) {
		t.Errorf("Migrate returned the versions %v, want 0 once", from)
	}
	if err := s.Check(ctx); err != nil {
		t.Error(err)
	}
}

// A migration waits for another one, and reads large tables.
func TestMigrate_IgnoresTheRolesStatementTimeout(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other, err := b.pool.Begin(t.Context())
	must(t, err)
	defer func() { _ = other.Rollback(t.Context()) }()
	_, err = other.Exec(t.Context(), `select pg_advisory_xact_lock(hashtext('cuelight migrate'))`)
	must(t, err)
	config := b.pool.Config().ConnConfig.Copy()
	config.RuntimeParams["statement_timeout"] = "500"
	conn, err := pgx.ConnectConfig(t.Context(), config)
	must(t, err)
	defer conn.Close(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := store.New(conn, b.Graph()).Migrate(context.Background())
		ended <- err
	}()
	waittest.Until(t, "the migration has waited for longer", func() bool {
		select {
		case err := <-ended:
			t.Fatal(err)
		default:
		}
		return b.queryInt(`select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'advisory'
			and clock_timestamp() > query_start + interval '1 s'`) == 1
	})
	must(t, other.Rollback(t.Context()))
	must(t, <-ended)
}

func TestMigrate_NeedsUTF8(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := pgtest.NewServer(t, pgtest.ServerOptions{})
	_, err := server.Pool("postgres").Exec(ctx, "create database latin encoding 'LATIN1' locale 'C' template template0")
	must(t, err)
	st := store.New(server.Pool("latin"), store.Video())
	_, err = st.Migrate(ctx)
	for _, err := range []error{err, st.Check(ctx)} {
		if !errors.Is(err, store.ErrEncoding) || !strings.Contains(err.Error(), "the encoding of the database is LATIN1, but UTF8 is needed") {
			t.Errorf("the error is %v", err)
		}
	}
}

func TestCheck_FindsSettingsThatDoNotFit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for change, want := range map[string]string{
		"set default_transaction_isolation = serializable":                      "default_transaction_isolation is serializable, but",
		"set client_encoding = 'LATIN1'":                                        "client_encoding is LATIN1, but UTF8",
		"alter table tasks enable row level security, force row level security": "row-level security hides rows of tasks",
	} {
		conn, err := b.pool.Acquire(t.Context())
		must(t, err)
		_, err = conn.Exec(t.Context(), change, pgx.QueryExecModeSimpleProtocol)
		must(t, err)
		err = store.New(conn.Conn(), store.Video()).Check(t.Context())
		if !errors.Is(err, store.ErrSettings) || !strings.Contains(err.Error(), want) {
			t.Errorf("after %s Check returned %v", change, err)
		}
		must(t, conn.Conn().Close(t.Context()))
		conn.Release()
		b.exec("alter table tasks disable row level security")
		b.exec("alter table tasks no force row level security")
	}
	must(t, b.Check(t.Context()))
}

func TestMigrate_NeedsASchema(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema{})
	conn, err := pool.Acquire(t.Context())
	must(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), "set search_path = nowhere")
	must(t, err)
	st := store.New(conn.Conn(), store.Video())
	if err := st.Check(t.Context()); !errors.Is(err, store.ErrNoSearchPath) || !errors.Is(err, store.ErrNoSchema) {
		t.Errorf("Check returned %v", err)
	}
	if _, err := st.Migrate(t.Context()); !errors.Is(err, store.ErrNoSearchPath) {
		t.Errorf("Migrate returned %v", err)
	}
}

func TestMigrate_RejectsTablesOfAnotherVersionOrShape(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	for _, c := range []struct {
		change string
		want   error
	}{
		{"version = 99", store.ErrSchemaNewer},
		{"version = 1, stages = 'first'", store.ErrSchemaShape},
		{"stages = '" + b.Graph().String() + "', name = 'other'", store.ErrSchemaShape},
	} {
		b.exec("update pipeline set " + c.change)
		if err := b.Check(ctx); !errors.Is(err, c.want) {
			t.Errorf("%s: Check returned %v, want %v", c.change, err, c.want)
		}
		if _, err := b.Migrate(ctx); !errors.Is(err, c.want) {
			t.Errorf("%s: Migrate returned %v, want %v", c.change, err, c.want)
		}
	}
	b.exec("update pipeline set name = 'video'")
	must(t, b.Check(ctx))
}

// setupOlder returns tables of the version before that of [store.TestMigration], with rows.
func setupOlder(t *testing.T) (b bundle, ids []store.ID) {
	t.Helper()
	b = setup(t)
	w := b.worker()
	ids = append(ids, b.submit(), b.submit())
	b.completeAll(w, b.claim(w, ingest))
	b.exec("update pipeline set version = $1", store.SchemaVersion-1)
	b.exec("drop function cuelight_video_backlog")
	return b, ids
}

func TestMigrate_UpgradesOlderTablesAndKeepsTheirRows(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b, ids := setupOlder(t)
	const content = `select md5(string_agg(content, ',' order by content)) from (
		select (to_jsonb(t) - 'color' - 'user_context')::text from tasks t union all select to_jsonb(s)::text from steps s
		union all select to_jsonb(a)::text from attempts a union all select to_jsonb(w)::text from workers w
		union all select to_jsonb(o)::text from outbox o) as rows (content)`
	var before, after string
	must(t, b.pool.QueryRow(ctx, content).Scan(&before))
	if err := b.Check(ctx); !errors.Is(err, store.ErrSchemaOlder) {
		t.Errorf("Check returned %v before the upgrade", err)
	}
	if v := b.queryInt("select version from pipeline"); v != store.SchemaVersion-1 {
		t.Errorf("before the upgrade the version is %d", v)
	}
	r, err := b.Migrate(ctx)
	if err != nil || r.From != store.SchemaVersion-1 || len(r.Added) > 0 {
		t.Fatalf("Migrate returned %+v, %v", r, err)
	}
	must(t, b.Check(ctx))
	must(t, b.pool.QueryRow(ctx, content).Scan(&after))
	if before != after {
		t.Error("rows were changed")
	}
	if n := b.queryInt("select count(*) from tasks where color = 'red'"); n != 2 {
		t.Errorf("%d tasks have the new column, want 2", n)
	}
	if n := b.queryInt("select cuelight_video_backlog('ingest')"); n != 1 {
		t.Errorf("the backlog is %d, want 1", n)
	}
	if again, err := b.Migrate(ctx); err != nil || again.From != store.SchemaVersion {
		t.Errorf("a second Migrate returned %+v, %v", again, err)
	}
	w := b.worker()
	b.completeAll(w, b.claim(w, ingest))
	b.wantStatuses(ids[1], done, done, done, done, done)
}

// A migration that fails changes nothing.
func TestMigrate_IsOneTransaction(t *testing.T) {
	t.Parallel()
	b, _ := setupOlder(t)
	b.exec("create view colors as select 1 as one; alter table tasks add column color text") // the migration adds it, too
	if _, err := b.Migrate(t.Context()); err == nil {
		t.Fatal("Migrate returned no error")
	}
	if v := b.queryInt("select version from pipeline"); v != store.SchemaVersion-1 {
		t.Errorf("the version is %d", v)
	}
	if n := b.queryInt("select count(*) from pg_proc where proname = 'cuelight_video_backlog'"); n != 0 {
		t.Error("its functions were loaded")
	}
}

// A worker holds a lock on the table of tasks for as long as its transaction.
func TestMigrate_TriesAgainWhereATableIsLocked(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b, _ := setupOlder(t)
	tx, err := b.pool.Begin(ctx)
	must(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	_, err = tx.Exec(ctx, "select from tasks for update")
	must(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := b.Migrate(ctx)
		ended <- err
	}()
	for range 2 {
		waitForLock(t, b.pool)
		// It goes on although the first transaction does not: the upgrade makes others wait only briefly.
		_, err := b.pool.Exec(ctx, "insert into tasks (source) values ('a.mp4')")
		must(t, err)
	}
	must(t, tx.Rollback(ctx))
	must(t, <-ended)
	must(t, b.Check(ctx))
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

// A schema of which somebody dropped a trigger is repaired.
func TestMigrate_LoadsMissingTriggersAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, damage := range map[string]string{
		"a trigger":  "drop trigger tasks_on_insert on tasks",
		"a function": "drop function cuelight_video_backlog",
	} {
		b.exec(damage)
		if err := b.Check(t.Context()); !errors.Is(err, store.ErrTriggersMissing) {
			t.Errorf("after the loss of %s Check returned %v", name, err)
		}
		r, err := b.Migrate(t.Context())
		must(t, err)
		if !r.Repaired {
			t.Errorf("after the loss of %s nothing was repaired", name)
		}
		id := b.submit()
		if n := b.queryInt("select cuelight_video_backlog('ingest')"); n == 0 {
			t.Errorf("after the loss of %s no step was opened for task %s", name, id)
		}
		b.exec("delete from tasks")
	}
}

// The functions know the name that their schema had.
func TestMigrate_RepairsARenamedSchema(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]string{
		"another name": "after", "the beginning of its name": "be", "a name that needs quotes": `"Media farm"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t, pgtest.SQL("create schema before"))
			in := func(schema string) bundle {
				c := pool.Config()
				c.ConnConfig.RuntimeParams["search_path"] = schema
				inSchema, err := pgxpool.NewWithConfig(t.Context(), c)
				must(t, err)
				t.Cleanup(inSchema.Close)
				return newBundle(t, inSchema, store.Video())
			}
			_, err := in("before").Migrate(t.Context())
			must(t, err)
			_, err = pool.Exec(t.Context(), "alter schema before rename to "+after)
			must(t, err)
			b := in(after)
			if err := b.Check(t.Context()); !errors.Is(err, store.ErrTriggersMissing) {
				t.Errorf("Check returned %v", err)
			}
			_, err = b.Migrate(t.Context())
			must(t, err)
			must(t, b.Check(t.Context()))
			id := b.submit()
			b.wantSteps("after the repair", id, "ingest ready")
		})
	}
}

// The files set the search_path that their functions get.
func TestMigrate_LeavesTheSearchPathOfATransaction(t *testing.T) {
	t.Parallel()
	tx, err := pgtest.New(t, pgtest.SQL()).Begin(t.Context())
	must(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck
	_, err = tx.Exec(t.Context(), "set local search_path = public, pg_catalog")
	must(t, err)
	_, err = store.New(tx, store.Video()).Migrate(t.Context())
	must(t, err)
	var path string
	must(t, tx.QueryRow(t.Context(), "show search_path").Scan(&path))
	if path != "public, pg_catalog" {
		t.Errorf("the search_path is %s", path)
	}
}
