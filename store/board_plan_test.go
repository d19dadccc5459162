package store

import (
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/pgtest"
)

func TestReadsOfTheDashboardUseIndexesAmongManyFinishedTasks(t *testing.T) {
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
		`insert into tasks (source, ingest_status, transcode_status) select n::text, 'completed', 'dead' from generate_series(1, 500) as n`,
		`insert into tasks (source, ingest_run_at) select n::text, now() + interval '1 day' from generate_series(1, 500) as n`,
		`insert into tasks (source) select n::text from generate_series(1, 500) as n`,
		`insert into attempts (task_id, token, stage, attempt, worker_id, started_at, outcome)
		 select id, cuelight_id(), 'ingest', 1, cuelight_id(), now(), 'completed' from tasks where ingest_status = 'completed'`,
		`insert into workers (pipeline, host, pid, stopped_at) select 'video', 'a', 1, now() from generate_series(1, 20000)`,
		`analyze`,
		`set plan_cache_mode = force_generic_plan`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	r := New(pool, g).sql.reads
	for name, c := range map[string]struct {
		sql     string
		args    int
		indexes string
	}{
		"board":              {r.board[boardKey{}], 10, "tasks_pkey"},
		"board from the end": {r.board[boardKey{"", true}], 10, "tasks_pkey"},
		"board of running":   {r.board[boardKey{OnlyRunning, false}], 10, "tasks_held"},
		"board of dead":      {r.board[boardKey{OnlyDead, false}], 10, "tasks_dead"},
		"board of waiting":   {r.board[boardKey{OnlyWaiting, false}], 10, "tasks_ingest_ready tasks_transcode_ready tasks_metadata_ready tasks_assemble_ready tasks_publish_ready"},
		"board of retrying":  {r.board[boardKey{OnlyRetrying, false}], 10, "tasks_ingest_waiting tasks_publish_waiting"},
		"strip":              {r.strip, 0, "tasks_ingest_ready tasks_publish_ready tasks_held tasks_dead tasks_ingest_waiting"},
		"dead groups":        {r.deadGroups, 7, "tasks_dead attempts_pkey"},
		"dead letters":       {r.deadList, 8, "tasks_dead attempts_pkey"},
		"count dead letters": {r.deadCount, 6, "tasks_dead"},
		"retry dead letters": {r.deadMatching, 6, "tasks_dead"},
		"gone workers":       {goneWorkersSQL, 3, "workers_pkey"},
		"wake-up":            {r.wakeUp, 1, "tasks_pkey attempts_pkey"},
		"latency":            {r.latencyBuckets, 5, "tasks_pkey attempts_pkey"},
	} {
		values := map[string]string{"wake-up": "60", "latency": "now(), 3600, 60, 8, 25"}[name]
		if values == "" {
			values = strings.TrimSuffix(strings.Repeat("null, ", c.args), ", ")
		}
		plan := strings.ReplaceAll(explain(t, conn, c.sql, values), "Seq Scan on pg_database", "") // it is small
		for _, index := range strings.Fields(c.indexes) {
			if !strings.Contains(plan, index) || strings.Contains(plan, "Seq Scan on") {
				t.Errorf("%s does not use %s:\n%s", name, index, plan)
			}
		}
	}
}
