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
	db                              store.DB
	graph                           store.Graph
	stats, overriddenBy, latency    string
	parts                           string
	deadGroups, deadList, deadCount map[bool]string // by whether the tasks are given
	deadMatching                    string
}

// New returns a Reader. It does not use the database.
func New(db store.DB, g store.Graph) *Reader {
	return &Reader{
		db: db, graph: g, parts: g.SQL(partsSQL, nil),
		stats: g.SQL(statsSQL, MaxCount), overriddenBy: g.SQL(overriddenBySQL, nil), latency: g.SQL(latencySQL, nil),
		deadGroups: fillDead(g, deadGroupsSQL), deadList: fillDead(g, deadListSQL), deadCount: fillDead(g, deadCountSQL),
		deadMatching: g.SQL(deadMatchingSQL, nil),
	}
}

func (r *Reader) read(ctx context.Context, sql string, args []any, each func(pgx.Rows) error) error {
	return statement.Read(ctx, r.db, sql, args, each)
}

func (r *Reader) explain(act string, err error) error { return statement.Wrap(r.db, act, err) }

// MaxCount is the highest number that is counted exactly. A higher count of ready tasks is
// PostgreSQL's estimate, as old as its last vacuum or analyze; other counts end here.
const MaxCount = 10_000

// Stats are the unfinished tasks of a pipeline in a few numbers; see [MaxCount].
type Stats struct {
	// Running, Ready, Scheduled, Retrying and Dead count tasks as [store.StateFilter]
	// selects them.
	Running, Ready, Scheduled, Retrying, Dead int
	// Stages are in the pipeline's order.
	Stages []StageStats
}

// StageStats are those of one stage.
type StageStats struct {
	Stage          string
	Ready, Running int
	// OldestReady is how long the oldest ready task has been ready: since it was submitted,
	// became due or was retried, or since an attempt at the stage or at one it needs; 0 for
	// none. It is found among the next 200 tasks of each of the 50 lowest priorities, at
	// most 1,000 in all.
	OldestReady time.Duration
}

// Oldest is the stage with the task that has been ready the longest; its name is empty for
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

// statsSQL returns a row for the pipeline and one per stage. Each count and search reads an
// index, up to a limit.
const statsSQL = `
/* stats */
with running as materialized (
  select {{range $i, $s := .Stages}}{{if $i}}, {{end}}t.{{.Name}}_status in ('inprogress'
          {{- if .Divides}}, 'divided'{{end}}) as {{.Name}}_running{{end}}
    from {{.Tasks}} t where {{.IsWorkedOn "t."}} limit {{.With}}
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
       (select count(*) from (
        select from {{.Tasks}} t where ({{.Any "t." "dead"}}) and t.overridden_by is null limit {{.With}}) as few),
       0::bigint, 0::float8
{{- range $i, $s := .Stages}}
union all
select {{$i}}, (select count(*) from (select from {{$.Tasks}} t where {{.Ready "t."}} limit {{$.With}}) as few),
       (select count(*) from running where {{.Name}}_running), 0, 0, 0,
       coalesce((select greatest(reltuples, 0)::bigint from pg_class
                  where oid = to_regclass('{{$.Tasks}}_{{.Name}}_ready')), 0),
       coalesce(extract(epoch from now() - (
         with recursive levels (priority) as (
           (select priority from {{$.Tasks}} t where {{.Ready "t."}} order by priority, id desc limit 1)
           union all
           select (select t.priority from {{$.Tasks}} t where {{.Ready "t."}} and t.priority > l.priority
                    order by t.priority, t.id desc limit 1)
             from levels l where l.priority is not null
         )
         select min(since.at)
           from (select next.*
                   from (select priority from levels where priority is not null limit 50) as l
                  cross join lateral (select t.id, t.created_at, t.ready_at from {{$.Tasks}} t
                                       where {{.Ready "t."}} and t.priority = l.priority
                                       order by t.id limit 200) as next
                  limit 1000) as t
          cross join lateral (select greatest(t.created_at, t.ready_at, max(coalesce(a.retry_at, a.finished_at))) as at
                                from {{$.Attempts}} a
                               where a.task_id = t.id
                                 and a.stage in ('{{.Name}}'{{range .Needs}}, '{{.}}'{{end}})) as since)), 0)::float8
{{- end}}
 order by stage`

// Stats counts the unfinished tasks.
func (r *Reader) Stats(ctx context.Context) (out Stats, err error) {
	var stage, ready, running, scheduled, retrying, dead, estimate int
	var age float64
	names := r.graph.Stages()
	err = r.read(ctx, r.stats, nil, func(rows pgx.Rows) error {
		columns := []any{&stage, &ready, &running, &scheduled, &retrying, &dead, &estimate, &age}
		_, err := pgx.ForEachRow(rows, columns, func() error {
			ready = countOrEstimate(ready, estimate)
			if stage < 0 {
				out.Ready, out.Running, out.Scheduled = min(ready, MaxCount), running, scheduled
				out.Retrying, out.Dead = min(retrying, MaxCount), dead
				return nil
			}
			out.Ready = max(out.Ready, ready)
			out.Stages = append(out.Stages, StageStats{
				Stage: names[stage], Ready: ready, Running: running, OldestReady: seconds(max(age, 0)),
			})
			return nil
		})
		return err
	})
	return out, r.explain("read stats", err)
}

// countOrEstimate returns the count, or the estimate where the count reached its limit.
func countOrEstimate(counted, estimate int) int {
	if counted < MaxCount {
		return counted
	}
	return max(counted, estimate)
}

const overriddenBySQL = `
/* find overridden tasks */
select id from {{.Tasks}} where overridden_by = $1 order by id desc limit 100`

// OverriddenBy lists the newest hundred tasks that a task overrides.
func (r *Reader) OverriddenBy(ctx context.Context, task store.ID) (ids []store.ID, err error) {
	err = r.read(ctx, r.overriddenBy, []any{task}, func(rows pgx.Rows) (err error) {
		ids, err = pgx.CollectRows(rows, pgx.RowTo[store.ID])
		return err
	})
	return ids, r.explain("find overridden tasks", err)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
