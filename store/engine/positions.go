package engine

import (
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// positions are where this process has claimed last, by queue and rank, for the table of positions, from which the turns
// of new steps are computed; and from where it looks for steps that wait for a time.
type positions struct {
	mu      sync.Mutex
	last    map[positionKey]Position
	moved   map[positionKey]bool  // since the last write
	rows    map[positionKey]int64 // the ids of what this process has written last
	claims  int                   // since then
	written time.Time
	waiting time.Time // by the database's clock
}

type positionKey struct {
	queue int
	rank  int32
}

// Positions are written after so many claims, so that what begins there reads few entries of claimed steps, but not more often
// than the shortest interval; and at least once in the longest one.
const (
	positionClaims           = 64
	shortestPositionInterval = 100 * time.Millisecond
	longestPositionInterval  = time.Second
)

// recordPositionsSQL deletes the row that this process has written before; at first, those of ended processes.
const recordPositionsSQL = `
/* record how far queues are */
with given as (
  select * from unnest($1::text[], $2::boolean[], $3::integer[], $4::bigint[], $5::uuid[], $6::bigint[])
             as g (stage, parts, rank, turn, task_id, before)
), old as materialized (
  select mine.row
    from given g
   cross join lateral (
         select p.ctid as row from {positions} p
          where p.stage = g.stage and p.parts = g.parts and p.rank = g.rank and p.id = g.before
            for update skip locked) as mine
   union all
  select ended.row
    from given g
   cross join lateral (
         select p.ctid as row from {positions} p
          where p.stage = g.stage and p.parts = g.parts and p.rank = g.rank and g.before = 0
            and p.written_at < now() - interval '1 day'
            for update skip locked) as ended
), gone as (
  delete from {positions} where ctid = any (array(select row from old))
)
insert into {positions} (stage, parts, rank, turn, task_id)
select stage, parts, rank, turn, task_id from given
returning stage, parts, rank, id`

// queuePositions queues the write of positions, if some have changed.
func (x *exchange) queuePositions() {
	p := &x.Engine.positions
	p.mu.Lock()
	defer p.mu.Unlock()
	since := time.Since(p.written)
	if len(p.moved) == 0 || since < shortestPositionInterval || p.claims < positionClaims && since < longestPositionInterval {
		return
	}
	var a queueArgs
	var before []int64
	for key := range p.moved {
		a.add(x.Engine, key.queue, 0, false, p.last[key])
		before = append(before, p.rows[key])
	}
	p.moved, p.claims, p.written = nil, 0, time.Now()
	x.batch.Queue(x.sql.recordPositions, a.stages, a.parts, a.ranks, a.turns, a.tasks, before).Query(x.collectPositions)
}

// collectPositions remembers the rows that were written.
func (x *exchange) collectPositions(rows pgx.Rows) error {
	p := &x.Engine.positions
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rows == nil {
		p.rows = make(map[positionKey]int64)
	}
	var stage string
	var parts bool
	var rank int32
	var id int64
	_, err := pgx.ForEachRow(rows, []any{&stage, &parts, &rank, &id}, func() error {
		i, _ := x.graph.Stage(stage)
		p.rows[positionKey{x.graph.Queue(i, parts), rank}] = id
		return nil
	})
	return err
}

// setPositions remembers how far the claims of this exchange have come: up to where nothing was left.
func (x *exchange) setPositions() {
	p := &x.Engine.positions
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(x.args.numbers) > 0 {
		p.waiting = x.due.from
	}
	p.claims += len(x.result.Claims)
	for _, queue := range x.args.numbers {
		at := x.result.Next[queue]
		key := positionKey{queue, at.Rank}
		if before, ok := p.last[key]; at.IsStart() || ok && before.Compare(at) >= 0 {
			continue
		}
		if p.last == nil {
			p.last = make(map[positionKey]Position)
		}
		if p.moved == nil {
			p.moved = make(map[positionKey]bool)
		}
		p.last[key], p.moved[key] = at, true
	}
}

// waitingFrom returns where to look for steps that wait for a time.
func (p *positions) waitingFrom() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting.IsZero() {
		return time.Unix(0, 0)
	}
	return p.waiting
}

func (p *positions) setWaiting(from time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = from
}
