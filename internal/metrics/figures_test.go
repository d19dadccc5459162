package metrics

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
)

func newPool(t testing.TB, g store.Graph) *pgxpool.Pool {
	t.Helper()
	return pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
}

func exec(t testing.TB, pool *pgxpool.Pool, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%v\n%s", err, sql)
		}
	}
}

func figures(t testing.TB, pool *pgxpool.Pool, g store.Graph) Figures {
	t.Helper()
	f, err := NewDatabase(pool, g, DatabaseOptions{Timeout: time.Minute}).Figures(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// near compares durations that are as long as the test took ago.
var near = cmp.Comparer(func(a, b time.Duration) bool { return math.Abs((a - b).Seconds()) < 30 })

var ignoreWhen = cmpopts.IgnoreFields(Figures{}, "At", "Took")

const gone = `'00000000-0000-0000-0000-000000000001'`

func TestFigures_AreZeroForAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	g := store.Video()
	want := Figures{Stages: []StageFigures{
		{Name: "ingest"}, {Name: "transcode"}, {Name: "metadata"}, {Name: "assemble"}, {Name: "publish"},
	}}
	if diff := cmp.Diff(want, figures(t, newPool(t, g), g), ignoreWhen, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

func TestFigures_CountUnfinishedTasksOnly(t *testing.T) {
	t.Parallel()
	g := store.Video()
	pool := newPool(t, g)
	exec(t, pool,
		`insert into tasks (source) values ('a'), ('b')`,
		`insert into tasks (source, ingest_status, ingest_attempts, ingest_run_at)
		 values ('c', 'failed', 1, now() + interval '1 hour')`,
		`insert into tasks (source, ingest_status, transcode_status, metadata_status, metadata_token,
			metadata_locked_at, metadata_locked_by)
		 values ('d', 'completed', 'failed', 'inprogress', gen_random_uuid(), now(), `+gone+`)`,
		`insert into tasks (source, ingest_status, transcode_status, metadata_status)
		 values ('e', 'completed', 'dead', 'dead'), ('f', 'completed', 'dead', 'pending')`,
		`insert into tasks (source, ingest_status, transcode_status, metadata_status, assemble_status, publish_status)
		 values ('g', 'completed', 'completed', 'completed', 'completed', 'completed')`,
		`insert into tasks (source, ingest_status, transcode_status, metadata_status, assemble_status, publish_status)
		 values ('h', 'cancelled', 'cancelled', 'cancelled', 'cancelled', 'cancelled')`,
		`insert into cuelight_pauses (pipeline, stage, host)
		 values ('video', 'assemble', ''), ('video', 'publish', 'elsewhere'), ('other', 'ingest', '')`,
	)
	want := Figures{
		Stages: []StageFigures{
			{Name: "ingest", Ready: 2, Waiting: 1},
			{Name: "transcode", Ready: 1, Dead: 2},
			{Name: "metadata", Ready: 1, InProgress: 1, Dead: 1},
			{Name: "assemble", Paused: true},
			{Name: "publish"},
		},
		DeadTasks: 2,
	}
	if diff := cmp.Diff(want, figures(t, pool, g), ignoreWhen, near, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	exec(t, pool, `insert into cuelight_pauses (pipeline) values ('video')`)
	for _, s := range figures(t, pool, g).Stages {
		if !s.Paused {
			t.Errorf("with all stages paused, %s is not", s.Name)
		}
	}
}

func TestFigures_BelongToOnePipeline(t *testing.T) {
	t.Parallel()
	g, err := store.NewGraph("podcast", store.Node{Name: "fetch"}, store.Node{Name: "mix", Needs: []string{"fetch"}})
	if err != nil {
		t.Fatal(err)
	}
	v := store.Video()
	pool := pgtest.New(t, pgtest.SQL(v.SchemaSQL(), v.TriggersSQL(), g.SchemaSQL(), g.TriggersSQL()))
	exec(t, pool,
		`insert into tasks (source) values ('a')`,
		`insert into workers (pipeline, host, pid) values ('video', 'v', 1), ('podcast', 'p', 2)`,
		`insert into podcast_tasks (source, fetch_status) values ('x', 'completed'), ('y', 'pending')`,
	)
	want := Figures{
		Stages:  []StageFigures{{Name: "fetch", Ready: 1}, {Name: "mix", Ready: 1}},
		Workers: []WorkerFigures{{Worker: "p:2", State: "alive"}},
	}
	if diff := cmp.Diff(want, figures(t, pool, g), ignoreWhen, near, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

func TestFigures_OldestReadyCountsFromTheLatestCause(t *testing.T) {
	t.Parallel()
	attempt := func(stage, outcome, ago, retryIn string) string {
		retry := "null"
		if retryIn != "" {
			retry = fmt.Sprintf("now() - interval '%s' + interval '%s'", ago, retryIn)
		}
		return fmt.Sprintf(`insert into attempts (task_id, token, stage, attempt, worker_id, started_at,
				finished_at, outcome, retry_at)
			select id, gen_random_uuid(), '%s', 1, %s, created_at, now() - interval '%s', '%s', %s from tasks`, stage, gone,
			ago, outcome, retry)
	}
	const old = `insert into tasks (source, created_at, ingest_status) values ('a', now() - interval '10 h', 'completed')`
	for name, c := range map[string]struct {
		rows []string
		want time.Duration
	}{
		"the submission, where nothing is known but that": {[]string{old}, 10 * time.Hour},
		"the end of what it needs": {
			[]string{old, attempt("ingest", "completed", "2 h", "")}, 2 * time.Hour,
		},
		"not the end of what it does not need": {
			[]string{old, attempt("ingest", "completed", "2 h", ""), attempt("metadata", "completed", "1 h", "")},
			2 * time.Hour},
		"the time of its next attempt": {
			[]string{old, attempt("ingest", "completed", "4 h", ""), attempt("transcode", "failed", "3 h", "2 h")}, time.Hour},
		"when it was given back": {
			[]string{old, attempt("ingest", "completed", "4 h", ""), attempt("transcode", "released", "3 h", "")},
			3 * time.Hour},
		"the lowest priority, too": {
			[]string{
				old,
				`insert into tasks (source, created_at, priority, ingest_status)
				 values ('b', now() - interval '20 h', -5, 'completed'),
				        ('c', now() - interval '1 h', 5, 'completed')`,
			}, 20 * time.Hour},
		"the lowest of many priorities": {
			[]string{
				`insert into tasks (source, created_at, priority, ingest_status)
				 select 'p', now() - interval '1 h', n, 'completed' from generate_series(-30, 90) as n`,
				`update tasks set created_at = now() - interval '20 h' where priority = -30`,
			}, 20 * time.Hour,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := store.Video()
			pool := newPool(t, g)
			exec(t, pool, c.rows...)
			if got := figures(t, pool, g).Stages[1].OldestReady; math.Abs((got - c.want).Seconds()) > 30 {
				t.Errorf("transcode has been ready for %s, want %s", got, c.want)
			}
		})
	}
}

func TestFigures_CountALongQueueUpToTheLimit(t *testing.T) {
	t.Parallel()
	g := store.Video()
	pool := newPool(t, g)
	exec(t, pool, `alter table tasks disable trigger user`,
		fmt.Sprintf(`insert into tasks (source) select 'a' from generate_series(1, %d)`, CountAtMost+1))
	if got := figures(t, pool, g).Stages[0].Ready; got != CountAtMost {
		t.Errorf("%d are ready, want %d and no more", got, CountAtMost)
	}
}

func TestFigures_ListWorkersWithTheirState(t *testing.T) {
	t.Parallel()
	g := store.Video()
	pool := newPool(t, g)
	exec(t, pool,
		`insert into workers (pipeline, host, pid, heartbeat_at, stopped_at, lost_at, drain_at) values
		 ('video', 'a', 1, now() - interval '2 s', null, null, null),
		 ('video', 'b', 2, now() - interval '3 s', null, null, now()),
		 ('video', 'c', 3, now() - interval '1 h', null, null, null),
		 ('video', 'd', 4, now() - interval '1 h', now(), null, null),
		 ('video', 'e', 5, now() - interval '1 h', null, now(), null),
		 ('video', 'a', 1, now() - interval '2 h', null, null, now())`)
	want := []WorkerFigures{{"a:1", "silent", 2 * time.Hour}, {"b:2", "draining", 0}, {"c:3", "silent", time.Hour}}
	got := figures(t, pool, g).Workers
	slices.SortFunc(got, func(a, b WorkerFigures) int { return strings.Compare(a.Worker, b.Worker) })
	if diff := cmp.Diff(want, got, near); diff != "" {
		t.Error(diff)
	}
}

func TestFigures_MeasureTheSlowestWebhook(t *testing.T) {
	t.Parallel()
	g := store.Video()
	pool := newPool(t, g)
	const hook = `insert into cuelight_webhooks (pipeline, url, secret, cursor, disabled_at) values `
	exec(t, pool, `delete from outbox`,
		`insert into outbox (id, at, type)
		 values (7, now() - interval '3 h', 'submitted'), (8, now() - interval '2 h', 'submitted'), (9, now(), 'completed')`,
		`select setval('outbox_id', 9)`)
	if f := figures(t, pool, g); f.OutboxPending != 0 || f.OutboxOldest != 0 {
		t.Errorf("nobody is told of anything, and yet %d rows wait, for %s", f.OutboxPending, f.OutboxOldest)
	}
	exec(t, pool,
		hook+`('video', 'http://a', '', 9::bigint << 16 | 65535, null), ('video', 'http://b', '', 7::bigint << 16, null),
		('video', 'http://off', '', 0, now()), ('other', 'http://c', '', 0, null)`)
	f := figures(t, pool, g)
	want := Figures{OutboxPending: 2, OutboxOldest: 2 * time.Hour, OutboxAge: 3 * time.Hour, WebhooksOn: 2, WebhooksOff: 1}
	if diff := cmp.Diff(want, f, ignoreWhen, near, cmpopts.IgnoreFields(Figures{}, "Stages", "Workers")); diff != "" {
		t.Error(diff)
	}
	exec(t, pool, `insert into cuelight_deliveries (webhook_id, event_id, type, payload, status, created_at)
		select w.id, e.id, 'completed', '', e.status, now() - interval '1 min' * e.minutes
		  from cuelight_webhooks w,
		       (values (1, 'delivered', 60), (2, 'dead', 50), (3, 'pending', 40), (4, 'pending', 30),
		               (5, 'suppressed', 20)) as e (id, status, minutes)
		 where w.pipeline = 'video'`)
	f = figures(t, pool, g)
	want.WebhookPending, want.WebhookOldest, want.WebhookDead = 4, 40*time.Minute, 2
	if diff := cmp.Diff(want, f, ignoreWhen, near, cmpopts.IgnoreFields(Figures{}, "Stages", "Workers")); diff != "" {
		t.Error(diff)
	}
}

// Whether anybody reads is another question than whether anybody could.
func TestFigures_DetectAnOpenTransaction(t *testing.T) {
	t.Parallel()
	g := store.Video()
	pool := newPool(t, g)
	exec(t, pool, `insert into tasks (source) values ('a')`, `update outbox set at = now() - interval '3 h'`)
	if f := figures(t, pool, g); f.OutboxHeld != 0 || f.OutboxAge.Round(time.Minute) != 3*time.Hour {
		t.Errorf("held %s, the oldest %s", f.OutboxHeld, f.OutboxAge)
	}
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `insert into tasks (source) values ('b')`); err != nil {
		t.Fatal(err)
	}
	if f := figures(t, pool, g); f.OutboxHeld != 0 {
		t.Errorf("nothing came after it, and yet held %s", f.OutboxHeld)
	}
	exec(t, pool, `insert into tasks (source) values ('c')`,
		`update outbox set at = now() - interval '2 h' where id = (select max(id) from outbox)`)
	if f := figures(t, pool, g); f.OutboxHeld.Round(time.Minute) != 2*time.Hour {
		t.Errorf("held %s", f.OutboxHeld)
	}
	// Where nobody can read events, the other figures are there.
	o := pool.Config()
	o.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
	strict, err := pgxpool.NewWithConfig(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer strict.Close()
	if f := figures(t, strict, g); f.OutboxHeld >= 0 || f.OutboxPending != 0 || f.Stages[0].Ready != 2 {
		t.Errorf("figures are %+v", f)
	}
}

// The statement must not become slower with all that was ever finished, so its
// plan is looked at, as it is made without knowing the tables well.
func TestFigures_ReadNoFinishedTasks(t *testing.T) {
	t.Parallel()
	g := store.Video()
	pool := newPool(t, g)
	exec(t, pool, `alter table tasks disable trigger user`, finished(20_000), `analyze`)
	plan := explain(t, pool, g, "costs off")
	for _, index := range []string{
		"tasks_ingest_ready", "tasks_publish_ready", "tasks_by_status", "tasks_held", "tasks_dead",
		"attempts_pkey", "workers_alive",
		"outbox_pkey", "cuelight_deliveries_due", "cuelight_deliveries_dead",
	} {
		if !strings.Contains(plan, index) {
			t.Errorf("%s is not used", index)
		}
	}
	for _, table := range []string{"tasks", "attempts", "workers", "outbox", "cuelight_deliveries"} {
		if strings.Contains(plan, "Seq Scan on "+table+" ") || strings.Contains(plan, "Seq Scan on "+table+"\n") {
			t.Errorf("all of %s is read", table)
		}
	}
	if strings.Contains(plan, "tasks_pkey") {
		t.Errorf("all of tasks is read, by its key")
	}
	if t.Failed() {
		t.Log(plan)
	}
}

// finished makes so many tasks that are, with their history.
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

func explain(t testing.TB, pool *pgxpool.Pool, g store.Graph, options string) string {
	t.Helper()
	var plan []string
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), figuresSettings, "60000"); err != nil {
			return err
		}
		rows, err := tx.Query(t.Context(), "explain ("+options+") "+g.SQL(figuresSQL, CountAtMost))
		if err != nil {
			return err
		}
		plan, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(plan, "\n") + "\n"
}

// Run with -bench: what the figures cost among a million finished tasks, and with
// a queue.
func BenchmarkFigures(b *testing.B) {
	g := store.Video()
	pool := newPool(b, g)
	exec(b, pool, `alter table tasks disable trigger user`)
	for range 10 {
		exec(b, pool, finished(100_000))
	}
	exec(b, pool, `vacuum analyze`)
	d := NewDatabase(pool, g, DatabaseOptions{Timeout: time.Minute})
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

// A task that begins later for the first time has not failed.
func TestFigures_DistinguishScheduledTasksFromRetries(t *testing.T) {
	t.Parallel()
	g := store.Video()
	pool := newPool(t, g)
	exec(t, pool,
		`insert into tasks (source, ingest_run_at) select 'a', 'tomorrow' from generate_series(1, 3)`,
		`insert into tasks (source, ingest_status, ingest_attempts, ingest_run_at) values ('b', 'failed', 1, 'tomorrow')`,
		`insert into tasks (source, ready_at, ingest_run_at) values ('given back', now(), 'tomorrow')`,
		`insert into tasks (source, ingest_status, transcode_status, transcode_run_at)
		 values ('c', 'completed', 'failed', 'tomorrow')`)
	f := figures(t, pool, g)
	if s := f.Stages[0]; s.Scheduled != 3 || s.Waiting != 2 || s.Ready != 0 || s.OldestReady != 0 {
		t.Errorf("ingest is %+v", s)
	}
	if s := f.Stages[1]; s.Scheduled != 0 || s.Waiting != 1 {
		t.Errorf("transcode is %+v", s)
	}
}
