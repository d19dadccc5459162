package store_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// setupOwnServer returns a bundle on its own server, with a superuser.
func setupOwnServer(t *testing.T, settings ...string) bundle {
	t.Helper()
	g := store.Video()
	server := pgtest.NewServer(t, pgtest.ServerOptions{Settings: settings})
	pool := server.New(pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
	return newBundle(t, pool, g)
}

// withRole returns the bundle with a new role that has the grants.
func (b bundle) withRole(role string, grants ...string) bundle {
	b.t.Helper()
	b.exec(`create role ` + role + ` login`)
	for _, g := range grants {
		b.exec(`grant ` + g + ` to ` + role)
	}
	config := b.pool.Config()
	config.ConnConfig.User = role
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	must(b.t, err)
	b.t.Cleanup(pool.Close)
	return newBundle(b.t, pool, b.Graph())
}

// wantPermissionDenied runs SQL that the role may not run.
func (b bundle) wantPermissionDenied(sql string, args ...any) {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), sql, args...)
	if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "42501" {
		b.t.Errorf("%s: %v", sql, err)
	}
}

func TestRoles_NeedOnlyTheDocumentedGrants(t *testing.T) {
	t.Parallel()
	b := setupOwnServer(t)
	submitter := b.withRole("submitter", `select, insert on tasks`)
	editor := b.withRole("editor", `select, insert, update, delete on tasks, steps`, `select on positions`)
	reader := b.withRole("reader",
		`select on outbox, attempts, events, tasks, deleted_tasks, pipeline, event_epoch, outbox_id`)
	w := b.worker()
	submitter.submit()
	c := b.claim(w, ingest)
	must(t, editor.Cancel(t.Context(), c.Task))
	must(t, editor.Retry(t.Context(), c.Task, ""))
	editor.exec(`delete from tasks where id = $1`, c.Task)
	events, err := reader.Events(t.Context(), store.EventQuery{})
	must(t, err)
	wantEvents(t, events, "submitted", "started ingest", "cancelled", "retry_scheduled ingest", "deleted")
	_, err = reader.Events(t.Context(), store.EventQuery{Task: c.Task})
	must(t, err)
	for _, role := range []bundle{submitter, editor, reader} {
		role.wantPermissionDenied(`select setval('outbox_id', 1)`)
		role.wantPermissionDenied(`select nextval('outbox_id')`)
		role.wantPermissionDenied(`insert into outbox (type) values ('completed')`)
		role.wantPermissionDenied(`select cuelight_video_event_id('outbox_id')`)
	}
	submitter.wantPermissionDenied(`update steps set attempts = 0`)
	reader.wantPermissionDenied(`delete from steps`)
	// The triggers write into the pipeline's own tables.
	conn, err := submitter.pool.Acquire(t.Context())
	must(t, err)
	defer conn.Release()
	for _, sql := range []string{
		`create temporary table outbox (type text, tasks uuid[])`, `insert into public.tasks (source) values ('b.mp4')`,
	} {
		_, err = conn.Exec(t.Context(), sql)
		must(t, err)
	}
	if n := b.queryInt(`select count(*) from outbox where type = 'submitted'`); n != 2 {
		t.Errorf("%d submissions are recorded, want 2", n)
	}
}

// A transaction that is prepared for a two-phase commit is still open.
func TestEvents_WaitForPreparedTransactions(t *testing.T) {
	t.Parallel()
	b := setupOwnServer(t, "max_prepared_transactions=2")
	ctx := t.Context()
	b.submit()
	err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `insert into outbox (type) values ('alert')`)
		must(t, err)
		_, err = tx.Exec(ctx, `prepare transaction 'one'`)
		return err
	})
	must(t, err)
	b.submit()
	if n := len(eventTexts(b.events(0))); n != 1 {
		t.Errorf("%d events are visible during a prepared transaction, want 1", n)
	}
	b.exec(`commit prepared 'one'`)
	if n := len(eventTexts(b.events(0))); n != 3 {
		t.Errorf("%d events are visible after its commit, want 3", n)
	}
}

// A server may refuse pg_control_system, as managed servers do.
func TestEvents_WorkWithoutPgControlSystem(t *testing.T) {
	t.Parallel()
	g := store.Video()
	server := pgtest.NewServer(t, pgtest.ServerOptions{})
	pool := server.New(pgtest.SQL(`revoke execute on function pg_control_system() from public`))
	admin := newBundle(t, pool, g)
	b := admin.withRole("managed", `create on schema public`)
	b.wantPermissionDenied(`select * from pg_control_system()`)
	_, err := b.Migrate(t.Context())
	must(t, err)
	b.submit()
	b.pool.Reset()
	b.submit()
	events := b.events(0)
	if wantEvents(t, events, "submitted", "submitted"); events[1].ID != events[0].ID+1<<16 {
		t.Errorf("without a crash, event %d follows %d", events[1].ID, events[0].ID)
	}
	// After a restart the ids have a gap, as after a crash. Readers continue.
	server.Stop(pgtest.Fast)
	server.Start()
	b.pool.Reset()
	if more := b.events(events[1].ID); len(more) != 0 {
		t.Errorf("events are %+v", more)
	}
	b.submit()
	more := b.events(events[1].ID)
	if wantEvents(t, more, "submitted"); more[0].ID < events[1].ID+1<<16*1_000_000 {
		t.Errorf("after a restart, event %d follows %d", more[0].ID, events[1].ID)
	}
}

// On a strict managed service the engine may not end the transaction of a frozen process,
// and reports it. Nothing else fails.
func TestRoles_OwnerOfASchemaNeedsNoOtherRights(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, pgtest.ServerOptions{})
	b := newBundle(t, server.NewManaged(), store.Video())
	for _, sql := range []string{
		`select * from pg_control_system()`, `select pg_postmaster_start_time()`, `select pg_terminate_backend(0)`,
		`create table public.mine ()`, `create temporary table mine ()`, `create schema mine`,
	} {
		b.wantPermissionDenied(sql)
	}
	_, err := b.Migrate(t.Context())
	must(t, err)
	process, freeze := b.interruptible()
	frozen := process.workerWithShortLease()
	_, err = process.heartbeat(frozen)
	must(t, err)
	freeze()
	process.sendPartially(func(ctx context.Context) error {
		_, err := process.Heartbeat(ctx, engine.HeartbeatRequest{Worker: frozen})
		return err
	})
	b.sweepUntil("the transaction is reported",
		func(out engine.SweepResult) bool { return slices.Equal(out.OpenTransactions, []store.ID{frozen}) })

	b.submit()
	b.claim(b.worker(), ingest)
	seen := b.events(0)
	wantEvents(t, seen, "submitted", "started ingest")
	// The ids of events have no gap after a restart, and one after a crash.
	for gap, restart := range map[int64]func(){
		0:         func() { server.Restart(pgtest.Fast) },
		1<<20 + 1: func() { b.exec(`truncate event_epoch`) }, // as recovery does with unlogged tables
	} {
		restart()
		b.pool.Reset()
		last := seen[len(seen)-1].ID
		b.submit()
		seen = b.events(last)
		if wantEvents(t, seen, "submitted"); seen[0].ID>>16 != last>>16+1+gap {
			t.Errorf("with a gap of %d, event %d follows %d", gap, seen[0].ID, last)
		}
	}
}
