// Package report reads what operators need to see: counts per stage, dead tasks grouped by
// error, and latencies. The dashboard, the HTTP API and the metrics share it. All reads
// have a bounded cost, however many tasks there are.
package report

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/statement"
	"github.com/cuelight/cuelight/store"
)

// Reader reads reports about the tasks of one pipeline. It has no state of its own.
type Reader struct {
	db    store.DB
	graph store.Graph
}

// New returns a Reader. It does not use the database.
func New(db store.DB, g store.Graph) *Reader { return &Reader{db: db, graph: g} }

func (r *Reader) read(ctx context.Context, sql string, args []any, each func(pgx.Rows) error) error {
	return statement.Read(ctx, r.db, r.graph.SQL(sql), args, each)
}

func (r *Reader) explain(act string, err error) error { return statement.Wrap(r.db, act, err) }

// MaxCount is the highest number that is counted.
const MaxCount = 10_000

// Stats are the unfinished tasks of a pipeline in a few numbers; see [MaxCount].
type Stats struct {
	// Running, Ready, Scheduled, Retrying and Dead count tasks as [store.StateFilter]
	// selects them.
	Running, Ready, Scheduled, Retrying, Dead int
	// Stages are in the pipeline's order.
	Stages []StageStats
}

// StageStats counts the steps of a stage: the stage of each task, or its parts if it is divided.
type StageStats struct {
	Stage          string
	Ready, Running int
	Scheduled      int // wait for the time that their task was submitted for
	Retrying       int // wait for another time, after a failed attempt or a release
	Dead           int // tasks in which the stage is dead
	// OldestReady is how long the oldest ready step has been ready; 0 for none. It is found among those
	// that are counted and the next hundred of the lowest priority.
	OldestReady time.Duration
}

// Oldest is the stage with the step that has been ready the longest; its name is empty for
// none.
func (s Stats) Oldest() StageStats {
	var oldest StageStats
	for _, st := range s.Stages {
		if st.OldestReady > oldest.OldestReady {
			oldest = st
		}
	}
	return oldest
}

// statsSQL reads the steps of each queue by its index, and the dead tasks, each up to a limit. It returns how many
// steps of each stage, and how many tasks of the pipeline, are in each state. A step may have several states.
const statsSQL = `
/* stats */
with queues as materialized (
  select q.stage, p.parts, (select rank from {steps} s
                             where s.stage = q.stage and (s.part > 0) = p.parts and s.status = 'ready'
                             order by rank desc limit 1) as lowest
    from unnest($1::text[]) as q (stage) cross join (values (false), (true)) as p (parts)
), counted (stage, states, task_id, ready_at) as (
  select q.stage, case when s.attempts > 0 then '{ready,retried}' else '{ready}' end::text[], s.task_id, s.ready_at
    from queues q
   cross join lateral (
         select * from {steps} s
          where s.stage = q.stage and (s.part > 0) = q.parts and s.status = 'ready'
          order by s.rank, s.turn, s.task_id limit $2) as s
   union all
  select q.stage, '{lowest}', null, s.ready_at
    from queues q
   cross join lateral (
         select * from {steps} s
          where s.stage = q.stage and (s.part > 0) = q.parts and s.status = 'ready' and s.rank = q.lowest
          order by s.turn, s.task_id limit 100) as s
   union all
  select stage, case status when 'running' then '{running,busy}' else '{busy}' end::text[], task_id, null
    from (select * from {steps} where status in ('running', 'divided') limit $2) as s
   union all
  select s.stage, case when t.id is null then '{retrying,retried}' else '{scheduled}' end::text[], s.task_id, null
    from (select * from {steps} where status = 'waiting' order by run_at limit $2) as s
    left join lateral (
         select id from {tasks}
          where id = s.task_id and s.attempts = 0 and state = 'pending' and scheduled_at > now() offset 0) as t on true
   union all
  select x.stage, '{dead}', t.id, null
    from (select * from {tasks} where state = 'dead' and overridden_by is null limit $2) as t
   cross join lateral cuelight_{name}_stages(t::{tasks}) as x
   where x.status = 'dead'
)
select stage, state, count(*), count(distinct task_id),
       coalesce(extract(epoch from now() - min(ready_at)), 0)::float8
  from counted cross join unnest(states) as state
 group by grouping sets ((stage, state), (state))`

// StatsQuery returns the statement of [Reader.Stats], its arguments, and what reads its rows.
func StatsQuery(g store.Graph, out *Stats) (sql string, args []any, read func(pgx.Rows) error) {
	for _, name := range g.Stages() {
		out.Stages = append(out.Stages, StageStats{Stage: name})
	}
	return g.SQL(statsSQL), []any{g.Stages(), MaxCount}, func(rows pgx.Rows) error {
		var stage *string
		var state string
		var steps, tasks int
		var age float64
		_, err := pgx.ForEachRow(rows, []any{&stage, &state, &steps, &tasks, &age}, func() error {
			if stage == nil {
				out.set(state, min(tasks, MaxCount))
			} else if i, ok := g.Stage(*stage); ok {
				out.Stages[i].set(state, min(steps, MaxCount), seconds(max(age, 0)))
			}
			return nil
		})
		return err
	}
}

func (s *Stats) set(state string, tasks int) {
	switch state {
	case "busy":
		s.Running = tasks
	case "ready":
		s.Ready = tasks
	case "scheduled":
		s.Scheduled = tasks
	case "retried":
		s.Retrying = tasks
	case "dead":
		s.Dead = tasks
	}
}

func (s *StageStats) set(state string, steps int, age time.Duration) {
	switch state {
	case "ready":
		s.Ready = steps
	case "running":
		s.Running = steps
	case "scheduled":
		s.Scheduled = steps
	case "retrying":
		s.Retrying = steps
	case "dead":
		s.Dead = steps
	}
	s.OldestReady = max(s.OldestReady, age)
}

// Stats counts the unfinished tasks.
func (r *Reader) Stats(ctx context.Context) (out Stats, err error) {
	sql, args, read := StatsQuery(r.graph, &out)
	err = statement.Read(ctx, r.db, sql, args, read)
	return out, r.explain("read stats", err)
}

const overriddenBySQL = `
/* find overridden tasks */
select id from {tasks} where overridden_by = $1 order by id desc limit 100`

// OverriddenBy lists the newest hundred tasks that a task overrides.
func (r *Reader) OverriddenBy(ctx context.Context, task store.ID) (ids []store.ID, err error) {
	err = r.read(ctx, overriddenBySQL, []any{task}, func(rows pgx.Rows) (err error) {
		ids, err = pgx.CollectRows(rows, pgx.RowTo[store.ID])
		return err
	})
	return ids, r.explain("find overridden tasks", err)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
