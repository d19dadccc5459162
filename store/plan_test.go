package store

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgtest"
)

func TestReads_UseIndexesAmongManyFinishedTasks(t *testing.T) {
	t.Parallel()
	g := Video()
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, sql := range []string{
		`alter table tasks disable trigger user`,
		`insert into tasks (source, ingest_status, transcode_status, metadata_status, assemble_status, publish_status)
		 select n::text, 'completed', 'completed', 'completed', 'completed', 'completed' from generate_series(1, 100000) as n`,
		`insert into tasks (source, ingest_status, transcode_status) select n::text, 'completed', 'dead'
		 from generate_series(1, 500) as n`,
		`insert into tasks (source, ingest_run_at) select n::text, now() + interval '1 day' from generate_series(1, 500) as n`,
		`insert into tasks (source) select n::text from generate_series(1, 500) as n`,
		`insert into attempts (task_id, token, stage, attempt, worker_id, started_at, outcome)
		 select id, cuelight_id(), 'ingest', 1, cuelight_id(), now(), 'completed' from tasks
		   where ingest_status = 'completed'`,
		`insert into tasks (source, user_id, request_id) select n::text, 'u' || n, 'r' || n from generate_series(1, 500) as n`,
		`insert into tasks (source, ingest_status, ingest_attempts, ingest_run_at) select n::text, 'failed', 1, now()
		 from generate_series(1, 500) as n`,
		`insert into workers (pipeline, host, pid, stopped_at) select 'video', 'a', 1, now() from generate_series(1, 20000)`,
		`analyze`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	// The settings of statement.Read.
	_, err = conn.Exec(t.Context(),
		"set jit = off; set enable_seqscan = off; set enable_bitmapscan = off; set plan_cache_mode = force_generic_plan")
	if err != nil {
		t.Fatal(err)
	}
	s := New(pool, g)
	type read struct {
		sql     string
		args    int
		indexes string
	}
	reads := map[string]read{
		"stopped workers": {s.sql.stoppedWorkers, 3, "workers_pkey"},
		"get":             {s.sql.get, 1, "tasks_pkey"},
	}
	ready := "tasks_ingest_ready tasks_transcode_ready tasks_metadata_ready tasks_assemble_ready tasks_publish_ready"
	indexes := map[source]string{
		sourceAll: "tasks_pkey", sourceRequest: "tasks_request", sourceUser: "tasks_user",
		sourceOfOnly(StateRunning): "tasks_held", sourceOfOnly(StateDead): "tasks_dead", sourceOfOnly(StateReady): ready,
		sourceOfStatus(StatusPending):    "tasks_by_status tasks_ingest_ready",
		sourceOfStatus(StatusInProgress): "tasks_by_status tasks_held tasks_publish_ready",
		sourceOfStage(StatusInProgress):  "tasks_held", sourceOfStage(StatusDead): "tasks_dead",
		sourceOfStatus(StatusDead): "tasks_dead",
	}
	for key, sql := range s.sql.pages {
		index := indexes[key.source]
		if index == "" {
			index = "tasks_by_status"
		}
		reads[fmt.Sprintf("page %s, oldest %t", key.source, key.oldest)] = read{sql, 11, index}
	}
	for name, c := range reads {
		values := strings.TrimSuffix(strings.Repeat("null, ", c.args), ", ")
		plan := strings.ReplaceAll(explain(t, conn, c.sql, values), "Seq Scan on pg_database", "") // a small table
		for _, index := range strings.Fields(c.indexes) {
			if !strings.Contains(plan, index) {
				t.Errorf("%s does not use %s:\n%s", name, index, plan)
			}
		}
		if strings.Contains(plan, "Seq Scan on") || strings.Contains(plan, "JIT:") {
			t.Errorf("%s reads a whole table, or is compiled with JIT:\n%s", name, plan)
		}
		// A page must not sort what it reads in the order of an index.
		sorted := regexp.MustCompile(`Sort\n.*Sort Key: .*\n +-> +(Index|Bitmap)[^\n]* on tasks`)
		if strings.HasPrefix(name, "page") && !strings.Contains(name, "request") && sorted.MatchString(plan) {
			t.Errorf("%s sorts rows from an index:\n%s", name, plan)
		}
	}
}

// batchesOnly fails the test for queries outside a batch, which would run with the
// settings of the session.
type batchesOnly struct {
	DB
	t *testing.T
}

func (b batchesOnly) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	b.t.Errorf("queried with the settings of the session: %s", sql)
	return b.DB.Query(ctx, sql, args...)
}

// A caller's pool may use JIT, which is PostgreSQL's default: it compiles statements with a
// high estimated cost, which takes longer than running them.
func TestReads_IgnoreSessionSettings(t *testing.T) {
	t.Parallel()
	g := Video()
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	settings := `select concat_ws(' ', current_setting('jit'), current_setting('enable_seqscan'), current_setting('plan_cache_mode'))`
	if _, err := tx.Exec(t.Context(), `set jit = on; set jit_above_cost = 0`,
		pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	s := New(batchesOnly{tx, t}, g)
	var during, after string
	err = s.read(t.Context(), settings, nil, func(rows pgx.Rows) error {
		during, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
		return err
	})
	if err != nil || during != "off off force_generic_plan" {
		t.Errorf("during a read the settings are %s, %v", during, err)
	}
	if err := tx.QueryRow(t.Context(), settings).Scan(&after); err != nil || after != "on on auto" {
		t.Errorf("after a read the transaction's settings are %s, %v", after, err)
	}
	for name, query := range map[string]func() error{
		"page":      func() error { _, err := s.Page(t.Context(), ListQuery{}); return err },
		"list":      func() error { _, err := s.List(t.Context(), ListQuery{}); return err },
		"retry all": func() error { _, err := s.RetryAll(t.Context(), Filter{}, "", RetryAllOptions{}); return err },
	} {
		if err := query(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func explain(t *testing.T, conn *pgxpool.Conn, sql, args string) string {
	t.Helper()
	call := "explain (costs off) execute it"
	if args != "" {
		call += "(" + args + ")"
	}
	if _, err := conn.Exec(t.Context(), "prepare it as "+sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatalf("%v\n%s", err, sql)
	}
	rows, err := conn.Query(t.Context(), call, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "deallocate it"); err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
