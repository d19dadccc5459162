package metrics

import (
	"context"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/plantest"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
)

func newPool(t testing.TB, g store.Graph) *pgxpool.Pool {
	t.Helper()
	return pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL(), operators.SQL))
}

func exec(t testing.TB, pool *pgxpool.Pool, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%v\n%s", err, sql)
		}
	}
}

func readSnapshot(t testing.TB, pool *pgxpool.Pool, g store.Graph) snapshot {
	t.Helper()
	d := NewDatabase(pool, g)
	d.timeout = time.Minute
	s, err := d.snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// snapshotValues returns the values that are not 0, by metric and labels. Times are rounded to
// minutes.
func snapshotValues(t testing.TB, pool *pgxpool.Pool, g store.Graph) map[string]float64 {
	t.Helper()
	values := make(map[string]float64)
	for s, value := range readSnapshot(t, pool, g).values {
		if strings.HasSuffix(s.metric, "_seconds") {
			value = 60 * math.Round(value/60)
		}
		if value != 0 {
			values[strings.Join(strings.Fields(s.metric+" "+s.labels[0]+" "+s.labels[1]), " ")] = value
		}
	}
	return values
}

// wantSnapshot compares all values except the backlog, which the package store tests.
func wantSnapshot(t testing.TB, pool *pgxpool.Pool, g store.Graph, want map[string]float64) {
	t.Helper()
	got := snapshotValues(t, pool, g)
	maps.DeleteFunc(got, func(name string, _ float64) bool { return strings.HasPrefix(name, "backlog ") })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

const hour = 3600

const gone = `'00000000-0000-0000-0000-000000000001'`

func TestSnapshot_IsZeroForAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	g := store.Video()
	pool := newPool(t, g)
	wantSnapshot(t, pool, g, map[string]float64{})
	values := readSnapshot(t, pool, g).values
	for _, s := range []series{
		{"tasks", [2]string{"publish", "dead"}}, {"oldest_ready_seconds", [2]string{"ingest"}}, {metric: "dead_tasks"},
		{"stage_paused", [2]string{"ingest"}}, {"workers", [2]string{"silent"}}, {"webhooks", [2]string{"disabled"}},
		{metric: "webhook_pending"}, {metric: "outbox_held_seconds"},
	} {
		if _, exists := values[s]; !exists {
			t.Errorf("%v is missing", s)
		}
	}
	if n := 5*5 + 5 + 5 + 5 + 1 + 4 + 4 + 2 + 3; len(values) != n {
		t.Errorf("there are %d values, want %d", len(values), n)
	}
}

func TestSnapshot_CountsUnfinishedTasksOnly(t *testing.T) {
	t.Parallel()
	g := store.Video()
	pool := newPool(t, g)
	exec(t, pool,
		`insert into tasks (source, ingest_status) values ('a', 'pending'), ('b', 'pending'), ('c', 'failed')`,
		`update steps set status = 'waiting', attempts = 1, run_at = now() + interval '1 hour'
		   from tasks t where t.id = task_id and source = 'c'`,
		`insert into tasks (source, ingest_status, transcode_status) values ('d', 'completed', 'failed')`,
		`update steps set status = 'running', attempts = 1, token = gen_random_uuid(), locked_at = now(), locked_by = `+gone+`
		  where stage = 'metadata'`,
		`insert into tasks (source, ingest_status, transcode_status, metadata_status)
		 values ('e', 'completed', 'dead', 'dead'), ('f', 'completed', 'dead', 'pending')`,
		`insert into tasks (source, ingest_status, transcode_status, metadata_status, assemble_status, publish_status)
		 values ('g', 'completed', 'completed', 'completed', 'completed', 'completed')`,
		`insert into tasks (source, ingest_status, transcode_status, metadata_status, assemble_status, publish_status)
		 values ('h', 'cancelled', 'cancelled', 'cancelled', 'cancelled', 'cancelled')`,
		`insert into pauses (stage, host) values ('assemble', ''), ('publish', 'elsewhere')`,
	)
	want := map[string]float64{
		"tasks ingest ready": 2, "tasks ingest retrying": 1,
		"tasks transcode ready": 1, "tasks transcode dead": 2,
		"tasks metadata ready": 1, "tasks metadata inprogress": 1, "tasks metadata dead": 1,
		"stage_paused assemble": 1,
		"dead_tasks":            2,
	}
	wantSnapshot(t, pool, g, want)
	if got := snapshotValues(t, pool, g)["backlog metadata"]; got != 2 {
		t.Errorf("the backlog of metadata is %v, want 2", got)
	}
	exec(t, pool, `insert into pauses default values`)
	for _, stage := range g.Stages() {
		want["stage_paused "+stage] = 1
	}
	wantSnapshot(t, pool, g, want)
}

func TestSnapshot_BelongsToOnePipeline(t *testing.T) {
	t.Parallel()
	g, err := store.NewGraph("podcast", store.Node{Name: "fetch"}, store.Node{Name: "mix", Needs: []string{"fetch"}})
	if err != nil {
		t.Fatal(err)
	}
	v := store.Video()
	pool := pgtest.New(t, pgtest.SQL(v.SchemaSQL(), v.TriggersSQL(), g.SchemaSQL(), g.TriggersSQL(), operators.SQL))
	exec(t, pool,
		`insert into tasks (source) values ('a')`,
		`insert into workers (name, host, pid) values ('v', 'v', 1)`,
		`insert into podcast_workers (name, host, pid) values ('p', 'p', 2)`,
		`insert into pauses (stage) values ('mix')`,
		`insert into podcast_tasks (source, fetch_status) values ('x', 'completed'), ('y', 'pending')`,
	)
	wantSnapshot(t, pool, g, map[string]float64{"tasks fetch ready": 1, "tasks mix ready": 1, "workers idle": 1})
	if _, exists := readSnapshot(t, pool, g).values[series{"worker_heartbeat_age_seconds", [2]string{"p:2"}}]; !exists {
		t.Error("the worker is missing")
	}
}

func TestSnapshot_FindsTheOldestReadyStep(t *testing.T) {
	t.Parallel()
	const ready = `update steps set ready_at = now() - interval `
	for name, c := range map[string]struct {
		rows []string
		want float64
	}{
		"of a stage": {[]string{
			`insert into tasks (source, ingest_status) values ('a', 'completed'), ('b', 'completed')`,
			ready + `'10 h' where stage = 'metadata'`, ready + `'1 h' where stage = 'transcode'`,
			ready + `'2 h' where ctid = (select ctid from steps where stage = 'transcode' limit 1)`,
		}, 2 * hour},
		"of its parts": {[]string{
			`insert into tasks (source, ingest_status) values ('a', 'completed')`,
			`update steps set status = 'divided', parts = 2, open_parts = 2, ready_at = now() - interval '3 h' where stage = 'transcode'`,
			`insert into steps (task_id, stage, part, rank, turn, ready_at)
			 select id, 'transcode', n, 0, 0, now() - n * interval '1 h' from tasks, generate_series(1, 2) n`,
		}, 2 * hour},
		"not one that waits": {[]string{
			`insert into tasks (source, ingest_status) values ('a', 'completed')`, ready + `'1 h'`,
			`update steps set status = 'waiting', run_at = now() where stage = 'transcode'`,
		}, 0},
		"of the lowest priority behind more than are counted": {[]string{
			`insert into tasks (source, ingest_status, priority)
			 select 'a', 'completed', n % 100 from generate_series(1, 2 * ` + fmt.Sprint(report.MaxCount) + `) as n`,
			ready + `'1 h'`, ready + `'20 h' where rank = 0 and turn < 10`,
		}, 20 * hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := store.Video()
			pool := newPool(t, g)
			exec(t, pool, c.rows...)
			if got := snapshotValues(t, pool, g)["oldest_ready_seconds transcode"]; got != c.want {
				t.Errorf("transcode has been ready for %v s, want %v", got, c.want)
			}
		})
	}
}

func TestSnapshot_CountsALongQueueUpToTheLimit(t *testing.T) {
	t.Parallel()
	g := store.Video()
	pool := newPool(t, g)
	exec(t, pool, fmt.Sprintf(`insert into tasks (source) select 'a' from generate_series(1, %d)`, report.MaxCount+1))
	if got := snapshotValues(t, pool, g)["tasks ingest ready"]; got != report.MaxCount {
		t.Errorf("%v are ready, want %d", got, report.MaxCount)
	}
}

func TestSnapshot_ListsWorkersWithTheirState(t *testing.T) {
	t.Parallel()
	g := store.Video()
	pool := newPool(t, g)
	exec(t, pool,
		`insert into workers (name, host, pid, heartbeat_at, stopped_at, lost_at, drain_at, running) values
		 ('a', 'a', 1, now() - interval '2 s', null, null, null, '[]'),
		 ('b', 'b', 2, now() - interval '3 s', null, null, now(), '[{}]'),
		 ('c', 'c', 3, now() - interval '1 h', null, null, null, '[]'),
		 ('d', 'd', 4, now() - interval '1 h', now(), null, null, '[]'),
		 ('e', 'e', 5, now() - interval '1 h', null, now(), null, '[]'),
		 ('a', 'a', 1, now() - interval '2 h', null, null, now(), '[]'),
		 ('north 1', 'f', 6, now(), null, null, null, '[{}]'), ('g', 'g', 7, now(), null, null, null, '[]')`)
	wantSnapshot(t, pool, g, map[string]float64{
		"workers silent": 2, "workers draining": 1, "workers busy": 1, "workers idle": 1,
		"worker_heartbeat_age_seconds a:1": 2 * hour, "worker_heartbeat_age_seconds c:3": hour,
	})
}

func TestSnapshot_MeasuresTheSlowestWebhook(t *testing.T) {
	t.Parallel()
	g := store.Video()
	pool := newPool(t, g)
	const hook = `insert into cuelight_webhooks (pipeline, url, secret, cursor, disabled_at) values `
	exec(t, pool, `delete from outbox`,
		`insert into outbox (id, at, type)
		 values (7, now() - interval '3 h', 'submitted'), (8, now() - interval '2 h', 'submitted'), (9, now(), 'completed')`,
		`select setval('outbox_id', 9)`)
	wantSnapshot(t, pool, g, map[string]float64{"outbox_age_seconds": 3 * hour}) // without a webhook, none is pending
	exec(t, pool,
		hook+`('video', 'http://a', '', 9::bigint << 16 | 65535, null), ('video', 'http://b', '', 7::bigint << 16, null),
		('video', 'http://off', '', 0, now()), ('other', 'http://c', '', 0, null)`)
	want := map[string]float64{
		"outbox_pending": 2, "outbox_oldest_seconds": 2 * hour, "outbox_age_seconds": 3 * hour,
		"webhooks enabled": 2, "webhooks disabled": 1,
	}
	wantSnapshot(t, pool, g, want)
	exec(t, pool, `insert into cuelight_deliveries (webhook_id, event_id, type, payload, status, created_at)
		select w.id, e.id, 'completed', '', e.status, now() - interval '1 min' * e.minutes
		  from cuelight_webhooks w,
		       (values (1, 'delivered', 60), (2, 'dead', 50), (3, 'pending', 40), (4, 'pending', 30),
		               (5, 'suppressed', 20)) as e (id, status, minutes)
		 where w.pipeline = 'video'`)
	want["webhook_pending"], want["webhook_oldest_seconds"], want["webhook_dead"] = 4, 40*60, 2
	wantSnapshot(t, pool, g, want)
}

func TestSnapshot_DetectsAnOpenTransaction(t *testing.T) {
	t.Parallel()
	g := store.Video()
	pool := newPool(t, g)
	exec(t, pool, `insert into tasks (source) values ('a')`, `update outbox set at = now() - interval '3 h'`)
	want := map[string]float64{"tasks ingest ready": 1, "outbox_age_seconds": 3 * hour}
	wantSnapshot(t, pool, g, want)
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `insert into tasks (source) values ('b')`); err != nil {
		t.Fatal(err)
	}
	wantSnapshot(t, pool, g, want) // no event follows that of the open transaction
	exec(t, pool, `insert into tasks (source) values ('c')`,
		`update outbox set at = now() - interval '2 h' where id = (select max(id) from outbox)`)
	want["tasks ingest ready"], want["outbox_held_seconds"] = 2, 2*hour
	wantSnapshot(t, pool, g, want)
	t.Run("an isolation level that hides it leaves the other metrics", func(t *testing.T) {
		o := pool.Config()
		o.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
		strict, err := pgxpool.NewWithConfig(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		defer strict.Close()
		delete(want, "outbox_held_seconds")
		wantSnapshot(t, strict, g, want)
		if held, exists := readSnapshot(t, strict, g).values[series{metric: "outbox_held_seconds"}]; exists {
			t.Errorf("the oldest invisible event is %v s old; want no value", held)
		}
	})
}

// The duration of the query must not depend on the number of finished tasks, so this
// test reads its plan, made without good statistics.
func TestSnapshot_ReadsNoFinishedTasks(t *testing.T) {
	t.Parallel()
	g := store.Video()
	pool := newPool(t, g)
	exec(t, pool, `alter table tasks disable trigger user`, finished(20_000), `analyze`)
	plan := explain(t, pool, g)
	for _, index := range []string{
		"workers_alive", "outbox_pkey", "attempts_events", "cuelight_deliveries_due", "cuelight_deliveries_dead",
	} {
		if !strings.Contains(plan, index) {
			t.Errorf("the query does not use %s", index)
		}
	}
	for _, table := range []string{"tasks", "steps", "attempts", "workers", "outbox", "cuelight_deliveries"} {
		if strings.Contains(plan, "Seq Scan on "+table+" ") || strings.Contains(plan, "Seq Scan on "+table+"\n") {
			t.Errorf("the query reads all of %s", table)
		}
	}
	if t.Failed() {
		t.Log(plan)
	}
}

// finished is a statement that inserts completed tasks with their attempts.
func finished(n int) string {
	return fmt.Sprintf(`
with made as (
  insert into tasks (source, ingest_status, transcode_status, metadata_status, assemble_status, publish_status)
  select n::text, 'completed', 'completed', 'completed', 'completed', 'completed' from generate_series(1, %d) as n
  returning id)
insert into attempts (task_id, token, stage, attempt, worker_id, started_at, outcome)
select id, gen_random_uuid(), stage, 1, %s, now(), 'completed'
  from made, unnest('{ingest,transcode,metadata,assemble,publish}'::text[]) as stage`, n, gone)
}

// explain returns the plan of snapshotSQL. Package report tests that of the queues.
func explain(t *testing.T, pool *pgxpool.Pool, g store.Graph) string {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), "begin"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), snapshotSettings, "60000"); err != nil {
		t.Fatal(err)
	}
	return plantest.Explain(t, conn, g.SQL(snapshotSQL), "'{ingest}', 10000") + "\n"
}

// BenchmarkSnapshot measures the query with a million finished tasks, and with queues.
func BenchmarkSnapshot(b *testing.B) {
	g := store.Video()
	pool := newPool(b, g)
	exec(b, pool, `alter table tasks disable trigger user`)
	for range 10 {
		exec(b, pool, finished(100_000))
	}
	exec(b, pool, `alter table tasks enable trigger user`, `vacuum analyze`)
	d := NewDatabase(pool, g)
	d.timeout = time.Minute
	measure := func(name string) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := d.query(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	measure("a million finished")
	exec(b, pool, `insert into tasks (source) select n::text from generate_series(1, 1000) as n`)
	measure("and a thousand ready")
	exec(b, pool,
		`insert into tasks (source, ingest_status) select n::text, 'completed' from generate_series(1, 300000) as n`)
	measure("and 300 thousand ready for two stages")
	exec(b, pool, `insert into tasks (source, ingest_status) select n::text, 'dead' from generate_series(1, 20000) as n`)
	measure("and twenty thousand dead")
}

func TestSnapshot_DistinguishesScheduledTasksFromRetries(t *testing.T) {
	t.Parallel()
	g := store.Video()
	pool := newPool(t, g)
	exec(t, pool,
		`insert into tasks (source, scheduled_at) select 'a', 'tomorrow' from generate_series(1, 3)`,
		`insert into tasks (source, ingest_status) values ('b', 'failed')`,
		`update steps set attempts = 1, status = 'waiting', run_at = 'tomorrow' from tasks t where t.id = task_id and source = 'b'`,
		`insert into tasks (source) values ('released')`,
		`update steps set status = 'waiting', run_at = 'tomorrow' from tasks t where t.id = task_id and source = 'released'`,
		`insert into tasks (source, scheduled_at, ingest_status, transcode_status) values ('c', 'tomorrow', 'completed', 'failed')`,
		`update steps set attempts = 1, status = 'waiting', run_at = 'tomorrow' where stage = 'transcode'`)
	wantSnapshot(t, pool, g, map[string]float64{
		"tasks ingest scheduled": 3, "tasks ingest retrying": 2, "tasks transcode retrying": 1, "tasks metadata ready": 1,
	})
}
