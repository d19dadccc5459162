package store_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
)

const insertFinished = `insert into tasks (source, ingest_status, transcode_status, metadata_status, assemble_status, publish_status)
	                  select 'old.mp4', 'completed', 'completed', 'completed', 'completed', 'completed'
	                    from generate_series(1, 10000)`

// The triggers may take many times as long as the statement, because they open and close steps. If they planned a query for
// each row, they would take more than a hundred times as long.
func TestTriggers_RunOncePerStatement(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, test := range []struct{ name, exchange, sql string }{
		{"submissions", "", `insert into tasks (source) select 'new.mp4' from generate_series(1, 10000)`},
		{"import", "", insertFinished},
		{"priority", "", `update tasks set priority = 1`},
		{"dead", "", `update tasks set ingest_status = 'dead' where source = 'new.mp4'`},
		{"pending", "", `update tasks set ingest_status = 'pending' where source = 'new.mp4'`},
		{"completed", "", `update tasks set ingest_status = 'completed' where source = 'new.mp4'`},
		{"reports of an exchange", "reports", `update tasks set metadata_status = 'completed', transcode_status = 'completed'
		                                        where source = 'new.mp4'`},
		{
			"cancel", "",
			`update tasks set ingest_status = 'cancelled', transcode_status = 'cancelled', metadata_status = 'cancelled',
		                assemble_status = 'cancelled', publish_status = 'cancelled' where source = 'new.mp4'`,
		},
		{"delete", "", `delete from tasks where source = 'new.mp4'`},
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
			if _, err := tx.Exec(t.Context(), `select set_config('cuelight.exchange', $1, true)`, test.exchange); err != nil {
				return err
			}
			var out []byte
			if err := tx.QueryRow(t.Context(), `explain (analyze, format json) `+test.sql).Scan(&out); err != nil {
				return err
			}
			return json.Unmarshal(out, &plans)
		}))
		rows, calls := 10000.0, 0.0
		var names []string
		for _, trigger := range plans[0].Triggers {
			if !strings.HasPrefix(trigger.Name, "tasks_") || strings.HasPrefix(test.sql, "delete") && trigger.Name == "tasks_on_update" {
				continue // of a foreign key, which sets overridden_by
			}
			calls += trigger.Calls
			names = append(names, trigger.Name)
			if rest := plans[0].Time - trigger.Time; trigger.Time > 50*rest {
				t.Errorf("%s: %s takes %.4f ms per row, and the statement without it %.4f", test.name, trigger.Name,
					trigger.Time/rows, rest/rows)
			}
		}
		if calls != 1 {
			t.Errorf("%s: %v calls of triggers, want 1: %v", test.name, calls, names)
		}
	}
}

// A statement that changes many tasks writes few rows to the outbox.
func TestOutbox_StoresManyTasksPerRow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := b.queryInt(`select count(*) from outbox`)
	b.exec(insertFinished)
	b.exec(`update tasks set assemble_status = 'pending', publish_status = 'pending'`)
	b.exec(`update tasks set assemble_status = 'cancelled', publish_status = 'cancelled'`)
	b.exec(`delete from tasks`)
	if n := b.queryInt(`select count(*) from outbox`) - before; n > 5*2 { // a row for 10,000 tasks
		t.Errorf("%d rows, want at most 10", n)
	}
	if n := b.queryInt(`select count(*) from events`); n != 5*10000 {
		t.Errorf("%d events, want 50,000", n)
	}
}

// taskUpdates are updates that cause every event, one or several at a time.
var taskUpdates = []string{
	`update tasks set ingest_status = 'completed', transcode_status = 'dead'`,
	`update tasks set transcode_status = 'pending', metadata_status = 'failed'`,
	`update tasks set metadata_status = 'cancelled'`,
	`update tasks set transcode_status = 'completed', metadata_status = 'completed'`,
	`update tasks set assemble_status = 'completed', publish_status = 'completed'`,
	`update tasks set ingest_status = 'pending', transcode_status = 'pending', metadata_status = 'pending', assemble_status = 'pending',
	        publish_status = 'pending'`,
	`update tasks set ingest_status = 'cancelled', transcode_status = 'cancelled', metadata_status = 'cancelled',
	                  assemble_status = 'cancelled',
	        publish_status = 'cancelled', overridden_by = (select id from tasks where source = 'new.mp4')`,
}

// The events of a task do not depend on how many others the statement changed.
func TestTriggers_RecordTheSameEventsForOneAndManyTasks(t *testing.T) {
	t.Parallel()
	single, many := setup(t), setup(t)
	const others = 10500 // more than a row of the outbox has
	var want []string
	for _, b := range []bundle{single, many} {
		b.submitTask(store.Submission{Source: "new.mp4"})
		id := b.submitTask(store.Submission{Source: "one.mp4"})
		if b == many {
			b.exec(`insert into tasks (source) select 'many.mp4' from generate_series(1, $1)`, others)
		}
		for _, sql := range taskUpdates {
			b.exec(sql + ` where source <> 'new.mp4'`)
		}
		events, err := b.Events(t.Context(), store.EventQuery{Task: id})
		must(t, err)
		var texts []string
		for _, e := range events {
			var data map[string]any
			if len(e.Data) > 0 {
				must(t, json.Unmarshal(e.Data, &data))
			}
			texts = append(texts, fmt.Sprintln(e.Type, e.Stage, e.Attempt, !e.Worker.IsZero(), data["stages"],
				data["overridden_by"] != nil, data["run_at"] != nil))
		}
		if b == single {
			want = texts
		} else if !slices.Equal(texts, want) {
			t.Errorf("among %d tasks:\n%v\nalone:\n%v", others+1, texts, want)
		}
	}
	if len(want) != 13 {
		t.Errorf("%d events:\n%v", len(want), want)
	}
	if n := many.queryInt(`select count(*) from events where type <> 'worker_started'`); n != (others+1)*len(want)+1 {
		t.Errorf("%d events of %d tasks", n, others+1)
	}
}

// Every kind of statement records its rows once.
func TestTriggers_RecordEveryKindOfStatement(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		sql  string
		want []string
	}{
		"an update of the ids": { // of tasks without steps
			`begin; set local cuelight.exchange = 'claims'; delete from steps;
			 set local cuelight.exchange = ''; update tasks set id = case id
			 when '01a1fb37-144d-7bf7-bcdd-ebca83785401' then '01a1fb37-144d-7bf7-bcdd-ebca83785499'::uuid
			                               else '01a1fb37-144d-7bf7-bcdd-ebca83785498' end,
			        ingest_status = case id
			          when '01a1fb37-144d-7bf7-bcdd-ebca83785401' then 'dead'::cuelight_status else 'completed' end; commit`,
			[]string{"98 stage_completed ingest", "99 dead ingest"},
		},
		"a submission that becomes an update": {
			`insert into tasks (id, source) values ('01a1fb37-144d-7bf7-bcdd-ebca83785401', 'c'),
			 ('01a1fb37-144d-7bf7-bcdd-ebca83785403', 'c')
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
		"an update rolled back to a savepoint": {
			`begin; savepoint before; update tasks set ingest_status = 'dead'; rollback to before;
			 update tasks set ingest_status = 'completed' where request_id = 'first'; commit`,
			[]string{"01 stage_completed ingest"},
		},
		"an update of nothing": {`update tasks set ingest_status = 'dead' where false`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			if name == "merge" && b.queryInt(`select current_setting('server_version_num')::int`) < 150000 {
				t.Skip("merge is new in PostgreSQL 15")
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
				t.Errorf("events are %q, want %q", got, test.want)
			}
		})
	}
}

// A long statement does not delay the events of others: the ids of its own events are
// allocated at its end.
func TestEvents_AreNotDelayedByALongStatement(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`insert into tasks (source) select 'many.mp4' from generate_series(1, 10)`)
	other, err := b.pool.Acquire(t.Context())
	must(t, err)
	defer other.Release()
	callLockFunc := func(lock string) {
		_, err := other.Exec(t.Context(), `select `+lock+`(4711)`)
		must(t, err)
	}
	callLockFunc("pg_advisory_lock")
	ended := make(chan error, 1)
	go func() { // the statement waits at its last row
		_, err := b.pool.Exec(t.Context(), `update tasks set priority = 1, ingest_status = 'dead'
			where source = 'many.mp4' and (id < (select id from tasks order by id desc limit 1)
			  or pg_advisory_xact_lock_shared(4711) is not null)`)
		ended <- err
	}()
	waittest.Until(t, "the statement waits for the lock", func() bool {
		if len(ended) > 0 {
			t.Fatal("the statement did not wait: ", <-ended)
		}
		return b.queryInt(`select count(*) from pg_locks where locktype = 'advisory' and objid = 4711 and not granted`) > 0
	})
	before, err := b.EventWatermark(t.Context())
	must(t, err)
	b.submit()
	wantEvents(t, b.events(before), "submitted")
	callLockFunc("pg_advisory_unlock")
	must(t, <-ended)
	if events := b.events(before); len(events) != 11 {
		t.Errorf("afterwards there are %d events, want 11", len(events))
	}
}
