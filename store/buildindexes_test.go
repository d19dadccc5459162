package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
)

// wantIndexesBuiltBefore checks that all indexes are valid, and that those of version 15 were not created by the
// transaction that locks the tables, which also writes the version.
func wantIndexesBuiltBefore(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	wantCatalogOf(t, pool, store.Video())
	var created, locked, invalid int
	must(t, pool.QueryRow(t.Context(), `
		select count(*), count(*) filter (where c.xmin = s.xmin), count(*) filter (where not i.indisvalid)
		  from pg_class c, pg_index i, cuelight_schema s
		 where c.oid = i.indexrelid and c.relname like 'tasks\_%\_users'`).Scan(&created, &locked, &invalid))
	if created == 0 || locked > 0 || invalid > 0 {
		t.Errorf("of %d indexes %d were built while the tables were locked, and %d are invalid", created, locked, invalid)
	}
}

// startMigrate upgrades the tables in another goroutine.
func startMigrate(ctx context.Context, db store.DB) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := store.New(db, store.Video()).Migrate(ctx)
		ended <- err
	}()
	return ended
}

// holdUpBuilds begins a transaction for which each build of an index of the tasks waits.
func holdUpBuilds(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), "update tasks set priority = 1")
	must(t, err)
	return tx
}

// waitForBuild waits until a statement has been building an index for some time, and returns its session.
func waitForBuild(t *testing.T, pool *pgxpool.Pool, time string) (pid int) {
	t.Helper()
	waittest.Until(t, "an index is being built", func() bool {
		err := pool.QueryRow(t.Context(), `
			select pid from pg_stat_activity
			 where datname = current_database() and state = 'active' and query like 'create index concurrently%'
			   and clock_timestamp() > query_start + $1::text::interval`, time).Scan(&pid)
		if !errors.Is(err, pgx.ErrNoRows) {
			must(t, err)
		}
		return err == nil
	})
	return pid
}

// Building an index of a large table takes minutes.
func TestMigrate_BuildsIndexesWhileOthersWrite(t *testing.T) {
	t.Parallel()
	for version, schema := range olderSchemas(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t, schema)
			tx := holdUpBuilds(t, pool)
			ended := startMigrate(t.Context(), pool)
			waitForBuild(t, pool, "0")
			_, err := pool.Exec(t.Context(), "insert into tasks (source) values ('a.mp4')")
			must(t, err)
			must(t, tx.Rollback(t.Context()))
			must(t, <-ended)
			wantIndexesBuiltBefore(t, pool)
		})
	}
}

// A process that was killed while it built an index leaves one that no query uses.
func TestMigrate_ReplacesIndexesWhoseBuildingWasInterrupted(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool := pgtest.New(t, olderSchemas(t)["014"])
	for _, name := range []string{"tasks_ingest_users", "mine"} { // there are duplicates
		if _, err := pool.Exec(ctx, "create unique index concurrently "+name+" on tasks (priority)"); err == nil {
			t.Fatal("the index was built")
		}
	}
	_, err := store.New(pool, store.Video()).Migrate(ctx)
	must(t, err)
	var mine bool
	must(t, pool.QueryRow(ctx, "select to_regclass('mine') is not null").Scan(&mine))
	if !mine {
		t.Error("it has dropped an index of others")
	}
	_, err = pool.Exec(ctx, "drop index if exists mine")
	must(t, err)
	wantIndexesBuiltBefore(t, pool)
}

// The timeouts of a role are for its other statements. They apply again afterwards.
func TestMigrate_BuildsIndexesForLongerThanTheRolesTimeouts(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	direct := pgtest.New(t, olderSchemas(t)["014"])
	config := direct.Config()
	config.MaxConns = 1
	config.ConnConfig.RuntimeParams["statement_timeout"] = "500"
	config.ConnConfig.RuntimeParams["lock_timeout"] = "400"
	pool, err := pgxpool.NewWithConfig(ctx, config)
	must(t, err)
	defer pool.Close()
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	must(t, err)
	defer conn.Close(context.Background())
	tx := holdUpBuilds(t, direct)
	ended := []<-chan error{startMigrate(ctx, pool), startMigrate(ctx, conn)}
	waitForBuild(t, direct, "1 s")
	must(t, tx.Rollback(ctx))
	for _, e := range ended {
		must(t, <-e)
	}
	wantIndexesBuiltBefore(t, direct)
	for _, db := range []store.DB{pool, conn} {
		var statement, lock string
		var locks int
		must(t, db.QueryRow(ctx, `select current_setting('statement_timeout'), current_setting('lock_timeout'),
			(select count(*) from pg_locks where locktype = 'advisory' and database = (
				select oid from pg_database where datname = current_database()))`).Scan(&statement, &lock, &locks))
		if statement != "500ms" || lock != "400ms" || locks > 0 {
			t.Errorf("%T: statement_timeout is %s, lock_timeout %s, and %d locks are held", db, statement, lock, locks)
		}
	}
}

// A second build would wait with a snapshot for the first one, which waits for all snapshots.
func TestMigrate_WaitsForAnotherProcessThatBuildsIndexes(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, olderSchemas(t)["014"])
	tx := holdUpBuilds(t, pool)
	first := startMigrate(t.Context(), pool)
	waitForBuild(t, pool, "0")
	second := startMigrate(t.Context(), pool)
	waittest.Until(t, "the second process waits", func() (waits bool) {
		must(t, pool.QueryRow(t.Context(), `
			select exists (select from pg_stat_activity where datname = current_database() and state = 'idle'
				and query like '%lock index builds%' and query not like '%pg_stat_activity%')`).Scan(&waits))
		return waits
	})
	must(t, tx.Rollback(t.Context()))
	must(t, <-first)
	must(t, <-second)
	wantIndexesBuiltBefore(t, pool)
}

func TestMigrate_DoesNotLockTheTablesIfABuildFails(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool := pgtest.New(t, olderSchemas(t)["014"])
	st := store.New(pool, store.Video())
	tx := holdUpBuilds(t, pool)
	ended := startMigrate(ctx, pool)
	_, err := pool.Exec(ctx, "select pg_cancel_backend($1)", waitForBuild(t, pool, "0"))
	must(t, err)
	if err := <-ended; err == nil {
		t.Error("Migrate returned no error")
	}
	if version, err := st.Version(ctx); version != 14 {
		t.Errorf("the tables have version %d, %v", version, err)
	}
	must(t, tx.Rollback(ctx))
	_, err = st.Migrate(ctx)
	must(t, err)
	wantIndexesBuiltBefore(t, pool)
}

// A pooler gives the session to others afterwards.
func TestMigrate_ChangesNoSessionOfAPooler(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	direct := pgtest.New(t, olderSchemas(t)["014"])
	_, through := pgtest.NewBouncer(t, direct, "transaction")
	config := through.Config()
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	pool, err := pgxpool.NewWithConfig(ctx, config)
	must(t, err)
	defer pool.Close()
	_, err = pool.Exec(ctx, "set statement_timeout = '1min'") // of the only session
	must(t, err)
	_, err = store.New(pool, store.Video()).Migrate(ctx)
	must(t, err)
	wantIndexesBuiltBefore(t, direct)
	var timeout string
	must(t, pool.QueryRow(ctx, "show statement_timeout").Scan(&timeout))
	if timeout != "1min" {
		t.Errorf("statement_timeout is %s", timeout)
	}
}

// The connection may be in a transaction of the caller, where indexes cannot be built in another way.
func TestMigrate_BuildsIndexesInATransactionOfTheCaller(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool := pgtest.New(t, olderSchemas(t)["014"])
	conn, err := pool.Acquire(ctx)
	must(t, err)
	defer conn.Release()
	for _, db := range []func(pgx.Tx) store.DB{
		func(pgx.Tx) store.DB { return conn.Conn() },
		func(tx pgx.Tx) store.DB { return tx },
	} {
		tx, err := conn.Begin(ctx)
		must(t, err)
		st := store.New(db(tx), store.Video())
		_, err = st.Migrate(ctx)
		must(t, err)
		must(t, st.Check(ctx))
		_ = tx.Rollback(ctx)
	}
}
