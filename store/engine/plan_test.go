package engine

import (
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/plantest"
	"github.com/cuelight/cuelight/store"
)

// A statement that cannot use its partial index is quick on a small table, and reads all
// of a large one. So the test checks the plans with many finished tasks, and with the
// settings of an exchange: generic plans, without the parameters.
func TestPlans_UseIndexesAmongManyFinishedTasks(t *testing.T) {
	t.Parallel()
	g := store.Video()
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
	e := New(pool, g)
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
		`insert into tasks (source, ingest_run_at) select n::text, now() + interval '1 day' from generate_series(1, 5000)
		 as n`,
		`analyze`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	settings := strings.NewReplacer("true", "false", "$1", "false", "$2", "'exchange'", "$3", "null", "$4",
		"'2s'").Replace(e.sql.exchangeSettings)
	if _, err := conn.Exec(t.Context(), settings); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		sql   string
		args  int
		index string
	}{
		"claim ingest":          {e.sql.claim[0], 3, "tasks_ingest_ready"},
		"claim assemble":        {e.sql.claim[3], 3, "tasks_assemble_ready"},
		"claim after":           {e.sql.claimAfter[0], 5, "tasks_ingest_ready"},
		"claim aged":            {e.sql.claimAged[1], 3, "tasks_pkey"},
		"claim continued":       {e.sql.claimContinued[1], 3, "tasks_transcode_ready"},
		"aged":                  {e.sql.aged[1], 3, "tasks_transcode_ready"},
		"find ready ingest":     {e.sql.ready[0], 2, "tasks_ingest_ready"},
		"find placed":           {e.sql.ready[1], 2, "tasks_placed"},
		"promote ingest":        {e.sql.promote[0], 0, "tasks_ingest_waiting"},
		"complete":              {e.sql.complete, 11, "tasks_pkey"},
		"complete and continue": {e.sql.complete, 11, "tasks_transcode_ready"},
		"complete, ranked":      {e.sql.completeRanked, 14, "tasks_transcode_ready"},
		"fail transcode":        {e.sql.fail[1], 7, "tasks_pkey"},
		"expire transcode":      {e.sql.expireClaims[1], 1, "tasks_held"},
		"sweep scan":            {e.sql.sweepScan, 2, "tasks_held"},
		"find held claims":      {e.sql.findHeld, 2, "tasks_held"},
		"find lost claims":      {e.sql.findLost, 3, "tasks_pkey"},
	} {
		plan := plantest.Explain(t, conn, c.sql, plantest.Nulls(c.args))
		if !strings.Contains(plan, c.index) || strings.Contains(plan, "Seq Scan on tasks") {
			t.Errorf("%s does not use %s:\n%s", name, c.index, plan)
		}
	}
}
