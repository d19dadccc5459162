package engine

import (
	"encoding/json"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/statement"
	"github.com/cuelight/cuelight/store"
)

// The statements of this file change the parts of divided stages. Those that also change the task
// lock its row first, as the triggers do that change the parts of a task. They find parts by lateral
// subqueries: a connection that made its plans while the table was empty would join by reading all of it.

// divideSQL ends claims of a stage that was divided, and makes its parts: new ones are inserted, those of an
// earlier division that are not kept are made new, and those that are too many are deleted. The stage is
// claimed again when all are completed. The claim is not counted as an attempt unless the report says so.
// Where triggers were disabled there may be old parts that are open; they are deleted, and the report is
// applied when it is sent again. Completed parts are replaced in the same statement, so that no join finds
// some missing.
//
// Tasks of one priority are claimed by turns: the first part of a newly divided task has the turn
// that the next ready part of another task has, and each further part the next one. So a short
// task behind a long one begins soon, and the long one goes on while short ones arrive.
const divideSQL = `
/* divide {{.Stage.Name}} */
with locked as materialized (
  select id, priority, placement, {{.Stage.Name}}_token as token, {{.Stage.Name}}_attempts as attempt,
         {{.Stage.Name}}_locked_by as locked_by, {{.Stage.Name}}_locked_at as locked_at
    from {{.Tasks}} where id = any($2::uuid[]) for no key update skip locked
), matched as materialized (
  select locked.*, r.parts, r.made::int4[] as made, r.specs::jsonb as specs, r.counted, r.class, r.error
    from locked
    join unnest($2::uuid[], $3::uuid[], $4::int4[], $5::text[], $6::text[], $7::bool[], $8::text[], $9::text[])
         as r (id, token, parts, made, specs, counted, class, error) on r.id = locked.id and r.token = locked.token
), leftover as (
  delete from {{.Parts}}
   where task_id in (select id from matched) and stage = '{{.Stage.Name}}' and status <> 'completed' returning task_id
), divided as materialized (
  select matched.*, coalesce((
         select turn - 1 from {{.Parts}} p
          where {{.Stage.PartReady "p."}} and p.priority = matched.priority
          order by p.priority desc, turn limit 1), 0) as turn
    from matched
   where id not in (select task_id from leftover)
), dropped as (
  delete from {{.Parts}}
   where ctid = any (array(
         select surplus.row_ctid
           from divided
          cross join lateral (
                select ctid as row_ctid from {{.Parts}}
                 where task_id = divided.id and stage = '{{.Stage.Name}}' and part > divided.parts offset 0) as surplus))
), inserted as (
  insert into {{.Parts}} (task_id, stage, part, spec, priority, turn, placement)
  select id, '{{.Stage.Name}}', s.part, s.spec, priority, turn + s.n, placement
    from divided
   cross join lateral rows from (unnest(made), jsonb_array_elements(specs)) with ordinality as s (part, spec, n)
      on conflict (task_id, stage, part) do update set
         spec = excluded.spec, priority = excluded.priority, turn = excluded.turn, placement = excluded.placement,
         ready_at = excluded.ready_at, status = 'pending', attempts = 0, result = null
), updated as (
  update {{.Tasks}} t set
         {{.Stage.Name}}_status     = 'divided',
         {{.Stage.Name}}_attempts   = greatest({{.Stage.Name}}_attempts - (not counted)::int, 0),
         {{.Stage.Name}}_token      = null,
         {{.Stage.Name}}_locked_at  = null,
         {{.Stage.Name}}_locked_by  = null,
         {{.Stage.Name}}_parts      = divided.parts,
         {{.Stage.Name}}_open_parts = cardinality(made),
         ready_at = coalesce(t.ready_at, t.created_at)
    from divided
   where t.id = divided.id
), history as (
  insert into {{.Attempts}} (task_id, token, stage, attempt, worker_id, started_at, outcome, error_class, error)
  select id, token, '{{.Stage.Name}}', attempt, locked_by, locked_at, 'divided',
         case when counted then class end, case when counted then error end
    from divided
), recorded as (
  insert into {{.Outbox}} (type, worker_id, task_id, stage, attempt, token, data)
  select 'divided', $1, id, '{{.Stage.Name}}', attempt, case when counted then token end,
         jsonb_strip_nulls(jsonb_build_object('parts', parts, 'kept', nullif(parts - cardinality(made), 0)))
    from divided order by id
), notified as materialized (
  select count(pg_notify('{{.Stage.Channel}}', ''))
    from (select from divided limit 1) as any_task where pg_notification_queue_usage() < 0.9
)
select token from divided cross join notified`

// completePartsSQL completes parts of a stage. With the last part of a task its stage is pending
// again, to be joined, and its workers are notified.
const completePartsSQL = `
/* complete parts of {{.Stage.Name}} */
with locked as materialized (
  select id from {{.Tasks}} where id = any($2::uuid[]) for no key update skip locked
), completed as materialized (
  select p.row_ctid, p.task_id, p.part, p.token, p.attempts as attempt, p.locked_by, p.locked_at, r.result
    from locked
    join unnest($2::uuid[], $3::int4[], $4::uuid[], $5::text[]) as r (task, part, token, result) on r.task = locked.id
   cross join lateral (
         select *, ctid as row_ctid from {{.Parts}}
          where task_id = r.task and stage = '{{.Stage.Name}}' and part = r.part and token = r.token
            for no key update skip locked) as p
   where ` + unchangedSQL + `
), updated as (
  update {{.Parts}} p set
         status = 'completed', token = null, locked_at = null, locked_by = null, ready_at = p.locked_at,
         result = completed.result::jsonb
    from completed
   where p.ctid = completed.row_ctid
), counted as (
  update {{.Tasks}} t set
         {{.Stage.Name}}_open_parts = {{.Stage.Name}}_open_parts - c.parts,
         {{.Stage.Name}}_status     = case when {{.Stage.Name}}_open_parts = c.parts and {{.Stage.Name}}_status = 'divided'
                                           then 'pending' else {{.Stage.Name}}_status end
    from (select task_id, count(*) as parts from completed group by task_id) as c
   where t.id = c.task_id
  returning {{.Stage.Name}}_open_parts = 0 as may_join
), history as (
  insert into {{.Attempts}} (task_id, token, stage, part, attempt, worker_id, started_at, outcome)
  select task_id, token, '{{.Stage.Name}}', part, attempt, locked_by, locked_at, 'completed' from completed
), recorded as (
  insert into {{.Outbox}} (type, worker_id, stage, tasks, parts, attempts)
  select 'part_completed', $1, '{{.Stage.Name}}', array_agg(task_id), array_agg(part), array_agg(attempt)
    from completed having count(*) > 0
), joins as materialized (
  select coalesce(bool_or(may_join), false) as ready from counted
), notified as materialized (
  select count(pg_notify('{{.Stage.Channel}}', '')) from joins where ready and pg_notification_queue_usage() < 0.9
)
select token, joins.ready from completed cross join joins cross join notified`

// failPartsSQL ends claims of parts that were not completed, as failSQL does for stages. Where a
// part is dead, the stage is, and its other open parts are cancelled. If one of these is locked, the
// report is not applied. A cancel locks the task before its parts, so parts of a task that another
// transaction has locked are left for the next exchange: the cancel need not wait for this one.
const failPartsSQL = `
/* fail or release parts of {{.Stage.Name}} */
with reported as materialized (
  select * from unnest($1::uuid[], $2::int4[], $3::uuid[], $4::text[], $5::text[], $6::float8[], $7::text[], $8::text[])
           as r (task, part, token, outcome, status, retry_in, class, error)
), locked as materialized (
  select id from {{.Tasks}} where id in (select task from reported where status = 'dead') for no key update skip locked
), ` + siblingsSQL + `
  select p.row_ctid, p.task_id, p.part, p.token, p.attempts as attempt, p.locked_by, p.locked_at,
         r.outcome::cuelight_outcome, r.status::cuelight_status, r.class, r.error,
         case when r.retry_in > 0 then now() + make_interval(secs => r.retry_in) end as run_at
    from reported r
   cross join lateral (
         select p.*, p.ctid as row_ctid from {{.Parts}} p
           join {{.Tasks}} t on t.id = p.task_id
          where p.task_id = r.task and p.stage = '{{.Stage.Name}}' and p.part = r.part and p.token = r.token
            for no key update of p skip locked for key share of t skip locked) as p
   where (r.status <> 'dead' or r.task in (select id from locked) and r.task not in (select task_id from blocked))
     and ` + unchangedSQL + `
), ` + endPartsSQL + `
select token from failed`

// unchangedSQL is false for a locked part p that was changed since the statement's snapshot: no update
// would find its row by the place of the locked version.
const unchangedSQL = `(select true from {{.Parts}} q where q.ctid = p.row_ctid limit 1)`

// siblingsSQL locks the open parts of the tasks in locked, which get a dead part, and finds the tasks
// of which another transaction has locked some. It ends with the beginning of failed.
const siblingsSQL = `locked_parts as materialized (
  select ctid as row_ctid, task_id, part from {{.Parts}}
   where task_id in (select id from locked) and stage = '{{.Stage.Name}}' and status in ('pending', 'inprogress', 'failed')
     for no key update skip locked
), siblings as materialized (
  select * from locked_parts p where ` + unchangedSQL + `
), blocked as materialized (
  select task_id from {{.Parts}}
   where task_id in (select id from locked) and stage = '{{.Stage.Name}}' and status in ('pending', 'inprogress', 'failed')
     and (task_id, part) not in (select task_id, part from siblings)
), failed as materialized (`

// endPartsSQL changes the rows of failed, and records what happened. Where a part is dead, it cancels the
// open siblings, as the triggers do when an operator makes the stage dead: those may be disabled, and
// would wait for locks.
const endPartsSQL = `died as materialized (
  select distinct task_id from failed where status = 'dead'
), ended as materialized (
  select failed.*, status = 'failed' and task_id not in (select task_id from died) as again,
         case when status <> 'dead' and task_id in (select task_id from died) then 'cancelled' else status end as becomes
    from failed
), updated as (
  update {{.Parts}} p set
         status = ended.becomes, token = null, locked_at = null, locked_by = null, ready_at = now(),
         run_at = case when ended.becomes <> 'cancelled' then ended.run_at end,
         attempts = greatest(p.attempts - (ended.outcome = 'released')::int, 0)
    from ended
   where p.ctid = ended.row_ctid
), cancelled as (
  update {{.Parts}} p set status = 'cancelled', token = null, locked_at = null, locked_by = null, run_at = null
    from siblings
   where siblings.task_id in (select task_id from died)
     and (siblings.task_id, siblings.part) not in (select task_id, part from ended)
     and p.ctid = siblings.row_ctid
), stopped as (
  update {{.Tasks}} set {{.Stage.Name}}_status = 'dead'
   where id in (select task_id from died) and {{.Stage.Name}}_status = 'divided'
), history as (
  insert into {{.Attempts}} (task_id, token, stage, part, attempt, worker_id, started_at, outcome,
                            retry_at, error_class, error)
  select task_id, token, '{{.Stage.Name}}', part, attempt, locked_by, locked_at, outcome,
         case when again then coalesce(run_at, now()) when becomes = 'pending' then run_at end, class, error
    from ended
), recorded as (
  insert into {{.Outbox}} (type, worker_id, task_id, stage, part, attempt, token, data)
  select type, worker_id, task_id, '{{.Stage.Name}}', part, attempt, token, data
    from (select 1 as step, task_id, part, attempt, token, locked_by as worker_id, null::jsonb as data,
                 case outcome when 'released' then 'released' when 'expired' then 'attempt_expired' else 'attempt_failed' end
                   as type
            from ended
           union all
          select 2, task_id, part, attempt, token, null, jsonb_build_object('run_at', coalesce(run_at, now())),
                 'retry_scheduled'
            from ended where again) as happened
   order by step, task_id, part
)`

// expirePartsSQL ends the claims of lost and stopped workers on parts, as expireClaimsSQL does.
const expirePartsSQL = `
/* expire parts of {{.Stage.Name}} */
with orphaned as materialized (
  select p.task_id, p.part, p.token, p.attempts, ` + orphanColumnsSQL + `
    from {{.Parts}} p
    left join workers w on w.id = p.locked_by
   where p.status = 'inprogress' and p.stage = '{{.Stage.Name}}'
     and (w.id is null or w.stopped_at is not null or w.lost_at is not null)
), locked as materialized (
  select id from {{.Tasks}}
   where id in (select task_id from orphaned where attempts >= $1 and not released) for no key update skip locked
), ` + siblingsSQL + `
  select p.row_ctid, p.task_id, p.part, p.token, p.attempts as attempt, p.locked_by, p.locked_at,
         case when released then 'released' else 'expired' end::cuelight_outcome as outcome,
         case when released then 'pending' when p.attempts >= $1 then 'dead' else 'failed' end::cuelight_status as status,
         case when not released then 'expired' end as class, error, null::timestamptz as run_at
    from orphaned
   cross join lateral (
         select *, ctid as row_ctid from {{.Parts}}
          where task_id = orphaned.task_id and stage = '{{.Stage.Name}}' and part = orphaned.part and token = orphaned.token
            for no key update skip locked) as p
   where (released or orphaned.attempts < $1
          or p.task_id in (select id from locked) and p.task_id not in (select task_id from blocked))
     and ` + unchangedSQL + `
), ` + endPartsSQL + `
select (select count(*) from failed), (select count(*) from orphaned)`

// promotePartsSQL makes parts ready whose time has come. It locks the tasks as failPartsSQL does.
const promotePartsSQL = `
/* promote due parts of {{.Stage.Name}} */
update {{.Parts}} set run_at = null, ready_at = run_at
 where (task_id, stage, part) in (
       select task_id, stage, part from {{.Parts}} p
         join {{.Tasks}} t on t.id = p.task_id
        where stage = '{{.Stage.Name}}' and run_at <= now()
        order by run_at
        limit 1000
          for no key update of p skip locked for key share of t skip locked)`

const findLostPartsSQL = `
/* find lost claims of parts */
select r.token,
       p.task_id is null or exists (
         select from {{.Attempts}} a
          where a.task_id = r.task and a.token = r.token and a.outcome = 'cancelled' offset 0) as cancelled
  from unnest($1::uuid[], $2::text[], $3::int4[], $4::uuid[]) as r (task, stage, part, token)
  left join lateral (
       select * from {{.Parts}} where task_id = r.task and stage = r.stage and part = r.part limit 1) as p on true
 where (r.token = p.token) is not true`

// partReports are the reports of parts of one stage, and of tasks where it was divided.
type partReports struct{ divided, completed, failed []*Report }

func (p *partReports) add(r *Report) {
	switch r.Outcome {
	case Divided:
		p.divided = append(p.divided, r)
	case Completed:
		p.completed = append(p.completed, r)
	default:
		p.failed = append(p.failed, r)
	}
}

func (x *exchange) queueParts(stage int, reports partReports) {
	x.queueDivided(stage, reports.divided)
	x.queueCompletedParts(stage, reports.completed)
	x.queueFailedParts(stage, reports.failed)
}

// divided is the number of a stage among those that divide.
func (e *Engine) divided(stage int) int { return e.graph.Queue(stage, true) - len(e.stages) }

// queueDivided reports stages that were divided.
func (x *exchange) queueDivided(stage int, reports []*Report) {
	if len(reports) == 0 {
		return
	}
	var ids, tokens []store.ID
	var numbers []int32
	var made, specs, classes, errs []string
	var counted []bool
	for _, r := range reports {
		n, s := r.madeParts()
		ids, tokens, numbers = append(ids, r.Task), append(tokens, r.Token), append(numbers, int32(len(r.Parts)))
		made, specs, counted = append(made, n), append(specs, s), append(counted, r.Counted)
		classes, errs = append(classes, r.Class), append(errs, statement.CleanText(r.Error))
	}
	x.queueOrigin(originRecorded)
	x.markReady(x.graph.Queue(stage, true))
	x.batch.Queue(x.sql.divide[x.divided(stage)], x.request.Worker, ids, tokens, numbers, made, specs, counted, classes, errs).
		Query(x.readApplied)
}

// madeParts returns the numbers of the parts that are not kept, as an array of PostgreSQL, and their specs, as one
// of JSON: a parameter has those of all reports, which differ in length.
func (r *Report) madeParts() (numbers, specs string) {
	n, s := []byte{'{'}, []byte{'['}
	kept := make(map[int]bool, len(r.Kept))
	for _, part := range r.Kept {
		kept[part] = true
	}
	for i, spec := range r.Parts {
		if kept[i+1] {
			continue
		}
		if len(n) > 1 {
			n, s = append(n, ','), append(s, ',')
		}
		if spec == nil {
			spec = json.RawMessage("null")
		}
		n, s = strconv.AppendInt(n, int64(i+1), 10), append(s, spec...)
	}
	return string(append(n, '}')), string(append(s, ']'))
}

// readApplied reads the tokens of reports that changed a row.
func (x *exchange) readApplied(rows pgx.Rows) error {
	var token store.ID
	_, err := pgx.ForEachRow(rows, []any{&token}, func() error {
		x.applied[token] = true
		return nil
	})
	return err
}

// queueCompletedParts reports completed parts of a stage.
func (x *exchange) queueCompletedParts(stage int, reports []*Report) {
	for len(reports) > 0 {
		n := min(len(reports), maxBatch)
		var ids, tokens []store.ID
		var parts []int32
		var results []*string
		for _, r := range reports[:n] {
			ids, tokens, parts = append(ids, r.Task), append(tokens, r.Token), append(parts, int32(r.Part))
			results = append(results, r.resultText())
		}
		reports = reports[n:]
		x.queueOrigin(originRecorded)
		x.batch.Queue(x.sql.completeParts[x.divided(stage)], x.request.Worker, ids, parts, tokens, results).Query(func(rows pgx.Rows) error {
			var token store.ID
			var ready bool
			_, err := pgx.ForEachRow(rows, []any{&token, &ready}, func() error {
				x.applied[token] = true
				if ready {
					x.markReady(stage)
				}
				return nil
			})
			return err
		})
	}
}

// queueFailedParts reports failed and released parts of a stage.
func (x *exchange) queueFailedParts(stage int, reports []*Report) {
	if len(reports) == 0 {
		return
	}
	f, ready := newFailures(reports)
	if ready {
		x.markReady(x.graph.Queue(stage, true))
	}
	parts := make([]int32, len(reports))
	for i, r := range reports {
		parts[i] = int32(r.Part)
	}
	x.queueOrigin(originExchange)
	x.batch.Queue(x.sql.fail[x.graph.Queue(stage, true)], f.ids, parts, f.tokens, f.outcomes, f.statuses, f.retryIn,
		f.classes, f.errs).Query(x.readApplied)
}

// failures are the parameters of a statement that ends claims.
type failures struct {
	ids, tokens        []store.ID
	outcomes, statuses []string
	retryIn            []float64
	classes, errs      []string
}

// newFailures prepares reports of failed and released claims, and says whether one can be claimed again
// at once.
func newFailures(reports []*Report) (f failures, ready bool) {
	for _, r := range reports {
		status, in := store.StatusFailed, r.RetryIn.Seconds()
		switch {
		case r.Outcome == Released:
			status = store.StatusPending
		case r.Dead:
			status, in = store.StatusDead, 0
		}
		ready = ready || !r.Dead && in <= 0
		f.ids, f.tokens, f.retryIn = append(f.ids, r.Task), append(f.tokens, r.Token), append(f.retryIn, in)
		f.outcomes, f.statuses = append(f.outcomes, string(r.Outcome)), append(f.statuses, string(status))
		f.classes, f.errs = append(f.classes, r.Class), append(f.errs, statement.CleanText(r.Error))
	}
	return f, ready
}

// markReady says that the exchange made something ready in a queue.
func (x *exchange) markReady(queue int) {
	x.result.MoreReady[queue], x.result.NewlyReady[queue] = true, true
}
