package report

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
)

var ages = []time.Duration{30 * 24 * time.Hour, 90 * 24 * time.Hour}

// newVideos returns a database of videos, of which some were completed a number of days ago.
func newVideos(t *testing.T, pool *pgxpool.Pool, days ...int) *store.Store {
	t.Helper()
	execAll(t, pool, `alter table tasks disable trigger user`)
	_, err := pool.Exec(t.Context(), `
		insert into tasks (source, created_at, updated_at, ingest_status, transcode_status, metadata_status, assemble_status,
		                   publish_status)
		select 'a.mp4', now() - n * interval '1 day', now() - n * interval '1 day', 'completed', 'completed', 'completed',
		       'completed', 'completed'
		  from unnest($1::int[]) n order by n desc`, days)
	if err != nil {
		t.Fatal(err)
	}
	return store.New(pool, store.Video())
}

func execAll(t *testing.T, pool *pgxpool.Pool, texts ...string) {
	t.Helper()
	for _, sql := range texts {
		if _, err := pool.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatalf("%v\n%s", err, sql)
		}
	}
}

func videoSchema() pgtest.Schema {
	g := store.Video()
	return pgtest.SQL(g.SchemaSQL(), g.TriggersSQL(), operators.SQL)
}

func TestCountPrunable_CountsWhatEachRetentionWouldDelete(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, videoSchema())
	st := newVideos(t, pool, 100, 40, 35, 10)
	execAll(t, pool,
		`insert into tasks (source, created_at, updated_at, ingest_status)
		 values ('b.mp4', now() - interval '60 days', now() - interval '50 days', 'dead')`,
		`insert into tasks (source, created_at) values ('c.mp4', now() - interval '100 days')`,
		`insert into outbox (at, type) select now() - n * interval '40 days', 'completed' from generate_series(0, 3) n`,
		`insert into workers (name, host, pid, stopped_at) values ('a', 'a', 1, now() - interval '60 days')`,
		`insert into workers (name, host, pid) values ('b', 'b', 1)`,
		`insert into cuelight_audit (at, actor, action) values (now() - interval '95 days', 'anna', 'pause')`,
		`insert into cuelight_webhooks (pipeline, url, secret, cursor) values ('video', 'https://a.example', 'x', 0)`,
		`insert into cuelight_deliveries (webhook_id, event_id, type, payload, status, finished_at)
		 select w.id, n, 'completed', '{}', (array['delivered', 'suppressed', 'dead', 'pending'])[n], now() - interval '91 days'
		   from cuelight_webhooks w, generate_series(1, 4) n`,
		`insert into deleted_tasks (id, deleted_at, purge_at, task)
		 select cuelight_id(), now() - interval '31 days', p, '{}' from unnest(array[null, now()]) p`,
	)
	r, err := CountPrunable(t.Context(), st, ages)
	if err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string]struct {
		got  []RowCount
		want []int64
	}{
		"finished": {r.Finished, []int64{3, 1}}, "dead": {r.Dead, []int64{1, 0}}, "events": {r.Events, []int64{3, 1}},
		"deleted": {r.Deleted, []int64{1, 0}}, "workers": {r.Workers, []int64{1, 0}}, "audit": {r.Audit, []int64{1, 1}},
		"deliveries": {r.Deliveries, []int64{2, 2}}, "dead deliveries": {r.DeadDeliveries, []int64{1, 1}},
	} {
		if !slices.Equal(of.got, []RowCount{{Rows: of.want[0]}, {Rows: of.want[1]}}) {
			t.Errorf("%s: %+v, want %v", name, of.got, of.want)
		}
	}
}

func TestCountPrunable_EstimatesTheNumberOfMany(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, videoSchema())
	days := make([]int, 70_000)
	for i := range days {
		days[i] = 50 + i%2
	}
	days = append(days, 100, 100)
	for range 30_000 {
		days = append(days, 1)
	}
	r, err := CountPrunable(t.Context(), newVideos(t, pool, days...), ages)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Finished[0]; !got.Estimated || got.Rows < 40_000 || got.Rows > 100_000 {
		t.Errorf("%+v, want about 70,000", got)
	}
	// Those that the scan of the oldest finds are counted exactly.
	if got := r.Finished[1]; got != (RowCount{Rows: 2}) {
		t.Errorf("%+v, want 2", got)
	}
}

func TestReadTableSizes_NeedsOnlyARoleThatOwnsItsSchema(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, pgtest.ServerOptions{})
	admin := server.New(pgtest.SQL(`create role anna login; create schema mine authorization anna`))
	config := admin.Config()
	config.ConnConfig.User = "anna"
	config.ConnConfig.RuntimeParams["search_path"] = "mine"
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	g := store.Video()
	execAll(t, pool, g.SchemaSQL(), g.TriggersSQL(), operators.SQL, `create table not_ours as select generate_series(1, 100000)`)
	st := newVideos(t, pool, make([]int, 1000)...)
	s, err := ReadTableSizes(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	if s.Tasks < 100_000 || s.History == 0 || s.Events == 0 || s.DeletedTasks == 0 || s.Deliveries == 0 || s.Other == 0 {
		t.Errorf("%+v", s)
	}
	if s.Other > 1<<20 {
		t.Errorf("the other tables have %d bytes: are there some of other programs?", s.Other)
	}
	if _, err := CountPrunable(t.Context(), st, ages); err != nil {
		t.Error(err)
	}
}
