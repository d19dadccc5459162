package store

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// reads are the statements of what people look at: board, dead letters and
// latency.
type reads struct {
	board                           map[boardKey]string
	strip, replaced                 string
	deadGroups, deadList, deadCount string
	deadMatching, wakeUp            string
	latencyBuckets                  string
}

func newReads(w words) reads {
	r := reads{
		board: make(map[boardKey]string), strip: fill(stripSQL, w), replaced: fill(replacedSQL, w),
		deadGroups: fill(deadGroupsSQL, w), deadList: fill(deadListSQL, w),
		deadCount: fill(deadCountSQL, w), deadMatching: fill(deadMatchingSQL, w),
		wakeUp: fill(wakeUpSQL, w), latencyBuckets: fill(latencySQL, w),
	}
	for _, only := range []Only{"", OnlyRunning, OnlyWaiting, OnlyRetrying, OnlyDead} {
		for _, oldest := range []bool{false, true} {
			r.board[boardKey{only, oldest}] = fill(boardSQL, struct {
				words
				Only   Only
				Oldest bool
			}{w, only, oldest})
		}
	}
	return r
}

type boardKey struct {
	only   Only
	oldest bool
}

// Only is a choice of tasks that has an index, so that it is found as quickly
// among millions of finished ones.
type Only string

// The choices of a [BoardQuery]. A task may be in several.
const (
	OnlyRunning  Only = "running"  // a stage is being worked on
	OnlyWaiting  Only = "waiting"  // a stage could be worked on, if somebody had the time
	OnlyRetrying Only = "retrying" // a stage waits for a time, mostly that of its next attempt
	OnlyDead     Only = "dead"     // a stage is dead
)

// BoardQuery chooses and orders the tasks of a board. Its zero value is the
// newest hundred.
type BoardQuery struct {
	Filter
	Only   Only
	Oldest bool // oldest first; After is then the one before the first
}

// board: what matches a filter. The conditions of Only are worded as those of the
// indexes. The page begins at an id that the primary key can look up.
const boardSQL = `
/* board */
select ` + taskColumns + `
  from {{.Tasks}} t
 where ` + matches + `
{{- if eq .Only "running"}}
   and ({{.Any "t." "inprogress"}})
{{- else if eq .Only "dead"}}
   and ({{.Any "t." "dead"}}) and t.overridden_by is null
{{- else if eq .Only "waiting"}}
   and ({{range $i, $s := .Stages}}{{if $i}}
        or {{end}}({{$s.Ready "t."}}){{end}})
{{- else if eq .Only "retrying"}}
   and ({{range $i, $s := .Stages}}{{if $i}} or {{end}}t.{{.Name}}_run_at is not null{{end}})
{{- end}}
{{- if .Oldest}}
   and t.id > coalesce($9::uuid, '00000000-0000-0000-0000-000000000000')
 order by t.id
{{- else}}
   and t.id < coalesce($9::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff')
 order by t.id desc
{{- end}}
 limit $10`

// Board reads tasks for a page of a board. The next page is that with After the
// last one's id. It returns [ErrNoStage].
func (s *Store) Board(ctx context.Context, q BoardQuery) ([]Task, error) {
	if q.Stage != "" {
		if _, ok := s.graph.Stage(q.Stage); !ok {
			return nil, fmt.Errorf("board: %w: %q", ErrNoStage, q.Stage)
		}
	}
	sql, ok := s.sql.reads.board[boardKey{q.Only, q.Oldest}]
	if !ok {
		return nil, fmt.Errorf("board: there is no choice %q", q.Only)
	}
	rows, err := s.db.Query(ctx, sql, append(q.args(s.graph), q.After, cmp.Or(max(q.Limit, 0), 100))...)
	if err != nil {
		return nil, s.explain("board", err)
	}
	tasks, err := pgx.CollectRows(rows, s.scanTask)
	return tasks, s.explain("board", err)
}

// Strip is the state of a whole pipeline in a few numbers. Nothing is counted beyond
// a hundred thousand: what it costs has a bound.
type Strip struct {
	// Running, Waiting, Retrying and Dead count tasks as [Only] chooses them.
	Running, Waiting, Retrying, Dead int
	// Stages are the same by stage, in the pipeline's order.
	Stages []StageStrip
}

// StageStrip is one stage of a [Strip].
type StageStrip struct {
	Stage          string
	Ready, Running int
	// OldestReady is for how long the oldest of the tasks that are ready has
	// been so, since it was submitted, was due, was done again by hand, or since
	// an attempt at the stage or at what it needs; 0 where none is ready. Of each
	// of the 50 lowest priorities the 200 tasks that come next are looked at.
	OldestReady time.Duration
}

// Oldest is the stage that keeps a task waiting the longest; its name is empty
// where none does.
func (s Strip) Oldest() StageStrip {
	var oldest StageStrip
	for _, st := range s.Stages {
		if st.OldestReady > oldest.OldestReady {
			oldest = st
		}
	}
	return oldest
}

// strip: a row for all and one per stage. Each count and each search goes along the
// index of its condition. [Claim] has waited since the same moment.
const stripSQL = `
/* strip */
with held as materialized (
  select {{range $i, $s := .Stages}}{{if $i}},
         {{end}}(t.{{.Name}}_status = 'inprogress') as {{.Name}}{{end}}
    from {{.Tasks}} t
   where {{.Any "t." "inprogress"}}
)
select -1 as stage,
       (select count(*) from (select from {{.Tasks}} t where {{range $i, $s := .Stages}}{{if $i}}
            or {{end}}({{$s.Ready "t."}}){{end}} limit 100000) as few),
       (select count(*) from held),
       (select count(*) from (select from {{.Tasks}} t where {{range $i, $s := .Stages}}{{if $i}} or {{end}}t.{{.Name}}_run_at is not null{{end}} limit 100000) as few),
       (select count(*) from (select from {{.Tasks}} t where ({{.Any "t." "dead"}}) and t.overridden_by is null limit 100000) as few),
       0::float8
{{- range $i, $s := .Stages}}
union all
select {{$i}}, (select count(*) from (select from {{$.Tasks}} t where {{.Ready "t."}} limit 100000) as few), (select count(*) from held where {{.Name}}), 0, 0,
       coalesce(extract(epoch from now() - (
         with recursive levels (priority) as (
           (select priority from {{$.Tasks}} t where {{.Ready "t."}} order by priority, id desc limit 1)
           union all
           select (select t.priority from {{$.Tasks}} t where {{.Ready "t."}} and t.priority > l.priority order by t.priority, t.id desc limit 1)
             from levels l where l.priority is not null
         )
         select min(since.at)
           from (select priority from levels where priority is not null limit 50) as l
          cross join lateral (select t.id, t.created_at, t.ready_at from {{$.Tasks}} t where {{.Ready "t."}} and t.priority = l.priority order by t.id limit 200) as t
          cross join lateral (select greatest(t.created_at, t.ready_at, max(coalesce(a.retry_at, a.finished_at))) as at
                                from {{$.Attempts}} a where a.task_id = t.id and a.stage in ('{{.Name}}'{{range .Needs}}, '{{.}}'{{end}})) as since)), 0)::float8
{{- end}}
 order by stage`

// Strip counts what is not finished. Its cost follows the number of those
// tasks, not that of all.
func (s *Store) Strip(ctx context.Context) (Strip, error) {
	rows, err := s.db.Query(ctx, s.sql.reads.strip)
	if err != nil {
		return Strip{}, s.explain("strip", err)
	}
	var out Strip
	var stage, ready, running, retrying, dead int
	var age float64
	_, err = pgx.ForEachRow(rows, []any{&stage, &ready, &running, &retrying, &dead, &age}, func() error {
		if stage < 0 {
			out.Waiting, out.Running, out.Retrying, out.Dead = ready, running, retrying, dead
			return nil
		}
		out.Stages = append(out.Stages, StageStrip{
			Stage: s.graph.byName[stage], Ready: ready, Running: running, OldestReady: seconds(max(age, 0)),
		})
		return nil
	})
	return out, s.explain("strip", err)
}

const replacedSQL = `
/* replaced tasks */
select id from {{.Tasks}} where overridden_by = $1 order by id desc limit 100`

// Replaced lists the tasks that a task has replaced, the newest hundred.
func (s *Store) Replaced(ctx context.Context, by ID) ([]ID, error) {
	rows, err := s.db.Query(ctx, s.sql.reads.replaced, by)
	if err != nil {
		return nil, s.explain("replaced tasks", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[ID])
	return ids, s.explain("replaced tasks", err)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
