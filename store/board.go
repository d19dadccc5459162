package store

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// reads are the statements of what people look at: board, dead letters and
// latency.
type reads struct {
	pages                           map[pageKey]string
	strip, replaced                 string
	deadGroups, deadList, deadCount map[bool]string // by whether tasks are named
	deadMatching, latencyBuckets    string
}

func newReads(g Graph) reads {
	w := g.templateData()
	r := reads{
		pages: newPages(w), strip: g.SQL(statsSQL, CountAtMost), replaced: fill(replacedSQL, w),
		deadGroups: fillDead(deadGroupsSQL, w), deadList: fillDead(deadListSQL, w),
		deadCount: fillDead(deadCountSQL, w), deadMatching: fillDead(deadMatchingSQL, w)[false],
		latencyBuckets: fill(latencySQL, w),
	}
	return r
}

// Only is a choice of tasks that has an index, so that it is found as quickly
// among millions of finished ones.
type StateFilter string

// The choices of a [BoardQuery]. A task may be in several.
const (
	StateRunning   StateFilter = "running"   // a stage is being worked on
	StateWaiting   StateFilter = "waiting"   // a stage could be worked on, if somebody had the time
	StateScheduled StateFilter = "scheduled" // it waits for the time it was submitted for: StatusScheduled
	StateRetrying  StateFilter = "retrying"  // a stage was tried in vain, or waits for another time, and will be tried again
	StateDead      StateFilter = "dead"      // a stage is dead, and no other task has replaced it
)

// BoardQuery chooses and orders the tasks of a board. Its zero value is the
// newest hundred.
type BoardQuery struct {
	Filter
	State  StateFilter
	Oldest bool // oldest first; After is then the one before the first
}

// Board reads tasks for a page of a board. The next page is that with After the
// last one's id. Where a condition has no index it looks at all tasks until it has
// found enough: see [Store.Page]. It returns [ErrNoStage].
func (s *Store) Board(ctx context.Context, q BoardQuery) ([]Task, error) {
	q.Limit = cmp.Or(max(q.Limit, 0), 100)
	var tasks []Task
	for {
		page, err := s.Page(ctx, q)
		tasks = append(tasks, page.Tasks...)
		if q.Limit -= len(page.Tasks); err != nil || q.Limit <= 0 || page.Next.IsZero() {
			return tasks, err
		}
		q.After = page.Next
	}
}

// CountAtMost is up to where is counted. Beyond it counts are at least that much:
// those of what is ready are then PostgreSQL's own estimate, as old as its last
// vacuum or analyze of the table, others are this number.
const CountAtMost = 10_000

// Strip is the state of a whole pipeline in a few numbers. Its cost does not
// depend on how many tasks there are; see [CountAtMost].
type Stats struct {
	// Running, Waiting, Scheduled, Retrying and Dead count tasks as [Only] chooses
	// them.
	Running, Waiting, Scheduled, Retrying, Dead int
	// Stages are the same by stage, in the pipeline's order.
	Stages []StageStats
}

// StageStrip is one stage of a [Strip].
type StageStats struct {
	Stage          string
	Ready, Running int
	// OldestReady is for how long the oldest of the tasks that are ready has
	// been so, since it was submitted, was due, was done again by hand, or since
	// an attempt at the stage or at what it needs; 0 where none is ready. Of each
	// of the 50 lowest priorities the 200 tasks that come next are looked at, and at
	// most 1,000 in all.
	OldestReady time.Duration
}

// Oldest is the stage that keeps a task waiting the longest; its name is empty
// where none does.
func (s Stats) Oldest() StageStats {
	var oldest StageStats
	for _, st := range s.Stages {
		if st.OldestReady > oldest.OldestReady {
			oldest = st
		}
	}
	return oldest
}

// strip: a row for all and one per stage. Each count and each search goes along the
// index of its condition, up to a bound. [Claim] has waited since the same moment.
const statsSQL = `
/* strip */
with running as materialized (
  select {{range $i, $s := .Stages}}{{if $i}}, {{end}}t.{{.Name}}_status = 'inprogress' as {{.Name}}_running{{end}}
    from {{.Tasks}} t where {{.Any "t." "inprogress"}} limit {{.With}}
)
select -1 as stage,
       (select count(*) from (
        {{- range $i, $s := .Stages}}{{if $i}} union
                              {{end}}(select id from {{$.Tasks}} t where {{.Ready "t."}} limit {{$.With}}){{end}}) as ready) as ready,
       (select count(*) from running),
       (select count(*) from (select from {{.Tasks}} t where {{.IsScheduled "t."}} limit {{.With}}) as few),
       (select count(*) from (
        {{- range $i, $retrying := .Retrying "t."}}{{if $i}} union all
                              {{end}}(select from {{$.Tasks}} t where {{$retrying}} limit {{$.With}}){{end}}) as retrying),
       (select count(*) from (select from {{.Tasks}} t where ({{.Any "t." "dead"}}) and t.overridden_by is null limit {{.With}}) as few),
       0::bigint, 0::float8
{{- range $i, $s := .Stages}}
union all
select {{$i}}, (select count(*) from (select from {{$.Tasks}} t where {{.Ready "t."}} limit {{$.With}}) as few), (select count(*) from running where {{.Name}}_running), 0, 0, 0,
       coalesce((select greatest(reltuples, 0)::bigint from pg_class where oid = to_regclass('{{$.Tasks}}_{{.Name}}_ready')), 0),
       coalesce(extract(epoch from now() - (
         with recursive levels (priority) as (
           (select priority from {{$.Tasks}} t where {{.Ready "t."}} order by priority, id desc limit 1)
           union all
           select (select t.priority from {{$.Tasks}} t where {{.Ready "t."}} and t.priority > l.priority order by t.priority, t.id desc limit 1)
             from levels l where l.priority is not null
         )
         select min(since.at)
           from (select next.*
                   from (select priority from levels where priority is not null limit 50) as l
                  cross join lateral (select t.id, t.created_at, t.ready_at from {{$.Tasks}} t where {{.Ready "t."}} and t.priority = l.priority order by t.id limit 200) as next
                  limit 1000) as t
          cross join lateral (select greatest(t.created_at, t.ready_at, max(coalesce(a.retry_at, a.finished_at))) as at
                                from {{$.Attempts}} a where a.task_id = t.id and a.stage in ('{{.Name}}'{{range .Needs}}, '{{.}}'{{end}})) as since)), 0)::float8
{{- end}}
 order by stage`

// Strip counts what is not finished. Its cost does not depend on how many tasks
// there are.
func (s *Store) Stats(ctx context.Context) (out Stats, err error) {
	var stage, ready, running, scheduled, retrying, dead, estimate int
	var age float64
	err = s.read(ctx, s.sql.reads.strip, nil, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&stage, &ready, &running, &scheduled, &retrying, &dead, &estimate, &age}, func() error {
			ready = atLeast(ready, estimate)
			if stage < 0 {
				out.Waiting, out.Running, out.Scheduled, out.Retrying, out.Dead = min(ready, CountAtMost), running, scheduled, min(retrying, CountAtMost), dead
				return nil
			}
			out.Waiting = max(out.Waiting, ready)
			out.Stages = append(out.Stages, StageStats{
				Stage: s.graph.nodes[stage].Name, Ready: ready, Running: running, OldestReady: seconds(max(age, 0)),
			})
			return nil
		})
		return err
	})
	return out, s.explain("strip", err)
}

// atLeast is what was counted, and where that had to end, what it was estimated as.
func atLeast(counted, estimate int) int {
	if counted < CountAtMost {
		return counted
	}
	return max(counted, estimate)
}

const replacedSQL = `
/* replaced tasks */
select id from {{.Tasks}} where overridden_by = $1 order by id desc limit 100`

// Replaced lists the tasks that a task has replaced, the newest hundred.
func (s *Store) Replaced(ctx context.Context, by ID) ([]ID, error) {
	var ids []ID
	err := s.read(ctx, s.sql.reads.replaced, []any{by}, func(rows pgx.Rows) (err error) {
		ids, err = pgx.CollectRows(rows, pgx.RowTo[ID])
		return err
	})
	return ids, s.explain("replaced tasks", err)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
