package report

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Percentiles are the percentiles of N durations.
type Percentiles struct {
	N             int
	P50, P95, P99 time.Duration
}

// LatencyPoint describes the tasks submitted in one interval.
type LatencyPoint struct {
	At time.Time // start of the interval
	// Wait is the time from ready to claimed, of the first attempts of all stages.
	Wait Percentiles
	// Work is the duration of successful attempts, by stage in the pipeline's order.
	Work []Percentiles
}

// Latency is how long tasks waited and were worked on.
type Latency struct {
	// All is the whole span.
	All LatencyPoint
	// Points are ordered by time. An interval without tasks has none.
	Points []LatencyPoint
	Step   time.Duration // the interval
}

// LatencyQuery selects tasks by time of submission. Its zero value is the last hour in sixty
// intervals.
type LatencyQuery struct {
	Until  time.Time     // default now, by the database's clock
	Span   time.Duration // default an hour
	Points int           // 1 to 500; default 60
}

// The sample of an interval: so many slices with so many tasks each, which limits the cost.
const (
	latencySlices   = 8
	latencyPerSlice = 10
)

// latencySQL finds tasks by time with the primary key, because ids start with the time of the
// submission. It returns a row per interval and kind: a stage's number for its work, or -1 for the wait of all
// stages before their first attempts, since the stages they need were first completed, or, without needs, since the
// task was submitted or due. The interval is null for the whole span.
const latencySQL = `
/* latency */
with span as (
  select coalesce($1, now()) - make_interval(secs => $2) as since, make_interval(secs => $2 / $3) as step
), slices as (
  select since + step * (n::float8 / $4::int) as since, since + step * ((n + 1)::float8 / $4::int) as until
    from span cross join generate_series(0, $3::int * $4::int - 1) as n
), sample as materialized (
  select t.id, t.created_at, t.scheduled_at
    from slices
   cross join lateral (
         select id, created_at, scheduled_at from {tasks}
          where id >= (lpad(to_hex(floor(extract(epoch from slices.since) * 1000)::bigint), 12, '0')
                       || repeat('0', 20))::uuid
            and id < (lpad(to_hex(floor(extract(epoch from slices.until) * 1000)::bigint), 12, '0')
                       || repeat('0', 20))::uuid
          order by id limit $5) as t
), tried as materialized (
  select a.*, sample.created_at, sample.scheduled_at
    from sample cross join lateral (select * from {attempts} where task_id = sample.id offset 0) as a
), first as (
  select task_id, created_at, scheduled_at, stage, min(started_at) as started_at,
         min(finished_at) filter (where outcome = 'completed' and part = 0) as completed_at
    from tried group by 1, 2, 3, 4
), waited as (
  select f.created_at, f.started_at - coalesce(max(n.completed_at), greatest(f.created_at,
           case when f.scheduled_at <= f.started_at then f.scheduled_at end)) as time
    from first f
    left join unnest($7::text[], $8::text[]) as needs (stage, need) on needs.stage = f.stage
    left join first n on n.task_id = f.task_id and n.stage = needs.need
   group by f.task_id, f.created_at, f.scheduled_at, f.stage, f.started_at
), measured as (
  select -1 as kind, created_at, greatest(time, '0') as time from waited
   union all
  select array_position($6::text[], stage) - 1, created_at, finished_at - started_at
    from tried where outcome = 'completed'
)
select interval, kind, count(*), percentile_cont(array[0.5, 0.95, 0.99]) within group (order by seconds)
  from (select kind, extract(epoch from time)::float8 as seconds,
               floor(extract(epoch from created_at - span.since) / extract(epoch from span.step))::int as interval
          from measured cross join span) as numbered
 where kind is not null
 group by grouping sets ((interval, kind), (kind))
 order by interval nulls first, kind`

const latencyFromSQL = `
/* start of the span */
select coalesce($1, now()) - make_interval(secs => $2)`

var errSpan = errors.New("a span must be positive and have 1 to 500 points")

// Latency returns how long tasks waited and were worked on, over the time of their
// submission. It reads an even sample of the tasks.
func (r *Reader) Latency(ctx context.Context, q LatencyQuery) (Latency, error) {
	if q.Span == 0 {
		q.Span = time.Hour
	}
	if q.Points == 0 {
		q.Points = 60
	}
	if q.Span < 0 || q.Points < 1 || q.Points > 500 {
		return Latency{}, fmt.Errorf("latency: %w", errSpan)
	}
	var until *time.Time
	if !q.Until.IsZero() {
		until = &q.Until
	}
	out := Latency{Step: q.Span / time.Duration(q.Points), All: r.newPoint()}
	if err := r.db.QueryRow(ctx, latencyFromSQL, until, q.Span.Seconds()).Scan(&out.All.At); err != nil {
		return Latency{}, r.explain("latency", err)
	}
	end := out.All.At.Add(q.Span)
	var interval *int
	var kind, n int
	var at []float64
	stages, needs := r.needs()
	args := []any{end, q.Span.Seconds(), q.Points, latencySlices, latencyPerSlice, r.graph.Stages(), stages, needs}
	err := r.read(ctx, latencySQL, args, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&interval, &kind, &n, &at}, func() error {
			out.point(r, interval).put(kind, n, at)
			return nil
		})
		return err
	})
	return out, r.explain("latency", err)
}

// needs lists what each stage needs: a stage, and one that it needs.
func (r *Reader) needs() (stages, needs []string) {
	names := r.graph.Stages()
	for i, name := range names {
		for _, j := range r.graph.Needs(i) {
			stages, needs = append(stages, name), append(needs, names[j])
		}
	}
	return stages, needs
}

func (r *Reader) newPoint() LatencyPoint {
	return LatencyPoint{Work: make([]Percentiles, len(r.graph.Stages()))}
}

// point returns the point that a row belongs to; rows are ordered by time.
func (l *Latency) point(r *Reader, interval *int) *LatencyPoint {
	if interval == nil {
		return &l.All
	}
	at := l.All.At.Add(time.Duration(*interval) * l.Step)
	if n := len(l.Points); n == 0 || !l.Points[n-1].At.Equal(at) {
		p := r.newPoint()
		p.At = at
		l.Points = append(l.Points, p)
	}
	return &l.Points[len(l.Points)-1]
}

func (p *LatencyPoint) put(kind, n int, at []float64) {
	to := &p.Wait
	if kind >= 0 {
		to = &p.Work[kind]
	}
	to.N = n
	to.set(at)
}

func (p *Percentiles) set(at []float64) {
	if len(at) == 3 {
		p.P50, p.P95, p.P99 = seconds(at[0]), seconds(at[1]), seconds(at[2])
	}
}
