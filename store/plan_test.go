package store

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgtest"
)

// A statement that cannot use its partial index is as quick as any on a small
// table and walks all of a large one, so plans are looked at among many
// finished tasks, and as a turn makes them: without knowing the parameters.
func TestPlansUseTheirIndexesAmongManyFinishedTasks(t *testing.T) {
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
		`insert into tasks (source) select n::text from generate_series(1, 500) as n`,
		`insert into tasks (source, ingest_run_at) select n::text, now() + interval '1 day' from generate_series(1, 5000) as n`,
		`analyze`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Exec(t.Context(), strings.NewReplacer("true", "false", "$1", "false", "$2", "'exchange'", "$3", "null", "$4", "'2s'").Replace(exchangeSettingsSQL)); err != nil {
		t.Fatal(err)
	}
	s := New(pool, g)
	nulls := func(n int) string { return strings.TrimSuffix(strings.Repeat("null, ", n), ", ") }
	for name, c := range map[string]struct {
		sql   string
		args  int
		index string
	}{
		"claim ingest":       {s.sql.claim[0], 3, "tasks_ingest_ready"},
		"claim assemble":     {s.sql.claim[3], 3, "tasks_assemble_ready"},
		"claim after":        {s.sql.claimAfter[0], 5, "tasks_ingest_ready"},
		"claim aged":         {s.sql.claimAged[1], 3, "tasks_pkey"},
		"aged":               {s.sql.aged[1], 2, "tasks_transcode_ready"},
		"look at ingest":     {s.sql.look[0], 1, "tasks_ingest_ready"},
		"mature ingest":      {s.sql.mature[0], 0, "tasks_ingest_waiting"},
		"complete":           {s.sql.complete, 11, "tasks_pkey"},
		"complete, going on": {s.sql.complete, 11, "tasks_transcode_ready"},
		"complete, ranked":   {s.sql.completeRanked, 14, "tasks_transcode_ready"},
		"claim the rest":     {s.sql.claimRest[1], 3, "tasks_transcode_ready"},
		"end transcode":      {s.sql.end[1], 7, "tasks_pkey"},
		"lapse transcode":    {s.sql.lapse[1], 1, "tasks_held"},
		"survey":             {s.sql.survey, 1, "tasks_held"},
		"find held claims":   {s.sql.held, 1, "tasks_held"},
		"find lost claims":   {s.sql.lost, 3, "tasks_pkey"},
		"get":                {s.sql.get, 1, "tasks_pkey"},
	} {
		plan := explain(t, conn, c.sql, nulls(c.args))
		if !strings.Contains(plan, c.index) || strings.Contains(plan, "Seq Scan on tasks") {
			t.Errorf("%s does not use %s:\n%s", name, c.index, plan)
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
