package store_test

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/store"
)

// older makes version 1 of what is there: what later versions added is gone,
// and what they removed is there again.
const older = `
alter table workers drop column lease, drop column session, drop column place, drop column registered_in;
drop index tasks_request;
alter table tasks drop column submitted_by;
create unique index tasks_request on tasks (request_id) where request_id is not null;
create or replace function cuelight_id() returns uuid language sql as 'select gen_random_uuid()';
create or replace function cuelight_wake() returns trigger language plpgsql as 'begin return null; end';
create or replace function cuelight_video_recall() returns trigger language plpgsql as 'begin return null; end';
create function cuelight_video_tell(old tasks, new tasks, made_by text) returns void language sql as '';
drop trigger tasks_submitted on tasks;
drop trigger tasks_changed on tasks;
drop trigger tasks_forget_all on tasks;
drop function cuelight_video_submitted, cuelight_video_changed, cuelight_video_events, cuelight_video_forget_all;
drop trigger tasks_forget on tasks;
create trigger tasks_forget after delete on tasks for each row execute function cuelight_video_forget();
drop view events;
drop table outbox, cuelight_uncrashed, cuelight_pauses, cuelight_keys, cuelight_audit, cuelight_leases,
           cuelight_quiet, cuelight_deliveries, cuelight_webhooks, cuelight_secret;
drop sequence outbox_id;
drop function cuelight_place, cuelight_first_place, cuelight_complete, cuelight_wanted, cuelight_cluster, cuelight_order_key,
              cuelight_order_secret, cuelight_open_places, cuelight_heartbeat, cuelight_database_id;
drop index attempts_finished, tasks_dead, tasks_by_status, tasks_user;
create index tasks_dead on tasks (id) where ingest_status = 'dead';
alter table cuelight_schema drop column forgotten;
alter table workers drop column drain_at;
alter table tasks drop column traceparent, drop column ready_at, drop column scheduled_at,
  drop constraint tasks_overridden_by_fkey,
  add constraint tasks_overridden_by_fkey foreign key (overridden_by) references tasks (id) deferrable;
create trigger tasks_ingest_wake_insert after insert on tasks for each row execute function cuelight_wake();
create trigger tasks_publish_wake after update on tasks for each row execute function cuelight_wake();
create trigger tasks_recall after update on tasks for each row execute function cuelight_video_recall();
alter table tasks
  drop constraint tasks_overridden_rests,
  add constraint tasks_overridden_rests check (overridden_by is null);
update cuelight_schema set version = 1`

// made is all that matters of the tables and what belongs to them.
const made = `
select format('%s.%s %s %s %s', attrelid::regclass, attname, atttypid::regtype, attnotnull, pg_get_expr(adbin, adrelid))
  from pg_attribute left join pg_attrdef on adrelid = attrelid and adnum = attnum
 where attnum > 0 and not attisdropped and attrelid in (select oid from pg_class where relnamespace = current_schema()::regnamespace)
union all select format('%s %s', conname, pg_get_constraintdef(oid)) from pg_constraint where connamespace = current_schema()::regnamespace
union all select pg_get_triggerdef(oid) from pg_trigger where not tgisinternal
union all select pg_get_functiondef(oid) from pg_proc where pronamespace = current_schema()::regnamespace
union all select pg_get_viewdef(oid) from pg_class where relkind = 'v' and relnamespace = current_schema()::regnamespace
union all select pg_get_indexdef(indexrelid) from pg_index join pg_class on oid = indrelid where relnamespace = current_schema()::regnamespace
union all select format('version %s', version) from cuelight_schema
 order by 1`

func TestOlderTablesBecomeWhatNewOnesAre(t *testing.T) {
	t.Parallel()
	b := setup(t)
	all := func() []string {
		rows, err := b.pool.Query(t.Context(), made)
		if err != nil {
			t.Fatal(err)
		}
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return lines
	}
	want := all()
	id := b.submit()
	b.pool.Reset()
	if _, err := b.pool.Exec(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	if from, err := b.Migrate(t.Context()); err != nil || from != 1 {
		t.Fatalf("migrated from version %d: %v", from, err)
	}
	got := all()
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("missing: %s", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("left over: %s", line)
		}
	}
	b.pool.Reset()
	w := b.worker()
	b.finish(w, b.claim(w, ingest))
	b.want(id, done, done, done, done, done)
}

// stumbling is a database in which somebody gets in the way at first.
type stumbling struct {
	*pgxpool.Pool
	times int
}

func (s *stumbling) Begin(ctx context.Context) (pgx.Tx, error) {
	if s.times--; s.times >= 0 {
		return nil, &pgconn.PgError{Code: "40P01"}
	}
	return s.Pool.Begin(ctx)
}

// A daemon at work locks the tables in another order than an upgrade.
func TestUpgradeIsTriedAgainAfterADeadlock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(older)
	st := store.New(&stumbling{b.pool, 2}, store.Video())
	if from, err := st.Migrate(t.Context()); err != nil || from != 1 {
		t.Errorf("migrated from %d: %v", from, err)
	}
	must(t, b.Check(t.Context()))
}
