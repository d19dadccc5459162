package report

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Percentiles are those of a number of durations.
type Percentiles struct {
	N             int
	P50, P95, P99 time.Duration
}

// LatencyPoint is what happened to the tasks that were submitted in one stretch
// of time.
type LatencyPoint struct {
	At time.Time // where the stretch begins
	// Wait is from when a stage could begin to when it was claimed. It has the
	// first attempts of all stages.
	Wait Percentiles
	// Work is how long successful attempts took, by stage in the pipeline's
	// order.
	Work []Percentiles
}

// Latency is how long things took.
type Latency struct {
	// All is as a point that has everything.
	All LatencyPoint
	// Points are in the order of time. A stretch without tasks has none.
	Points []LatencyPoint
	Step   time.Duration // from one to the next
}

// LatencyQuery says of which tasks. Its zero value is the last hour in sixty
// stretches.
type LatencyQuery struct {
	Until  time.Time     // default now, by the database's clock
	Span   time.Duration // default an hour
	Points int           // 1 to 500; default 60
}

// Of a stretch this many tasks are looked at, evenly spread over it, so that what
// it costs has a bound.
const (
	latencySlices   = 8
	latencyPerSlice = 10
)

// waits: of tried, the attempts of some tasks, how long each stage waited before its
// first. It could begin when what it needs was completed for the first time; without
// needs, when it was submitted, or was due.
const waits = `
needs (stage, need) as (values
       {{- range $i, $s := .Stages}}{{range .Needs}}
       ('{{$s.Name}}', '{{.}}'),{{end}}{{end}}
       ('', '')
), first as (
  select task_id, submitted_at, ready_at, stage, min(started_at) as started_at, min(finished_at) filter (where outcome = 'completed') as completed_at
    from tried group by 1, 2, 3, 4
), waited as (
  select f.submitted_at, extract(epoch from greatest(f.started_at - coalesce(max(n.completed_at), case when f.ready_at <= f.started_at then f.ready_at end, f.submitted_at), '0')) as seconds
    from first f
    left join needs on needs.stage = f.stage
    left join first n on n.task_id = f.task_id and n.stage = needs.need
   group by f.task_id, f.submitted_at, f.ready_at, f.stage, f.started_at
)`

// latency: ids begin with the time of their submission, so the primary key finds
// what was submitted when. A row per stretch and kind: -2 is the wait, others are
// stages; the stretch is null for all together.
const latencySQL = `
/* latency */
with span as (
  select coalesce($1, now()) - make_interval(secs => $2) as since, make_interval(secs => $2 / $3) as step
), slices as (
  select since + step * (n::float8 / $4::int) as since, since + step * ((n + 1)::float8 / $4::int) as until
    from span cross join generate_series(0, $3::int * $4::int - 1) as n
), sample as materialized (
  select t.id, t.created_at, t.ready_at
    from slices
   cross join lateral (
         select id, created_at, ready_at from {{.Tasks}}
          where id >= (lpad(to_hex(floor(extract(epoch from slices.since) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
            and id < (lpad(to_hex(floor(extract(epoch from slices.until) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
          order by id limit $5) as t
), tried as materialized (
  select a.*, sample.created_at as submitted_at, sample.ready_at
    from sample cross join lateral (select * from {{.Attempts}} where task_id = sample.id offset 0) as a
), ` + waits + `, measured as (
  select -2 as kind, submitted_at, seconds from waited
  union all
  select case stage {{range $i, $s := .Stages}}when '{{.Name}}' then {{$i}} {{end}}end, submitted_at, extract(epoch from finished_at - started_at)
    from tried where outcome = 'completed'
)
select stretch, kind, count(*), percentile_cont(array[0.5, 0.95, 0.99]) within group (order by seconds)
  from (select kind, seconds,
               floor(extract(epoch from submitted_at - span.since) / extract(epoch from span.step))::int as stretch
          from measured cross join span) as placed
 where kind is not null
 group by grouping sets ((stretch, kind), (kind))
 order by stretch nulls first, kind`

const latencyFromSQL = `
/* beginning of a span */
select coalesce($1, now()) - make_interval(secs => $2)`

var errSpan = errors.New("a span is positive and has 1 to 500 points")

// Latency says how long tasks waited and were worked on, over time. Time is
// that of their submission: a point has what became of the tasks that came
// then, as far as it has happened. Of many tasks some are looked at, evenly
// spread.
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
	var stretch *int
	var kind, n int
	var at []float64
	err := r.read(ctx, r.latency, []any{end, q.Span.Seconds(), q.Points, latencySlices, latencyPerSlice}, func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&stretch, &kind, &n, &at}, func() error {
			out.point(r, stretch).put(kind, n, at)
			return nil
		})
		return err
	})
	return out, r.explain("latency", err)
}

func (r *Reader) newPoint() LatencyPoint {
	return LatencyPoint{Work: make([]Percentiles, len(r.graph.Stages()))}
}

// point is where a row belongs; rows come in the order of time.
func (l *Latency) point(r *Reader, stretch *int) *LatencyPoint {
	if stretch == nil {
		return &l.All
	}
	at := l.All.At.Add(time.Duration(*stretch) * l.Step)
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
