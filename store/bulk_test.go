package store_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

const (
	insertFinished = `insert into tasks (source, ingest_status, transcode_status, metadata_status, assemble_status, publish_status)
	                  select 'old.mp4', 'completed', 'completed', 'completed', 'completed', 'completed' from generate_series(1, 10000)`
	claimByHand = `update tasks set ingest_status = 'inprogress', ingest_attempts = 1, ingest_token = gen_random_uuid(),
	                      ingest_locked_at = now(), ingest_locked_by = '01a1fb35-c5c4-727e-8318-8e1283a4ffd4'`
	failByHand = `update tasks set ingest_status = 'failed', ingest_token = null, ingest_locked_at = null, ingest_locked_by = null`
)

// The triggers are given as much time as would be enough for ten times the statement;
// to plan a query for each row takes a hundred times as much, and more.
func TestTriggersTakeManyRowsAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`insert into tasks (source) select 'new.mp4' from generate_series(1, 10000)`)
	for _, test := range []struct{ name, madeBy, sql string }{
		{"import", "", insertFinished},
		{"priority", "", `update tasks set priority = 1`},
		{"claim by hand", "", claimByHand + ` where source = 'new.mp4'`},
		{"failed attempts of an exchange", "exchange", failByHand + ` where source = 'new.mp4'`},
		{"claim of what failed", "", claimByHand + ` where source = 'new.mp4'`},
		{"lapsed claims of a sweep", "sweep", failByHand + ` where source = 'new.mp4'`},
		{"cancel", "", `update tasks set ingest_status = 'cancelled', transcode_status = 'cancelled', metadata_status = 'cancelled',
		                assemble_status = 'cancelled', publish_status = 'cancelled' where source = 'new.mp4'`},
	} {
		var plans []struct {
			Time     float64 `json:"Execution Time"`
			Triggers []struct {
				Name  string  `json:"Trigger Name"`
				Time  float64 `json:"Time"`
				Calls float64 `json:"Calls"`
			}
		}
		must(t, pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `select set_config('cuelight.origin', $1, true)`, test.madeBy); err != nil {
				return err
			}
			var out []byte
			if err := tx.QueryRow(t.Context(), `explain (analyze, format json) `+test.sql).Scan(&out); err != nil {
				return err
			}
			return json.Unmarshal(out, &plans)
		}))
		rows, calls := 10000.0, 0.0
		for _, trigger := range plans[0].Triggers {
			if !strings.HasPrefix(trigger.Name, "tasks_") {
				continue // a foreign key's
			}
			calls += trigger.Calls
			if rest := plans[0].Time - trigger.Time; trigger.Time > 10*rest {
				t.Errorf("%s: %s takes %.4f ms of each row, and the statement without it %.4f", test.name, trigger.Name, trigger.Time/rows, rest/rows)
			}
		}
		if calls != 1 {
			t.Errorf("%s: %v calls of triggers, want 1", test.name, calls)
		}
	}
}

// A statement that changes many tasks makes few rows in the outbox.
func TestManyTasksChangedAtOnceTakeFewRows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := b.number(`select count(*) from outbox`)
	b.exec(insertFinished)
	b.exec(`update tasks set assemble_status = 'pending', publish_status = 'pending'`)
	b.exec(`update tasks set assemble_status = 'cancelled', publish_status = 'cancelled'`)
	if n := b.number(`select count(*) from outbox`) - before; n != 9*10 { // a row for 1,024 tasks
		t.Errorf("%d rows, want 90", n)
	}
	if n := b.number(`select count(*) from events`); n != 9*10000 {
		t.Errorf("%d events, want 90,000", n)
	}
}

// fates are updates that do all that can be told of, alone and together.
var fates = []string{
	claimByHand,
	`update tasks set ingest_status = 'completed', ingest_token = null, ingest_locked_at = null, ingest_locked_by = null, transcode_status = 'dead'`,
	`update tasks set transcode_status = 'pending', metadata_status = 'failed', metadata_run_at = '2100-01-01'`,
	`update tasks set transcode_status = 'inprogress', transcode_token = gen_random_uuid(), transcode_locked_at = now(),
	        transcode_locked_by = '01a1fb35-c5c4-727e-8318-8e1283a4ffd4', metadata_run_at = null, metadata_status = 'cancelled'`,
	`update tasks set transcode_status = 'pending', transcode_token = null, transcode_locked_at = null, transcode_locked_by = null,
	        metadata_status = 'completed'`,
	`update tasks set transcode_status = 'completed', assemble_status = 'completed', publish_status = 'completed'`,
	`update tasks set ingest_status = 'pending', transcode_status = 'pending', metadata_status = 'pending', assemble_status = 'pending',
	        publish_status = 'pending'`,
	`update tasks set ingest_status = 'cancelled', transcode_status = 'cancelled', metadata_status = 'cancelled', assemble_status = 'cancelled',
	        publish_status = 'cancelled', overridden_by = (select id from tasks where source = 'new.mp4')`,
}

// The events of a task do not depend on how many others the statement changed.
func TestTaskIsToldTheSameChangedAloneAndAmongOthers(t *testing.T) {
	t.Parallel()
	alone, among := setup(t), setup(t)
	const others = 1500 // more than a row of the outbox has
	var want []string
	for _, b := range []bundle{alone, among} {
		b.submission(store.Submission{Source: "new.mp4"})
		id := b.submission(store.Submission{Source: "one.mp4"})
		if b == among {
			b.exec(`insert into tasks (source) select 'many.mp4' from generate_series(1, $1)`, others)
		}
		for _, sql := range fates {
			b.exec(sql + ` where source <> 'new.mp4'`)
		}
		events, err := b.Events(t.Context(), store.EventQuery{Task: id})
		must(t, err)
		var words []string
		for _, e := range events {
			var data map[string]any
			if len(e.Data) > 0 {
				must(t, json.Unmarshal(e.Data, &data))
			}
			words = append(words, fmt.Sprintln(e.Type, e.Stage, e.Attempt, !e.Worker.IsZero(), data["stages"], data["overridden_by"] != nil, data["run_at"] != nil))
		}
		if b == alone {
			want = words
		} else if !slices.Equal(words, want) {
			t.Errorf("among others:\n%v\nalone:\n%v", words, want)
		}
		if n := b.number(fmt.Sprintf(`select count(*) from attempts where outcome = 'cancelled' and task_id = '%s'`, id)); n != 1 {
			t.Errorf("%d claims that were taken by hand are in the history, want 1", n)
		}
	}
	if len(want) != 17 {
		t.Errorf("%d events:\n%v", len(want), want)
	}
	if n := among.number(`select count(*) from events where type <> 'worker_started'`); n != (others+1)*len(want)+1 {
		t.Errorf("%d events are told of %d tasks", n, others+1)
	}
}

// Each kind of statement has its rows told once.
func TestEveryKindOfStatementIsTold(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sql  string
		want []string
	}{
		"an update of the ids": {
			`update tasks set id = case id when '01a1fb37-144d-7bf7-bcdd-ebca83785401' then '01a1fb37-144d-7bf7-bcdd-ebca83785499'::uuid
			                               else '01a1fb37-144d-7bf7-bcdd-ebca83785498' end,
			        ingest_status = case id when '01a1fb37-144d-7bf7-bcdd-ebca83785401' then 'dead'::cuelight_status else 'completed' end`,
			[]string{"98 stage_completed ingest", "99 dead ingest"},
		},
		"a submission that becomes an update": {
			`insert into tasks (id, source) values ('01a1fb37-144d-7bf7-bcdd-ebca83785401', 'c'), ('01a1fb37-144d-7bf7-bcdd-ebca83785403', 'c')
			 on conflict (id) do update set ingest_status = 'dead'`,
			[]string{"01 dead ingest", "03 submitted"},
		},
		"merge": {
			`merge into tasks using (values ('first'), ('third')) as given (request) on request_id = request
			 when matched then update set ingest_status = 'dead'
			 when not matched then insert (id, source) values ('01a1fb37-144d-7bf7-bcdd-ebca83785403', 'c')`,
			[]string{"01 dead ingest", "03 submitted"},
		},
		"two updates in one": {
			`with one as (update tasks set ingest_status = 'dead' where request_id = 'first')
			 update tasks set ingest_status = 'completed' where request_id is null`,
			[]string{"01 dead ingest", "02 stage_completed ingest"},
		},
		"an update undone to a savepoint": {
			`begin; savepoint here; update tasks set ingest_status = 'dead'; rollback to here;
			 update tasks set ingest_status = 'completed' where request_id = 'first'; commit`,
			[]string{"01 stage_completed ingest"},
		},
		"an update of nothing": {`update tasks set ingest_status = 'dead' where false`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			if name == "merge" && b.number(`select current_setting('server_version_num')::int`) < 150000 {
				t.Skip("there is no merge before PostgreSQL 15")
			}
			b.exec(`insert into tasks (id, source, request_id) values
			        ('01a1fb37-144d-7bf7-bcdd-ebca83785401', 'a', 'first'), ('01a1fb37-144d-7bf7-bcdd-ebca83785402', 'b', null)`)
			before, err := b.EventWatermark(t.Context())
			must(t, err)
			_, err = b.pool.Exec(t.Context(), test.sql, pgx.QueryExecModeSimpleProtocol)
			must(t, err)
			var got []string
			for _, e := range b.events(before) {
				id := e.Task.String()
				got = append(got, strings.TrimSpace(id[len(id)-2:]+" "+string(e.Type)+" "+e.Stage))
			}
			slices.Sort(got)
			if !slices.Equal(got, test.want) {
				t.Errorf("told is %q, want %q", got, test.want)
			}
		})
	}
}

// A statement that takes long hides nothing that happens meanwhile: the ids of its
// events are drawn when it is through.
func TestLongStatementDoesNotHoldUpReaders(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`insert into tasks (source) select 'many.mp4' from generate_series(1, 10)`)
	other, err := b.pool.Acquire(t.Context())
	must(t, err)
	defer other.Release()
	gate := func(lock string) {
		_, err := other.Exec(t.Context(), `select `+lock+`(4711)`)
		must(t, err)
	}
	gate("pg_advisory_lock")
	ended := make(chan error, 1)
	go func() { // its last row waits
		_, err := b.pool.Exec(t.Context(), `update tasks set priority = 1, ingest_status = 'dead'
			where source = 'many.mp4' and (id < (select id from tasks order by id desc limit 1) or pg_advisory_xact_lock_shared(4711) is not null)`)
		ended <- err
	}()
	for b.number(`select count(*) from pg_locks where locktype = 'advisory' and objid = 4711 and not granted`) == 0 {
		if len(ended) > 0 {
			t.Fatal("the statement did not wait: ", <-ended)
		}
	}
	before, err := b.EventWatermark(t.Context())
	must(t, err)
	b.submit()
	wantTold(t, b.events(before), "submitted")
	gate("pg_advisory_unlock")
	must(t, <-ended)
	if events := b.events(before); len(events) != 11 {
		t.Errorf("afterwards %d events are told, want 11", len(events))
	}
}
