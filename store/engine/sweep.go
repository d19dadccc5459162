package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// SweepRequest configures a sweep.
type SweepRequest struct {
	// Worker is the worker that sweeps. It does not expire itself.
	Worker store.ID
	// Credit is the outage credit of other workers; nil: none is expired.
	Credit *OutageCredit
	// ExpectedClock is what the worker expects of the database's clock. Where it differs by
	// more than 2 s, the clock was changed or the worker was stopped, and no worker is
	// expired. Zero: not known.
	ExpectedClock time.Time
	// MaxAttempts is the limit of attempts, by stage. The claim of a lost worker counts as
	// an attempt, so that a task which kills its workers becomes dead.
	MaxAttempts []int
	// OnlyTasks are the only tasks to find; nil for all.
	OnlyTasks []store.ID
	// IsQuick makes it begin where the exchanges do, and end only claims of workers that it expires itself. While a transaction
	// elsewhere holds a snapshot, others read all steps of that time.
	IsQuick bool
	// After is where a quick one looks, by queue; as in [ExchangeRequest].
	After []Position
	// AgeAfter is how long a step waits behind tasks of higher priority before it gets the rank of the first
	// of them. Zero: no limit.
	AgeAfter time.Duration
}

// SweepResult is what a sweep found and changed. MoreReady and Wait are by queue.
type SweepResult struct {
	ExpiredWorkers []store.ID          // workers that are lost now
	Names          map[store.ID]string // theirs
	ExpiredClaims  int                 // claims taken from workers that are lost or stopped
	RowsLocked     bool                // other transactions locked some of these claims' rows: sweep again
	// OpenTransactions are lost workers that left a transaction open, with its locks, which
	// this role may not end.
	OpenTransactions []store.ID
	// First is the first ready step of each queue; nil for none. Wait and NextDue are as in [ExchangeResult].
	First   []*Position
	Wait    []time.Duration
	NextDue time.Duration
}

// endTransactionsSQL ends transactions that lost or stopped workers left open, because
// their processes stand still. Until then they hold row locks, even on their own row, and
// delay readers of events. Any role may set any application_name, so the name must be an
// id, and this role must have the right to end the session.
const endTransactionsSQL = `
/* end transactions of lost workers */
select w.id, cuelight_end_session(b.pid)
  from (select pid, xact_start,
               case when application_name ~ '^cuelight [0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
                    then substr(application_name, 10)::uuid end as worker
          from pg_stat_activity
         where datname = current_database()
        offset 0) b
  join {workers} w on w.id = b.worker
 where w.id is distinct from $1
   and (w.stopped_at is not null or w.lost_at is not null or cuelight_{name}_is_lost(w, $2, $3)
        and ($4::timestamptz is null or clock_timestamp() between $4 - interval '2 s' and $4 + interval '2 s'))
   and coalesce(b.xact_start < clock_timestamp() - cuelight_grace(w.lease), true)`

// expireWorkersSQL marks workers as lost that missed their heartbeats and have made no claim within the grace, and those
// of $5, whose processes have certainly ended. A worker whose heartbeat is in progress has its row locked and is skipped.
// The clock is not as expected either for a request that had to wait.
const expireWorkersSQL = `
/* expire workers */
with lost as (
  update {workers} set lost_at = now(), running = '[]'
   where id in (
         select id from {workers} w
          where stopped_at is null and lost_at is null and id is distinct from $1
            and (id = any ($5::uuid[]) or cuelight_{name}_is_lost(w, $2, $3)
                 and ($4::timestamptz is null or clock_timestamp() between $4 - interval '2 s' and $4 + interval '2 s')
                 and not exists (select from {steps} s where s.status = 'running' and s.locked_by = w.id
                                    and s.locked_at > now() - cuelight_grace(w.lease)))
            for no key update skip locked)
  returning id, name, host, pid
), recorded as (
  insert into {outbox} (type, worker_id, data)
  select 'worker_lost', id, jsonb_build_object('name', name, 'host', host, 'pid', pid) from lost
)
select id, name from lost`

// findOrphansSQL finds the claims of lost workers, which count as attempts; of stopped workers that could not release them; and
// those in a restored dump, whose workers never used this database. The latter are released.
const findOrphansSQL = `
/* find claims of lost workers */
select s.task_id, s.stage, s.part, s.token, s.attempts,
       w.id is not null and w.lost_at is null or coalesce(w.registered_in <> cuelight_{name}_database(), false),
       case when w.id is null then 'the worker was lost'
            when w.registered_in <> cuelight_{name}_database()
            then format('the worker, process %s on %s, used the database that this one was restored from', w.pid,
                 w.host)
            when w.lost_at is null then format('the worker, process %s on %s, stopped', w.pid, w.host)
            else format('the worker, process %s on %s, was lost', w.pid, w.host) end
  from {steps} s
  left join {workers} w on w.id = s.locked_by
 where s.status = 'running' and (w.id is null or w.stopped_at is not null or w.lost_at is not null)`

// ageSQL moves steps that have waited too long behind tasks of higher priority to the first of them. It reads the first steps of each of
// the 50 lowest priorities, because those behind them are not older, so its cost does not depend on how many are ready. Of
// a divided stage one part is moved, and only if no other part is ahead or was started for so long.
const ageSQL = `
/* age steps that wait behind higher priorities */
with recursive ranks as (
  select q.stage, q.parts, (select rank from {steps} s where s.stage = q.stage and (s.part > 0) = q.parts
         and s.status = 'ready'
                             order by rank desc limit 1) as rank, 1 as n
    from unnest($1::text[], $2::boolean[]) as q (stage, parts)
   union all
  select r.stage, r.parts, (select rank from {steps} s where s.stage = r.stage and (s.part > 0) = r.parts
         and s.status = 'ready'
                               and s.rank < r.rank order by rank desc limit 1), n + 1
    from ranks r where r.rank is not null and n < 50
), first as materialized (
  select r.stage, r.parts, f.rank, f.turn
    from (select distinct stage, parts from ranks) as r
   cross join lateral (select rank, turn from {steps} s where s.stage = r.stage and (s.part > 0) = r.parts
        and s.status = 'ready'
                        order by rank, turn, task_id limit 1) as f
), waited as materialized (
  select distinct on (s.task_id, s.stage) s.row, f.rank, f.turn - 1 as turn
    from ranks r
    join first f on f.stage = r.stage and f.parts = r.parts and f.rank < r.rank
   cross join lateral (
         select s.ctid as row, s.* from {steps} s
          where s.stage = r.stage and (s.part > 0) = r.parts and s.status = 'ready' and s.rank = r.rank
            and (s.placement is null or coalesce(cuelight_{name}_placement_wait(s, $4) <= 0, false))
          order by s.turn, s.task_id limit 50) as s
   where s.ready_at < now() - make_interval(secs => $3)
     and (s.part = 0 or (select max(greatest(p.locked_at, case p.status when 'completed' then p.ready_at end))
         from {steps} p
                          where p.task_id = s.task_id and p.stage = s.stage
                               and p.part > 0) < now() - make_interval(secs => $3)
          is not false
          and not exists (select from {steps} p where p.task_id = s.task_id and p.stage = s.stage and p.part > 0
                             and p.status = 'ready' and p.rank < s.rank))
   order by s.task_id, s.stage, s.part
), locked as materialized (
  select s.ctid as row, w.rank, w.turn from waited w join {steps} s on s.ctid = w.row
         for no key update of s skip locked
), moved as (
  update {steps} s set rank = l.rank, turn = l.turn from locked l where s.ctid = l.row returning s.task_id,
       s.stage, s.rank, s.turn
)
select cuelight_{name}_notify(stage, rank || ':' || turn || ':' || task_id) from moved`

// Sweep expires workers that missed their heartbeats, ends their claims, promotes steps that are due, and looks at all
// queues. Each of these is a transaction: with an error there may be ExpiredWorkers already.
func (e *Engine) Sweep(ctx context.Context, in SweepRequest) (SweepResult, error) {
	queues := e.graph.Queues()
	out := SweepResult{First: make([]*Position, queues), Wait: slices.Repeat([]time.Duration{-1}, queues), NextDue: -1}
	err := e.sweepWorkers(ctx, in, &out)
	if err == nil && (!in.IsQuick || len(out.ExpiredWorkers) > 0) {
		err = e.endOrphans(ctx, in, &out)
	}
	if err == nil {
		err = e.sweepQueues(ctx, in, &out)
	}
	return out, e.explain("sweep", err)
}

func (e *Engine) sweepWorkers(ctx context.Context, in SweepRequest, out *SweepResult) error {
	grace, lease := in.Credit.args()
	var clock *time.Time
	if !in.ExpectedClock.IsZero() {
		clock = &in.ExpectedClock
	}
	err := e.send(ctx, in.Worker, func(batch *pgx.Batch) {
		batch.Queue(e.sql.endTransactions, in.Worker, grace, lease, clock).Query(func(rows pgx.Rows) error {
			var worker store.ID
			var ended bool
			_, err := pgx.ForEachRow(rows, []any{&worker, &ended}, func() error {
				if ended {
					out.RowsLocked = true // until the server has ended it
				} else {
					out.OpenTransactions = append(out.OpenTransactions, worker)
				}
				return nil
			})
			return err
		})
		if in.Credit != nil {
			batch.Queue(e.sql.expireWorkers, in.Worker, grace, lease, clock, nil).Query(out.collectLost)
		}
	})
	if err != nil {
		out.ExpiredWorkers, out.OpenTransactions = nil, nil // rolled back, or not known
	}
	return err
}

// collectLost adds the rows of lost workers.
func (out *SweepResult) collectLost(rows pgx.Rows) error {
	var id store.ID
	var name string
	_, err := pgx.ForEachRow(rows, []any{&id, &name}, func() error {
		if out.Names == nil {
			out.Names = make(map[store.ID]string)
		}
		out.ExpiredWorkers = append(out.ExpiredWorkers, id)
		out.Names[id] = name
		return nil
	})
	return err
}

// ExpireWorkers marks workers as lost whose processes have certainly ended, whatever their
// leases say. It returns those that were not lost before.
func (e *Engine) ExpireWorkers(ctx context.Context, workers []store.ID) ([]store.ID, error) {
	var out SweepResult
	if len(workers) == 0 {
		return nil, nil
	}
	// The transaction has the name of one of them, so that the sweep can end it, too.
	err := e.send(ctx, workers[0], func(batch *pgx.Batch) {
		batch.Queue(e.sql.expireWorkers, nil, nil, nil, nil, workers).Query(out.collectLost)
	})
	return out.ExpiredWorkers, e.explain("expire workers", err)
}

// endOrphans ends the claims of lost and stopped workers.
func (e *Engine) endOrphans(ctx context.Context, in SweepRequest, out *SweepResult) error {
	var reports []Report
	err := e.send(ctx, in.Worker, func(batch *pgx.Batch) {
		batch.Queue(e.sql.findOrphans).Query(collect(&reports, func(row pgx.CollectableRow) (r Report, err error) {
			var stage string
			var attempt int
			var released bool
			err = row.Scan(&r.Task, &stage, &r.Part, &r.Token, &attempt, &released, &r.Error)
			r.Stage, _ = e.graph.Stage(stage)
			r.Outcome = Released
			if !released {
				r.Outcome, r.Class, r.Dead = expired, "expired", attempt >= in.MaxAttempts[r.Stage]
			}
			return r, err
		}))
	})
	for some := range slices.Chunk(reports, maxBatch) {
		if err != nil {
			break
		}
		var r ExchangeResult
		if r, err = e.Exchange(ctx, ExchangeRequest{Worker: in.Worker, Reports: some}); err == nil {
			out.ExpiredClaims += len(some) - len(r.Stale) - len(r.Locked)
			out.RowsLocked = out.RowsLocked || len(r.Locked) > 0
		}
	}
	return err
}

// sweepQueues promotes and ages steps, and looks at the queues.
func (e *Engine) sweepQueues(ctx context.Context, in SweepRequest, out *SweepResult) error {
	var all queueArgs
	after := padded(in.After, len(out.First))
	due := waiting{next: -1, from: e.positions.waitingFrom()}
	if !in.IsQuick {
		due.from, after = time.Unix(0, 0), make([]Position, len(out.First))
	}
	for i := range out.First {
		all.add(e, i, 0, false, after[i])
	}
	err := e.send(ctx, in.Worker, func(batch *pgx.Batch) {
		batch.Queue(e.sql.promote, due.from)
		if in.AgeAfter > 0 {
			batch.Queue(e.sql.age, all.stages, all.parts, in.AgeAfter.Seconds(), in.Worker)
		}
		e.queueLook(batch, in.Worker, in.OnlyTasks, all, func(queue int, l look) {
			out.First[queue], out.Wait[queue] = l.first, l.wait
		}, due.from, &due)
	})
	if err == nil {
		out.NextDue = due.next
		e.positions.setWaiting(due.from)
	}
	return err
}

// reconcileSQL makes the steps of a page of tasks agree with their statuses, and returns the last task of the page; null at the
// end. Usually all agree: triggers were disabled where one does not. The tasks are those of a state, or those that have steps,
// because somebody may have cancelled one: these are found by one look into the index for each, however many parts it has.
const reconcileSQL = `
/* reconcile a page of tasks */
with recursive having_steps (id, n) as (
  (select task_id, 1 from {steps} where $1 = '' and task_id > $2 order by task_id limit 1)
   union all
  select (select task_id from {steps} where task_id > h.id order by task_id limit 1), n + 1
    from having_steps h where h.id is not null and n < $3
), page as materialized (
  (select t.* from {tasks} t
    where (t.state, t.id) > (nullif($1, '')::cuelight_status, $2) and t.state <= nullif($1, '')::cuelight_status
    order by t.state, t.id limit $3)
   union all
  select t.* from having_steps h join {tasks} t on t.id = h.id
), orphans as materialized (
  select h.id from having_steps h
   where h.id is not null and not exists (select from {tasks} t where t.id = h.id offset 0)
), disagreeing as materialized (
  select p.id
    from page p
   cross join lateral cuelight_{name}_stages(p::{tasks}) x
    left join lateral (
         select s.status from {steps} s where s.task_id = p.id and s.stage = x.stage and s.part = 0
                limit 1) as s on true
   where case when not x.unblocked or x.status = 'completed' then s.status is not null
              when x.status in ('pending', 'failed') then s.status is null or s.status not in ('ready', 'waiting')
              when x.status in ('dead', 'cancelled') then s.status <> 'stopped' or exists (
                   select from {steps} o where o.task_id = p.id and o.stage = x.stage and o.part > 0
                      and o.status not in ('completed', 'stopped'))
              else s.status::text is distinct from case x.status when 'inprogress' then 'running'
                   else x.status::text end end
), fixed as materialized (
  select cuelight_{name}_reconcile(array_agg(id)) as done
    from (select id
            from (select id from {tasks} where id = any (array(select id from disagreeing))
                     for no key update skip locked) as locked
           union all
          select id from orphans) as those
  having count(*) > 0
)
select (select id from (select id from page union all select id from orphans) as p order by id offset $3 - 1),
       (select count(done::text) from fixed)`

// reconcilePage is where the next page begins.
type reconcilePage struct {
	mu    sync.Mutex
	state int
	after store.ID
}

// pageSize is how many tasks a page has.
const pageSize = 1000

// Reconcile makes the steps of the next open tasks agree with their statuses, for as long as it may take: triggers may have been
// disabled. It goes on where it ended before, and returns after all tasks.
func (e *Engine) Reconcile(ctx context.Context, worker store.ID, within time.Duration) error {
	p := &e.reconcilePage
	p.mu.Lock()
	defer p.mu.Unlock()
	states := []store.Status{store.StatusPending, store.StatusInProgress, store.StatusDead, ""} // with steps
	for began := time.Now(); p.state < len(states) && time.Since(began) < within; {
		after := p.after
		if after.IsZero() {
			after = store.ID{15: 1}
		}
		err := e.send(ctx, worker, func(batch *pgx.Batch) {
			batch.Queue(e.sql.reconcile, string(states[p.state]), after, pageSize).QueryRow(func(row pgx.Row) error {
				return row.Scan(&p.after, nil)
			})
		})
		if err != nil {
			return e.explain("reconcile", err)
		}
		if p.after.IsZero() {
			p.state++
		}
	}
	p.state %= len(states)
	return nil
}
