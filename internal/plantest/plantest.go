// Package plantest checks the plans of statements, in tests. A statement that cannot use
// its index is quick on a small table, and reads all of a large one.
//
//	conn := plantest.LargeDatabase(t)
//	plantest.WantIndexes(t, conn, "get", getSQL, "null", "tasks_pkey")
//
// Package store uses it in tests of its own package, so it does not import store.
package plantest

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/pgtest"
)

// LargeDatabase returns a connection to a database with many finished tasks of the video
// pipeline, and few in every other state. It has the settings of statement.Read.
func LargeDatabase(t *testing.T) *pgxpool.Conn {
	t.Helper()
	conn, err := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers)).Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	for _, sql := range []string{
		`alter table tasks disable trigger user`,
		`insert into tasks (source, ingest_status, transcode_status, metadata_status, assemble_status, publish_status)
		 select n::text, 'completed', 'completed', 'completed', 'completed', 'completed'
		   from generate_series(1, 100000) as n`,
		`insert into attempts (task_id, token, stage, attempt, worker_id, started_at, outcome)
		 select id, cuelight_id(), 'ingest', 1, cuelight_id(), now(), 'completed' from tasks`,
		`alter table tasks enable trigger user`,
		`insert into tasks (source, ingest_status, transcode_status)
		 select n::text, 'completed', 'dead' from generate_series(1, 500) as n`,
		`insert into tasks (source, scheduled_at) select n::text, now() + interval '1 day' from generate_series(1, 500) as n`,
		`insert into tasks (source) select n::text from generate_series(1, 500) as n`,
		`insert into tasks (source, user_id, request_id) select n::text, 'u' || n, 'r' || n from generate_series(1, 500) as n`,
		`insert into tasks (source, ingest_status) select n::text, 'failed' from generate_series(1, 500) as n`,
		`update steps set attempts = 1 from tasks t where t.id = task_id and ingest_status = 'failed'`,
		`insert into workers (name, host, pid, stopped_at) select 'a', 'a', 1, now() from generate_series(1, 20000)`,
		`analyze`,
		`set jit = off; set enable_seqscan = off; set enable_bitmapscan = off;
		 set plan_cache_mode = force_generic_plan`,
	} {
		if _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

// WantIndexes fails the test unless the plan of a statement uses the indexes and reads no
// whole table. It returns the plan. args are the arguments, in SQL.
func WantIndexes(t *testing.T, conn *pgxpool.Conn, name, sql, args string, indexes ...string) (plan string) {
	t.Helper()
	plan = Explain(t, conn, sql, args)
	for _, index := range indexes {
		if !strings.Contains(plan, index) {
			t.Errorf("%s does not use %s:\n%s", name, index, plan)
		}
	}
	large := strings.ReplaceAll(plan, "Seq Scan on pg_database", "") // a small table
	if strings.Contains(large, "Seq Scan on") || strings.Contains(large, "JIT:") {
		t.Errorf("%s reads a whole table, or is compiled with JIT:\n%s", name, plan)
	}
	return plan
}

// Explain returns the plan of a prepared statement, without costs. args are the arguments,
// in SQL.
func Explain(t *testing.T, conn *pgxpool.Conn, sql, args string) string {
	t.Helper()
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatalf("%v\n%s", err, sql)
		}
	}
	exec("prepare it as " + sql)
	defer exec("deallocate it")
	call := "explain (costs off) execute it"
	if args != "" {
		call += "(" + args + ")"
	}
	rows, err := conn.Query(t.Context(), call, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// Nulls returns n arguments that are null.
func Nulls(n int) string { return strings.TrimSuffix(strings.Repeat("null, ", n), ", ") }
