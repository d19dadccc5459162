package cuelight_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/bench/system"
	"github.com/cuelight/cuelight/bench/system/cuelight"
	"github.com/cuelight/cuelight/internal/pgtest"
)

// The columns that are equal for all tasks and attempts of a run without failures.
const (
	tasksSQL   = `select distinct to_jsonb(t) - '{id,created_at,updated_at,turn,source}'::text[] from tasks t`
	historySQL = `
select distinct to_jsonb(a) - '{task_id,token,worker_id,started_at,finished_at,event_id}'::text[]
       || jsonb_build_object('worker', w.id is not null, 'event', a.event_id is not null, 'in order', a.started_at <= a.finished_at
         and t.created_at <= a.started_at)
  from attempts a
  left join tasks t on t.id = a.task_id
  left join workers w on w.id = a.worker_id`
)

func TestAddFinishedTasks_MatchesTasksOfARun(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema{})
	url := pool.Config().ConnString()
	must(t, cuelight.Local.SetUp(t.Context(), url))
	var d recorder
	c := start(t, url, system.Options{Slots: 5, Observe: d.observe})
	must(t, c.SubmitAll(t.Context(), 0, 20))
	d.waitFor(t, system.Publish, 20)
	must(t, c.Stop(t.Context()))
	tasks, history := query(t, pool, tasksSQL), query(t, pool, historySQL)
	if len(tasks) != 1 || len(history) != len(system.Stages) {
		t.Fatalf("a run leaves\n%v\n%v", tasks, history)
	}

	const n = 1000
	must(t, cuelight.AddFinishedTasks(t.Context(), url, n))
	if more := query(t, pool, tasksSQL); len(more) != 1 {
		t.Errorf("tasks are\n%v\nwant\n%v", more, tasks)
	}
	if more := query(t, pool, historySQL); len(more) != len(system.Stages) {
		t.Errorf("the history is\n%v\nwant\n%v", more, history)
	}
	var count, attempts, older, unfinished int
	must(t, pool.QueryRow(t.Context(), `
select count(*), (select count(*) from attempts), count(*) filter (where id < $1::uuid),
       count(*) filter (where cuelight_video_status(t) <> 'completed')
  from tasks t`, firstID(t, pool)).Scan(&count, &attempts, &older, &unfinished))
	if count != n+20 || attempts != 5*count || older != n || unfinished != 0 {
		t.Errorf("%d tasks with %d attempts, %d of them older than the run, %d unfinished", count,
			attempts, older, unfinished)
	}
}

// firstID returns the id of the first task of the run.
func firstID(t *testing.T, pool *pgxpool.Pool) (id string) {
	t.Helper()
	must(t, pool.QueryRow(t.Context(),
		"select id::text from tasks where created_at > now() - interval '55 s' order by id limit 1").Scan(&id))
	return id
}

func query(t *testing.T, pool *pgxpool.Pool, sql string) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql)
	must(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	must(t, err)
	return all
}
