package store

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Sweep is what the slow pass needs to know.
type SweepRequest struct {
	// Worker is who makes it. It is not given up.
	Worker ID
	// Judge is how others are judged; nil for giving up nobody.
	Credit *OutageCredit
	// Clock is what the database's clock should say, as far as the worker
	// knows. Where it says something else it was changed, or the worker itself
	// stood still, and nobody is given up. Zero for not known.
	ExpectedClock time.Time
	// MaxAttempts is, by stage, how often it is tried: a claim whose worker
	// went away counts as an attempt, so that a task which kills its workers
	// ends dead.
	MaxAttempts []int
	// Only are the tasks to look for; nil for all.
	OnlyTasks []ID
	// AgeAfter is how long a task waits behind others of higher priority before it is
	// Aged. Zero for no end.
	AgeAfter time.Duration
}

// Swept is what the slow pass found.
type SweepResult struct {
	ExpiredWorkers []ID // workers given up
	ExpiredClaims  int  // claims taken from workers that were given up, or stopped
	RowsLocked     bool // there are more, whose rows somebody else had locked: sweep again
	// Unended are workers that are gone and have left a transaction open, with its
	// locks, which this role may not end.
	OpenTransactions []ID
	// Left and Next are those of [Turned], for all stages.
	MoreReady []bool
	NextDue   []time.Duration
	// Aged are, by stage, tasks to claim before others of higher priority; nil where
	// nobody asked.
	Aged [][]ID
}

// endBackends ends the transactions that workers have left open which are gone, or
// were given up: their processes stand still. Until then they have rows locked, the
// worker's own, too, and hold up the readers of events. Anybody may give his session any
// name, so only one that is an id is taken for one.
const endBackendsSQL = `
/* end transactions of workers that are gone */
select w.id, case when (pg_has_role(b.usesysid, 'usage') or pg_has_role('pg_signal_backend', 'usage'))
                   and (me.rolsuper or not theirs.rolsuper) then pg_terminate_backend(b.pid) else false end
  from (select pid, usesysid, xact_start,
               case when application_name ~ '^cuelight [0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then substr(application_name, 10)::uuid end as worker
          from pg_stat_activity
         where datname = current_database()
        offset 0) b
  join workers w on w.id = b.worker
  join pg_roles theirs on theirs.oid = b.usesysid
  join pg_roles me on me.rolname = current_user
 where w.pipeline = $2 and w.id is distinct from $1
   and (w.stopped_at is not null or w.lost_at is not null or ` + expiredSQL + ` and ` + clockSQL + `)
   and coalesce(b.xact_start < clock_timestamp() - ` + graceSQL + `, true)`

// clock: the database's clock says what is expected of it. It does not, either, for
// somebody whose question had to wait.
const clockSQL = `($5::timestamptz is null or clock_timestamp() between $5 - interval '2 s' and $5 + interval '2 s')`

// lose gives up the workers that are gone. Two things must be true of each: it
// gives no sign of life, and neither does the youngest of its claims. Whoever is
// beating just now has the row locked, and is passed over.
const expireWorkersSQL = `
/* give up workers */
with lost as (
  update workers set lost_at = now(), running = '[]'
   where id in (
         select id from workers w
          where pipeline = $2 and stopped_at is null and lost_at is null and id is distinct from $1
            and ` + expiredSQL + `
            and ` + clockSQL + `
            and not exists (select from {{.Tasks}} t
                             where ({{.Any "t." "inprogress"}})
                               and ({{range $i, $s := .Stages}}{{if $i}}
                                 or {{end}}t.{{.Name}}_locked_by = w.id and t.{{.Name}}_locked_at > now() - ` + graceSQL + `{{end}}))
            for no key update skip locked)
  returning id, host, pid
), told as (` + workerLostEventsSQL + `)
select id from lost`

// lapse: what was held by a worker that was given up is free again, or dead
// when it has been tried often enough; what was left by one that stopped in
// good order, and could not hand it in, was not its fault, nor was what a dump found
// in progress and brought to where its worker never was. Rows are chosen first
// and locked by their tokens then: a claim that was freed and taken anew in
// between is another one.
const expireClaimsSQL = `
/* lapse {{.Stage.Name}} */
with gone as materialized (
  select t.id, t.{{.Stage.Name}}_token as token,
         w.id is not null and w.lost_at is null
           or coalesce(w.registered_in <> (select cuelight_database_id()), false) as released,
         case when w.id is null then 'its worker went away'
              when w.registered_in <> (select cuelight_database_id())
              then format('its worker, process %s on %s, worked on the database that this one was restored from', w.pid, w.host)
              when w.lost_at is null then format('its worker, process %s on %s, stopped', w.pid, w.host)
              else format('its worker, process %s on %s, went away', w.pid, w.host) end as error
    from {{.Tasks}} t
    left join workers w on w.id = t.{{.Stage.Name}}_locked_by
   where ({{.Any "t." "inprogress"}})
     and t.{{.Stage.Name}}_status = 'inprogress'
     and (w.id is null or w.stopped_at is not null or w.lost_at is not null)
), lapsed as materialized (
  select t.id, gone.token, gone.released, gone.error, t.{{.Stage.Name}}_attempts as attempt,
         t.{{.Stage.Name}}_locked_by as locked_by, t.{{.Stage.Name}}_locked_at as locked_at
    from gone
    join {{.Tasks}} t on t.id = gone.id and t.{{.Stage.Name}}_token = gone.token
     for no key update of t skip locked
), moved as (
  update {{.Tasks}} t set
         {{.Stage.Name}}_status    = case when lapsed.released then 'pending' when lapsed.attempt >= $1 then 'dead' else 'failed' end::cuelight_status,
         {{.Stage.Name}}_attempts  = greatest({{.Stage.Name}}_attempts - lapsed.released::int, 0),
         {{.Stage.Name}}_token     = null,
         {{.Stage.Name}}_locked_at = null,
         {{.Stage.Name}}_locked_by = null
    from lapsed
   where t.id = lapsed.id and t.{{.Stage.Name}}_token = lapsed.token
), kept as (
  insert into {{.Attempts}} (task_id, token, stage, attempt, worker_id, started_at, outcome, retry_at, error_class, error)
  select id, token, '{{.Stage.Name}}', attempt, locked_by, locked_at,
         case when released then 'released' else 'expired' end::cuelight_outcome,
         case when not released and attempt < $1 then now() end, case when not released then 'expired' end, error
    from lapsed
)
select (select count(*) from lapsed), (select count(*) from gone)`

// survey: whether anybody who is gone holds something and, per stage, what look
// tells of it. On a quiet day this is the whole sweep.
const surveySQL = `
/* survey */
select exists (select from {{.Tasks}} t where ({{.Any "t." "inprogress"}})
                  and ({{range $i, $s := .Stages}}{{if $i}}
                    or {{end}}t.{{.Name}}_status = 'inprogress' and not {{$.Alive (print "t." .Name "_locked_by")}}{{end}}))
       {{- range .Stages}},` + readyColumnsSQL + `{{end}}`

// Sweep is the slow pass: it gives up workers that are silent, frees what they
// held, makes ready what waited for a time that has come, and looks for anything
// that is ready although nobody was told. Where there is nothing to do but to
// look, it is one round trip of three statements; else it is two, and each is a
// transaction: with an error there may be workers Lost already.
func (s *Store) Sweep(ctx context.Context, in SweepRequest) (SweepResult, error) {
	stages := len(s.graph.nodes)
	out := SweepResult{MoreReady: make([]bool, stages), NextDue: noneDue(stages)}
	gone, err := s.survey(ctx, in, &out)
	if err == nil && (gone || slices.Contains(out.NextDue, 0)) {
		err = s.expireClaims(ctx, in, &out)
	}
	return out, s.explain("sweep", err)
}

func (s *Store) survey(ctx context.Context, in SweepRequest, out *SweepResult) (gone bool, err error) {
	var batch pgx.Batch
	queueSettings(ctx, &batch, false, originSweep, in.Worker)
	s.queueExpireWorkers(&batch, in, out)
	s.queueAged(&batch, in, out)
	next := make([]*float64, len(out.NextDue))
	batch.Queue(s.sql.survey, in.OnlyTasks).QueryRow(func(row pgx.Row) error {
		dest := []any{&gone}
		for i := range out.MoreReady {
			dest = append(dest, &out.MoreReady[i], &next[i])
		}
		return row.Scan(dest...)
	})
	if err = s.db.SendBatch(ctx, &batch).Close(); err != nil {
		out.ExpiredWorkers, out.OpenTransactions = nil, nil // rolled back, or not known
		return false, err
	}
	for i := range next {
		out.NextDue[i] = secondsToDue(next[i])
	}
	return gone, nil
}

// queueJudgement gives up the workers that are gone, and ends what they left open.
func (s *Store) queueExpireWorkers(batch *pgx.Batch, in SweepRequest, out *SweepResult) {
	grace, lease := in.Credit.args()
	var clock *time.Time
	if !in.ExpectedClock.IsZero() {
		clock = &in.ExpectedClock
	}
	args := []any{in.Worker, s.graph.name, grace, lease, clock}
	batch.Queue(endBackendsSQL, args...).Query(func(rows pgx.Rows) error {
		var worker ID
		var ended bool
		_, err := pgx.ForEachRow(rows, []any{&worker, &ended}, func() error {
			if ended {
				out.RowsLocked = true // for a moment still
			} else {
				out.OpenTransactions = append(out.OpenTransactions, worker)
			}
			return nil
		})
		return err
	})
	if in.Credit == nil {
		return
	}
	batch.Queue(s.sql.lose, args...).Query(func(rows pgx.Rows) (err error) {
		out.ExpiredWorkers, err = pgx.CollectRows(rows, pgx.RowTo[ID])
		return err
	})
}

// tidy does what the survey has found to do, and looks again.
func (s *Store) expireClaims(ctx context.Context, in SweepRequest, out *SweepResult) error {
	stages := len(s.graph.nodes)
	clear(out.MoreReady)
	// To look and to claim nothing is a turn without free slots.
	look := exchange{
		store: s, origin: originSweep, mayBecomeReady: make([]int, stages), retried: make([]bool, stages), agedSlots: make([]int, stages),
		request: ExchangeRequest{FreeSlots: make([]int, stages), ClaimFrom: make([]bool, stages), PromoteDue: make([]bool, stages), OnlyTasks: in.OnlyTasks},
		result:  ExchangeResult{MoreReady: out.MoreReady, NextDue: out.NextDue},
	}
	queueSettings(ctx, &look.batch, false, originSweep, in.Worker)
	for i := range stages {
		look.batch.Queue(s.sql.lapse[i], in.MaxAttempts[i]).QueryRow(func(row pgx.Row) error {
			var lapsed, gone int
			err := row.Scan(&lapsed, &gone)
			out.ExpiredClaims, out.RowsLocked = out.ExpiredClaims+lapsed, out.RowsLocked || lapsed < gone
			return err
		})
		look.request.ClaimFrom[i], look.request.PromoteDue[i] = true, true
		look.queuePromote(i)
		look.queueClaimStage(i)
	}
	return s.db.SendBatch(ctx, &look.batch).Close()
}
