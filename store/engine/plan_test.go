package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/plantest"
	"github.com/cuelight/cuelight/store"
)

// setUpPlans returns the Engine of the video pipeline, and a connection with the settings of an exchange. The statements fill
// the tables before.
func setUpPlans(t *testing.T, statements ...string) (*Engine, *pgxpool.Conn) {
	t.Helper()
	g := store.Video()
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Release)
	for _, sql := range append(statements, `set jit = off; set plan_cache_mode = force_generic_plan; set enable_seqscan = off;
		set enable_bitmapscan = off; set enable_sort = off; set cuelight.exchange = 'claims'; set cuelight.limit_lock = 'true'`) {
		if _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	return New(pool, g), conn
}

var parameter = regexp.MustCompile(`\$(\d+)`)

// countParameters is how many parameters a statement has.
func countParameters(sql string) (n int) {
	for _, match := range parameter.FindAllStringSubmatch(sql, -1) {
		number, _ := strconv.Atoi(match[1])
		n = max(n, number)
	}
	return n
}

// A statement that cannot use its index is quick on a small table, and reads all of a large one. So the test checks the plans
// of all statements with many finished and some open tasks, and with the settings of an exchange: generic plans.
func TestPlans_UseIndexes(t *testing.T) {
	t.Parallel()
	for name, fill := range map[string][]string{
		// A connection keeps the plans that it made when the tables were new.
		"new tables": nil,
		"many rows": {
			`alter table tasks disable trigger user`,
			`insert into tasks (source, user_id, ingest_status, transcode_status, metadata_status, assemble_status, publish_status)
			 select n::text, 'u' || n % 3, 'completed', 'completed', 'completed', 'completed', 'completed' from generate_series(1, 100000) as n`,
			`insert into attempts (task_id, token, stage, attempt, started_at, outcome)
			 select id, cuelight_id(), 'ingest', 1, now(), 'completed' from tasks`,
			`insert into tasks (source, ingest_status, metadata_status, transcode_status)
			 select n::text, 'completed', 'completed', 'divided' from generate_series(1, 50) as n`,
			`insert into steps (task_id, stage, part, rank, turn, line, status, parts, open_parts)
			 select id, 'transcode', 0, 0, 0, 0, 'divided', 400, 200 from tasks where transcode_status = 'divided'`,
			`insert into steps (task_id, stage, part, rank, turn, line, status)
			 select id, 'transcode', n, 0, n, 1, case when n > 200 then 'completed' else 'ready' end::cuelight_step_status
			   from tasks cross join generate_series(1, 400) as n where transcode_status = 'divided'`,
			`alter table tasks enable trigger user`,
			`insert into tasks (source, user_id, priority) select n::text, 'u' || n % 3, n % 5 from generate_series(1, 5000) as n`,
			`insert into tasks (source, scheduled_at) select n::text, now() + interval '1 day' from generate_series(1, 5000) as n`,
			`insert into workers (name, host, pid, stopped_at) select 'a', 'a', 1, now() from generate_series(1, 5000)`,
			`insert into positions (stage, parts, rank, turn, task_id) select 'ingest', false, -1, 10, cuelight_id()`,
			`analyze`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, conn := setUpPlans(t, fill...)
			statements := reflect.ValueOf(e.sql)
			for i := range statements.NumField() {
				field, sql := statements.Type().Field(i).Name, statements.Field(i).String()
				plan := plantest.Explain(t, conn, sql, plantest.Nulls(countParameters(sql)))
				for _, table := range []string{"tasks", "steps", "attempts", "outbox", "workers"} {
					if strings.Contains(plan, "Seq Scan on "+table+" ") || strings.HasSuffix(plan, "Seq Scan on "+table) {
						t.Errorf("%s reads all of %s:\n%s", field, table, plan)
					}
				}
				if strings.Contains(plan, "tasks_user ") {
					t.Errorf("%s reads finished tasks of users:\n%s", field, plan)
				}
				for _, indexOfSteps := range []string{"claim", "look"} {
					if field == indexOfSteps && (!strings.Contains(plan, "steps_ready") || strings.Contains(plan, "Sort Key: s.rank")) {
						t.Errorf("%s does not read the first ready steps:\n%s", field, plan)
					}
				}
			}
		})
	}
}

// While another transaction holds a snapshot, vacuum removes no index entries of completed steps. Claims, looks and turns with a
// position must not read them, or each costs more the longer the snapshot is held. An analysis that finds few ready steps lets
// the planner believe that every index of these is small.
func TestPlans_ReadNoDeadEntriesBeforeTheirPositionUnderAHeldSnapshot(t *testing.T) {
	t.Parallel()
	for ready, entries := range map[int]int{0: 20_000, 3: 20_000, 50: 200_000} {
		t.Run(fmt.Sprintf("%d ready", ready), func(t *testing.T) {
			t.Parallel()
			checkReadsUnderHeldSnapshot(t, ready, entries)
		})
	}
}

func checkReadsUnderHeldSnapshot(t *testing.T, ready, entries int) {
	t.Helper()
	e, conn := setUpPlans(t,
		`alter table steps disable trigger user`,
		`insert into steps (task_id, stage, rank, turn, user_id) select cuelight_id(), 'ingest', 0, n, 'u' || n % 3
		   from generate_series(1, `+strconv.Itoa(entries)+`) as n`,
		`insert into steps (task_id, stage, part, line, rank, turn) select '00000000-0000-7000-8000-000000000001', 'transcode', n, 1, 0, n
		   from generate_series(1, `+strconv.Itoa(entries)+`) as n`,
	)
	tx, err := e.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck
	if _, err := tx.Exec(t.Context(), `set transaction isolation level repeatable read; select from tasks limit 1`,
		pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`delete from steps`,
		`alter table tasks disable trigger user`,
		`insert into tasks (source, user_id) select n::text, 'u' || n % 3 from generate_series(1, greatest(1, ` + strconv.Itoa(ready) + `)) as n`,
		`insert into steps (task_id, stage, rank, turn, user_id)
		 select id, 'ingest', 0, 300000 + row_number() over (order by id), user_id from tasks limit ` + strconv.Itoa(ready),
		`insert into steps (task_id, stage, part, line, rank, turn) select min(id::text)::uuid, 'transcode', n, 1, 0, 300000 + n
		   from tasks cross join generate_series(1, ` + strconv.Itoa(ready) + `) as n group by n`,
		`insert into steps (task_id, stage, rank, turn, user_id, status, run_at)
		 select cuelight_id(), (array['ingest', 'metadata', 'assemble', 'publish'])[1 + n % 4], 0, n, 'u' || n / 40, 'waiting',
		        now() + interval '1 day'
		   from generate_series(1, 100) as n`,
		`insert into positions (stage, parts, rank, turn, task_id)
		 select 'ingest', false, 0, 200000, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid
		  union all select 'transcode', true, 0, 200000, 'ffffffff-ffff-ffff-ffff-ffffffffffff'`,
		`vacuum analyze steps`,
	} {
		if _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	worker, err := e.RegisterWorker(t.Context(), store.Worker{Host: "test", PID: 1})
	if err != nil {
		t.Fatal(err)
	}
	stages := `'{ingest,transcode}'::text[], '{f,t}'::boolean[]`
	after := func(turn string) string {
		return `'{0,0}'::integer[], '{` + turn + `,` + turn + `}'::bigint[],
			'{ffffffff-ffff-ffff-ffff-ffffffffffff,ffffffff-ffff-ffff-ffff-ffffffffffff}'::uuid[], null::uuid[]`
	}
	const from = `, now() - interval '1 s'`
	quoted := `'` + worker.String() + `'::uuid, `
	claim := func(turn string) string {
		return quoted + stages + `, '{3,3}'::integer[], '{f,f}'::boolean[], ` + after(turn)
	}
	for name, c := range map[string]struct {
		sql, args string
		most      int // blocks; those of the catalogue count, too
	}{
		"claim":                {e.sql.claim, claim("200000"), 600},
		"look":                 {e.sql.look, quoted + stages + `, ` + after("200000") + from, 300},
		"turn of a stage":      {`select cuelight_video_next_turn($1, $2, $3)`, `0, 'u1', 0::smallint`, 600},
		"turn of another user": {`select cuelight_video_next_turn($1, $2, $3)`, `0, 'new', 0::smallint`, 600},
		"turn of a part":       {`select cuelight_video_next_turn($1, $2, $3)`, `0, '', 1::smallint`, 600},
		"line of a few parts":  {`select cuelight_video_line($1, $2, $3)`, `0, '', 4`, 600},
	} {
		if blocks := countBlocks(t, conn, c.sql, c.args); blocks > c.most {
			t.Errorf("%s reads %d blocks, the maximum is %d", name, blocks, c.most)
		}
	}
	// Otherwise the test would prove nothing.
	if blocks := countBlocks(t, conn, e.sql.look, quoted+stages+`, `+after("0")+from); blocks < entries/500 {
		t.Errorf("a look from the start reads %d blocks only", blocks)
	}
}

// countBlocks returns how many blocks a statement reads.
func countBlocks(t *testing.T, conn *pgxpool.Conn, sql, args string) int {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck
	exec := func(sql string) {
		if _, err := tx.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	exec("prepare counted as " + sql)
	defer func() {
		_, _ = conn.Exec(context.WithoutCancel(t.Context()), "deallocate all", pgx.QueryExecModeSimpleProtocol)
	}()
	var text []byte
	row := tx.QueryRow(t.Context(), "explain (analyze, buffers, format json) execute counted ("+args+")", pgx.QueryExecModeSimpleProtocol)
	if err := row.Scan(&text); err != nil {
		t.Fatal(err)
	}
	var plans []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal(text, &plans); err != nil {
		t.Fatal(err)
	}
	return plans[0].Plan.Hit + plans[0].Plan.Read
}
