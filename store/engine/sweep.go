package engine

import (
	"context"
	"slices"
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
	// AgeAfter is how long a task waits behind tasks of higher priority before it is in
	// Aged. Zero: no limit.
	AgeAfter time.Duration
}

// SweepResult is what a sweep found and changed.
type SweepResult struct {
	ExpiredWorkers []store.ID          // workers that are lost now
	Names          map[store.ID]string // theirs
	ExpiredClaims  int                 // claims taken from workers that are lost or stopped
	RowsLocked     bool                // other transactions locked some of these claims' rows: sweep again
	// OpenTransactions are lost workers that left a transaction open, with its locks, which
	// this role may not end.
	OpenTransactions []store.ID
	// MoreReady and NextDue are as in [ExchangeResult], for all queues.
	MoreReady []bool
	NextDue   []time.Duration
	// Aged are, by queue, tasks to claim before tasks of higher priority; nil without AgeAfter.
	Aged [][]store.ID
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
  join workers w on w.id = b.worker
 where w.pipeline = $2 and w.id is distinct from $1
   and (w.stopped_at is not null or w.lost_at is not null or ` + expiredSQL + `
        and ` + clockExpectedSQL + `)
   and coalesce(b.xact_start < clock_timestamp() - {{.DisconnectGrace "w."}}, true)`

// clockExpectedSQL is false also for a request that had to wait.
const clockExpectedSQL = `($5::timestamptz is null
        or clock_timestamp() between $5 - interval '2 s' and $5 + interval '2 s')`

// expireWorkersSQL marks workers as lost that are expired and have made no claim within
// the grace. A worker whose heartbeat is in progress has its row locked and is skipped.
const expireWorkersSQL = `
/* expire workers */
with lost as (
  update workers set lost_at = now(), running = '[]'
   where id in (
         select id from workers w
          where pipeline = $2 and stopped_at is null and lost_at is null and id is distinct from $1
            and ` + expiredSQL + `
            and ` + clockExpectedSQL + `
            and not exists (select from {{.Tasks}} t
                             where ({{.Any "t." "inprogress"}})
                               and ({{range $i, $s := .Stages}}{{if $i}}
                                 or {{end}}t.{{.Name}}_locked_by = w.id
                                    and t.{{.Name}}_locked_at > now() - {{$.DisconnectGrace "w."}}{{end}}))
            {{- if .HasParts}}
            and not exists (select from {{.Parts}} p
                             where p.status = 'inprogress' and p.locked_by = w.id
                               and p.locked_at > now() - {{$.DisconnectGrace "w."}})
            {{- end}}
            for no key update skip locked)
  returning id, name, host, pid
), recorded as (` + workerLostSQL + `)
select id, name from lost`

// expireClaimsSQL ends the claims of lost workers: the stage failed, or is dead after its
// last attempt. Claims that a stopped worker could not release, and claims in a restored
// dump, whose worker never used this database, are released instead. The rows are selected
// first and then locked with their tokens, because a claim may be expired and its stage
// claimed again in between.
const expireClaimsSQL = `
/* expire claims of {{.Stage.Name}} */
with orphaned as materialized (
  select t.id, t.{{.Stage.Name}}_token as token,
         ` + orphanColumnsSQL + `
    from {{.Tasks}} t
    left join workers w on w.id = t.{{.Stage.Name}}_locked_by
   where ({{.Any "t." "inprogress"}})
     and t.{{.Stage.Name}}_status = 'inprogress'
     and (w.id is null or w.stopped_at is not null or w.lost_at is not null)
), expired as materialized (
  select t.id, orphaned.token, orphaned.released, orphaned.error, t.{{.Stage.Name}}_attempts as attempt,
         t.{{.Stage.Name}}_locked_by as locked_by, t.{{.Stage.Name}}_locked_at as locked_at
    from orphaned
    join {{.Tasks}} t on t.id = orphaned.id and t.{{.Stage.Name}}_token = orphaned.token
     for no key update of t skip locked
), updated as (
  update {{.Tasks}} t set
         {{.Stage.Name}}_status    = case when expired.released then 'pending'
                                          when expired.attempt >= $1 then 'dead' else 'failed' end::cuelight_status,
         {{.Stage.Name}}_attempts  = greatest({{.Stage.Name}}_attempts - expired.released::int, 0),
         {{.Stage.Name}}_token     = null,
         {{.Stage.Name}}_locked_at = null,
         {{.Stage.Name}}_locked_by = null
    from expired
   where t.id = expired.id and t.{{.Stage.Name}}_token = expired.token
), history as (
  insert into {{.Attempts}} (task_id, token, stage, attempt, worker_id, started_at, outcome,
                            retry_at, error_class, error)
  select id, token, '{{.Stage.Name}}', attempt, locked_by, locked_at,
         case when released then 'released' else 'expired' end::cuelight_outcome,
         case when not released and attempt < $1 then now() end, case when not released then 'expired' end, error
    from expired
)
select (select count(*) from expired), (select count(*) from orphaned)`

// orphanColumnsSQL says of a claim of the worker w, which is lost or stopped, whether it is released, and why
// it ends.
const orphanColumnsSQL = `w.id is not null and w.lost_at is null
           or coalesce(w.registered_in <> (select cuelight_database_id()), false) as released,
         case when w.id is null then 'the worker was lost'
              when w.registered_in <> (select cuelight_database_id())
              then format('the worker, process %s on %s, used the database that this one was restored from',
                          w.pid, w.host)
              when w.lost_at is null then format('the worker, process %s on %s, stopped', w.pid, w.host)
              else format('the worker, process %s on %s, was lost', w.pid, w.host) end as error`

// sweepScanSQL says whether a lost or stopped worker holds claims and, per stage, what
// readySQL says. Usually this is the whole sweep.
const sweepScanSQL = `
/* sweep: find expired claims and due stages */
select exists (select from {{.Tasks}} t where ({{.Any "t." "inprogress"}})
                  and ({{range $i, $s := .Stages}}{{if $i}}
                    or {{end}}t.{{.Name}}_status = 'inprogress'
                      and not {{$.Alive (print "t." .Name "_locked_by")}}{{end}}))
       {{- if .HasParts}}
       or exists (select from {{.Parts}} p where p.status = 'inprogress'
                  and not {{.Alive "p.locked_by"}})
       {{- end}}
       {{- range .Stages}},` + readyColumnsSQL + `{{end}}
       {{- range .Stages}}{{if .Divides}},` + readyPartsColumnsSQL + `{{end}}{{end}}`

// agedSQL finds the ready tasks that have waited too long behind tasks of higher priority,
// the oldest first. It reads the first tasks of each of the 50 lowest priorities, because
// those behind them are not older, so its cost does not depend on how many are ready.
const agedSQL = `
/* find aged {{.Stage.Name}} */
with recursive classes as (
  (select priority, 1 as n from {{.Tasks}} where {{.Stage.Ready ""}} order by priority, id desc limit 1)
   union all
  select higher.priority, n + 1
    from classes
   cross join lateral (select priority from {{.Tasks}} where {{.Stage.Ready ""}} and priority > classes.priority
                        order by priority, id desc limit 1) as higher
   where n < 50
)
select t.id
  from classes
 cross join lateral (select id, created_at, ready_at from {{.Tasks}} where {{.Stage.Ready ""}}
   and priority = classes.priority and {{.Stage.MayClaim "" "$3" "null"}}
                      order by id limit $2) as t
 where classes.priority < (select priority from {{.Tasks}} where {{.Stage.Ready ""}} order by priority desc, id limit 1)
   and {{.Stage.Waited .Attempts}} > make_interval(secs => $1)
 order by t.id
 limit $2`

// agedPartsSQL is agedSQL for parts: it finds tasks of which no part was claimed for so long, although one was
// ready. Tasks of one priority are claimed by turns, so those of the lowest turns have waited the longest: it
// reads the oldest tasks of the ten lowest turns of each priority, and up to 500 parts in all. The parts of a
// task are started in their order, so that the last start is at one of the hundred before the next one.
const agedPartsSQL = `
/* find aged parts of {{.Stage.Name}} */
with recursive classes as (
  (select priority, 1 as n from {{.Parts}} where {{.Stage.PartReady ""}} order by priority, turn desc, task_id limit 1)
   union all
  select higher.priority, n + 1
    from classes
   cross join lateral (select priority from {{.Parts}} where {{.Stage.PartReady ""}} and priority > classes.priority
                        order by priority, turn desc, task_id limit 1) as higher
   where n < 50
), turns as (
  select classes.priority, lowest.turn, 1 as n
    from classes
   cross join lateral (select turn from {{.Parts}} where {{.Stage.PartReady ""}} and priority = classes.priority
                        order by priority desc, turn, task_id desc limit 1) as lowest
   where classes.priority < (select priority from {{.Parts}} where {{.Stage.PartReady ""}}
                              order by priority desc, turn, task_id desc limit 1)
   union all
  select turns.priority, higher.turn, n + 1
    from turns
   cross join lateral (select turn from {{.Parts}} where {{.Stage.PartReady ""}}
                        and priority = turns.priority and turn > turns.turn
                        order by priority desc, turn, task_id desc limit 1) as higher
   where n < 10
), candidates as materialized (
  select next.*, n
    from turns
   cross join lateral (select task_id, part, ready_at from {{.Parts}} where {{.Stage.PartReady ""}}
                        and priority = turns.priority and turn = turns.turn and {{.Stage.MayClaimPart "" "$3"}}
                        order by task_id limit $2) as next
   order by n, task_id
   limit 500
)
select task_id
  from candidates c
 where ready_at < now() - make_interval(secs => $1)
   and (select true from {{.Parts}} p
         where p.task_id = c.task_id and p.stage = '{{.Stage.Name}}' and p.part between c.part - 100 and c.part
           and greatest(p.ready_at, p.locked_at) > now() - make_interval(secs => $1)
         limit 1) is null
 group by task_id
 order by min(n), task_id
 limit $2`

// maxAged is how many aged tasks of a queue a sweep finds.
const maxAged = 50

// Sweep expires workers that missed their heartbeats, expires or releases their claims,
// promotes tasks that are due, and finds ready tasks. Usually it finds nothing and is one
// round trip; otherwise it is two, each a transaction: with an error there may be
// ExpiredWorkers already.
func (e *Engine) Sweep(ctx context.Context, in SweepRequest) (SweepResult, error) {
	queues := e.graph.Queues()
	out := SweepResult{MoreReady: make([]bool, queues), NextDue: nextDueUnset(queues)}
	orphaned, err := e.expireWorkersAndScan(ctx, in, &out)
	if err == nil && (orphaned || slices.Contains(out.NextDue, 0)) {
		err = e.expireClaims(ctx, in, &out)
	}
	return out, e.explain("sweep", err)
}

// expireWorkersAndScan expires lost workers, and reports whether they hold claims and what is
// ready or due.
func (e *Engine) expireWorkersAndScan(ctx context.Context, in SweepRequest, out *SweepResult) (orphaned bool, err error) {
	var batch pgx.Batch
	e.queueSettings(ctx, &batch, false, originSweep, in.Worker)
	e.queueExpireWorkers(&batch, in, out)
	e.queueFindAged(&batch, in, out)
	next := make([]*float64, len(out.NextDue))
	batch.Queue(e.sql.sweepScan, in.OnlyTasks, in.Worker).QueryRow(func(row pgx.Row) error {
		dest := []any{&orphaned}
		for i := range out.MoreReady {
			dest = append(dest, &out.MoreReady[i], &next[i])
		}
		return row.Scan(dest...)
	})
	if err = e.db.SendBatch(ctx, &batch).Close(); err != nil {
		out.ExpiredWorkers, out.OpenTransactions = nil, nil // rolled back, or not known
		return false, err
	}
	for i := range next {
		out.NextDue[i] = secondsToDuration(next[i])
	}
	return orphaned, nil
}

// collectLost adds the rows of lost workers to a result.
func collectLost(out *SweepResult) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
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
}

func (e *Engine) queueExpireWorkers(batch *pgx.Batch, in SweepRequest, out *SweepResult) {
	grace, lease := in.Credit.args()
	var clock *time.Time
	if !in.ExpectedClock.IsZero() {
		clock = &in.ExpectedClock
	}
	args := []any{in.Worker, e.graph.Name(), grace, lease, clock}
	batch.Queue(e.sql.endTransactions, args...).Query(func(rows pgx.Rows) error {
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
		batch.Queue(e.sql.expireWorkers, args...).Query(collectLost(out))
	}
}

func (e *Engine) queueFindAged(batch *pgx.Batch, in SweepRequest, out *SweepResult) {
	if in.AgeAfter <= 0 {
		return
	}
	out.Aged = make([][]store.ID, e.graph.Queues())
	for i := range out.Aged {
		batch.Queue(e.sql.aged[i], in.AgeAfter.Seconds(), maxAged, in.Worker).Query(collect(&out.Aged[i], pgx.RowTo[store.ID]))
	}
}

// expireClaims does what expireWorkersAndScan found, and finds ready tasks again: with an exchange
// that has no free slots, and so claims nothing.
func (e *Engine) expireClaims(ctx context.Context, in SweepRequest, out *SweepResult) error {
	n := e.graph.Queues()
	x := e.newExchange(ExchangeRequest{
		Worker: in.Worker, FreeSlots: make([]int, n), ClaimFrom: make([]bool, n), PromoteDue: make([]bool, n),
		OnlyTasks: in.OnlyTasks,
	})
	x.origin = originSweep
	clear(out.MoreReady)
	x.result.MoreReady, x.result.NextDue = out.MoreReady, out.NextDue
	e.queueSettings(ctx, &x.batch, false, originSweep, in.Worker)
	for i := range n {
		stage, _ := e.graph.QueueStage(i)
		x.batch.Queue(e.sql.expireClaims[i], in.MaxAttempts[stage]).QueryRow(func(row pgx.Row) error {
			var expired, orphaned int
			err := row.Scan(&expired, &orphaned)
			out.ExpiredClaims, out.RowsLocked = out.ExpiredClaims+expired, out.RowsLocked || expired < orphaned
			return err
		})
		x.request.ClaimFrom[i], x.request.PromoteDue[i] = true, true
		x.queuePromote(i)
		x.queueClaims(i)
	}
	return e.db.SendBatch(ctx, &x.batch).Close()
}
