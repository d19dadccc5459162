package engine

import (
	"math/bits"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

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
		`insert into tasks (source, user_id, ingest_status, transcode_status, metadata_status, assemble_status, publish_status)
		 select n::text, 'u' || n % 3, 'completed', 'completed', 'completed', 'completed', 'completed' from generate_series(1, 100000) as n`,
		`insert into tasks (source, user_id) select n::text, 'u' || n % 3 from generate_series(1, 500) as n`,
		`insert into tasks (source, ingest_run_at) select n::text, now() + interval '1 day' from generate_series(1, 5000)
		 as n`,
		`analyze`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	useExchangeSettings(t, conn, e)
	for i, form := range e.forms {
		plan := plantest.Explain(t, conn, e.sql.complete[i], plantest.Nulls(formArgs(form)))
		indexes := []string{"tasks_pkey", "workers_pkey"}
		for next, name := range e.stages {
			if form.Next&(1<<next) != 0 {
				indexes = append(indexes, "tasks_"+name+"_ready", "tasks_"+name+"_users")
			}
		}
		for _, index := range indexes {
			if !strings.Contains(plan, index) || strings.Contains(plan, "Seq Scan on tasks") {
				t.Errorf("complete %s does not use %s:\n%s", form.Name(), index, plan)
			}
		}
	}
	for name, c := range map[string]struct {
		sql   string
		args  int
		index string
	}{
		"claim ingest":      {e.sql.claim[0], 3, "tasks_ingest_ready"},
		"claim assemble":    {e.sql.claim[3], 3, "tasks_assemble_ready"},
		"claim after":       {e.sql.claimAfter[0], 5, "tasks_ingest_ready"},
		"claim aged":        {e.sql.claimAged[1], 3, "tasks_pkey"},
		"claim fair":        {e.sql.claimFair[0], 3, "tasks_ingest_users"},
		"claim fair after":  {e.sql.claimFairAfter[0], 5, "tasks_ingest_users"},
		"claim limited":     {e.sql.claimLimited[0], 4, "tasks_ingest_users"},
		"claim continued":   {e.sql.claimContinued[1], 3, "tasks_transcode_ready"},
		"aged":              {e.sql.aged[1], 3, "tasks_transcode_ready"},
		"find ready ingest": {e.sql.ready[0], 2, "tasks_ingest_ready"},
		"find placed":       {e.sql.ready[1], 2, "tasks_placed"},
		"promote ingest":    {e.sql.promote[0], 0, "tasks_ingest_waiting"},
		"fail transcode":    {e.sql.fail[1], 7, "tasks_pkey"},
		"expire transcode":  {e.sql.expireClaims[1], 1, "tasks_held"},
		"sweep scan":        {e.sql.sweepScan, 2, "tasks_held"},
		"find held claims":  {e.sql.findHeld, 2, "tasks_held"},
		"find lost claims":  {e.sql.findLost, 3, "tasks_pkey"},
	} {
		plan := plantest.Explain(t, conn, c.sql, plantest.Nulls(c.args))
		if !strings.Contains(plan, c.index) || strings.Contains(plan, "Seq Scan on tasks") || strings.Contains(plan, "workers_alive") {
			t.Errorf("%s does not use %s:\n%s", name, c.index, plan)
		}
		if strings.Contains(plan, "tasks_user ") {
			t.Errorf("%s reads finished tasks of users:\n%s", name, plan)
		}
	}
}

// formArgs is how many parameters a form has.
func formArgs(f completeForm) int {
	switch {
	case f.Ranked:
		return f.Param(6)
	case f.Single:
		return f.Param(bits.OnesCount(uint(f.Reported)) - 1)
	}
	return f.Param(3)
}

// useExchangeSettings sets what an exchange does, for the session.
func useExchangeSettings(t *testing.T, conn *pgxpool.Conn, e *Engine) {
	t.Helper()
	settings := strings.NewReplacer("true", "false", "$1", "false", "$2", "'exchange'", "$3", "null", "$4",
		"'2s'").Replace(e.sql.exchangeSettings)
	if _, err := conn.Exec(t.Context(), settings); err != nil {
		t.Fatal(err)
	}
}

// newDividing returns the Engine of a pipeline with a stage that divides, and a connection to its database.
func newDividing(t *testing.T) (*Engine, *pgxpool.Conn) {
	t.Helper()
	g, err := store.NewGraph("film", store.Node{Name: "encode", Divides: true}, store.Node{Name: "publish", Needs: []string{"encode"}})
	if err != nil {
		t.Fatal(err)
	}
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
	e := New(pool, g)
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	return e, conn
}

func TestPlans_UseIndexesAmongManyParts(t *testing.T) {
	t.Parallel()
	e, conn := newDividing(t)
	for _, sql := range []string{
		`alter table film_tasks disable trigger user`,
		`insert into film_tasks (source, encode_status, publish_status, encode_open_parts)
		 select n::text, 'completed', 'completed', 0 from generate_series(1, 1000) as n`,
		`insert into film_parts (task_id, stage, part, priority, turn, status)
		 select id, 'encode', n, 0, n, 'completed' from film_tasks cross join generate_series(1, 100) as n`,
		`insert into film_tasks (source, encode_status, encode_open_parts)
		 select n::text, 'divided', 200 from generate_series(1, 50) as n`,
		`insert into film_parts (task_id, stage, part, priority, turn, run_at)
		 select id, 'encode', n, 0, n, case when n % 10 = 0 then now() + interval '1 day' end
		   from film_tasks cross join generate_series(1, 200) as n where encode_status = 'divided'`,
		`analyze`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	useExchangeSettings(t, conn, e)
	checkPartPlans(t, conn, e, "many")
}

// A connection keeps the plans that it made when the tables were new.
func TestPlans_FindPartsByKeyInNewTables(t *testing.T) {
	t.Parallel()
	e, conn := newDividing(t)
	useExchangeSettings(t, conn, e)
	checkPartPlans(t, conn, e, "no")
}

// checkPartPlans checks that the statements about parts use indexes, and find single parts by their key.
func checkPartPlans(t *testing.T, conn *pgxpool.Conn, e *Engine, count string) {
	t.Helper()
	const parts = 2 // the queue
	byKey := "Index Cond: ((task_id = "
	for name, c := range map[string]struct {
		sql  string
		args int
		want []string
	}{
		"claim":           {e.sql.claimParts[0], 3, []string{"film_parts_encode_ready"}},
		"claim aged":      {e.sql.claimAged[parts], 3, []string{"film_parts_pkey", byKey}},
		"aged":            {e.sql.aged[parts], 3, []string{"film_parts_encode_ready", "film_parts_pkey", byKey}},
		"find ready":      {e.sql.ready[parts], 2, []string{"film_parts_encode_ready", "film_parts_encode_waiting"}},
		"promote":         {e.sql.promote[parts], 0, []string{"film_parts_encode_waiting"}},
		"divide":          {e.sql.divide[0], 9, []string{"film_tasks_pkey", "film_parts_encode_ready", byKey}},
		"complete":        {e.sql.completeParts[0], 5, []string{"film_tasks_pkey", "film_parts_pkey", byKey}},
		"fail":            {e.sql.fail[parts], 8, []string{"film_tasks_pkey", "film_parts_pkey", byKey}},
		"expire":          {e.sql.expireClaims[parts], 1, []string{"film_parts_held", "film_parts_pkey", byKey}},
		"sweep scan":      {e.sql.sweepScan, 2, []string{"film_parts_held", "film_parts_encode_ready", "film_parts_encode_waiting"}},
		"find held":       {e.sql.findHeld, 2, []string{"film_parts_held"}},
		"find lost parts": {e.sql.findLostParts, 4, []string{"film_parts_pkey", byKey}},
	} {
		name += " with " + count + " parts"
		plan := plantest.WantIndexes(t, conn, name, c.sql, plantest.Nulls(c.args))
		if strings.Contains(plan, "Index Cond: (stage = ") {
			t.Errorf("%s reads all parts of a stage:\n%s", name, plan)
		}
		for _, want := range c.want {
			if !strings.Contains(plan, want) {
				t.Errorf("%s does not use %s:\n%s", name, want, plan)
			}
		}
	}
}
