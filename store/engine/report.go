package engine

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/statement"
	"github.com/cuelight/cuelight/store"
)

// Outcome is how an attempt ended.
type Outcome string

// The outcomes that a worker reports. The history has two more: expired, of a lost
// worker's claim, and cancelled, of a claim that was revoked.
const (
	Completed Outcome = "completed"
	Divided   Outcome = "divided"  // the stage was divided into parts; see Report.Counted
	Failed    Outcome = "failed"   // the work returned an error
	Released  Outcome = "released" // the worker returned the claim; not counted as an attempt

	expired Outcome = "expired" // by a sweep
)

// Report is the outcome of an attempt.
type Report struct {
	Task    store.ID
	Stage   int
	Part    int // as of the Claim
	Token   store.ID
	Outcome Outcome

	Result json.RawMessage   // of a completed stage or part; nil is null
	Parts  []json.RawMessage // of a divided stage: the specs of its parts, at least one

	// Of a stage that its join divides again: the numbers of the completed parts that stay as they are, whose
	// specs are ignored, not of all; and whether the join counts as an attempt, because of Error. Other
	// divisions do not.
	Kept    []int
	Counted bool

	Error   string        // why an attempt failed, a claim was released, or a stage was divided again
	Class   string        // the kind of error, one word, for the history
	Dead    bool          // of a failed attempt: it was the last, the stage is dead
	RetryIn time.Duration // otherwise: the delay before the stage is ready again
}

// The statements of this file end claims. Each first locks the reported steps, which match their tokens, and their
// tasks. What another transaction has locked is skipped, and reported again, so that no worker waits for another; the
// order of locks does not matter for the same reason. Then it writes the history, changes the steps, and sets the
// statuses. The triggers open the next steps. Locked rows are read and changed by their addresses (ctid): that is the
// cheapest way, and the same one in every plan. Where a row was changed after the statement began, its locked version has
// another address, at which this statement sees nothing: so it does nothing, and the report is sent again.

// completeStagesSQL completes stages. Their steps go.
const completeStagesSQL = `
/* complete stages */
with reported as materialized (
  select r.*, held.*, s.attempts, s.locked_at, s.locked_by, s.turn
    from unnest($1::uuid[], $2::text[], $3::integer[], $4::uuid[], $5::text[])
         as r (task_id, stage, part, token, result)
   cross join lateral (
         select s.ctid as step, t.ctid as task
           from {steps} s join {tasks} t on t.id = s.task_id
          where s.task_id = r.task_id and s.stage = r.stage and s.part = r.part and s.token = r.token
            for no key update of s, t skip locked) as held
    join {steps} s on s.ctid = held.step
    join {tasks} t on t.ctid = held.task
), history as (
  insert into {attempts} (task_id, token, stage, attempt, worker_id, started_at, outcome, result)
  select task_id, token, stage, attempts, locked_by, locked_at, 'completed', result::jsonb from reported
), ended as (
  delete from {steps} where ctid = any (array(select step from reported))
), flipped as (
  update {tasks} t set
         {flip: 'completed'},
         turn = c.turn, updated_at = now()
    from (select task, array_agg(stage) as stages, max(turn) as turn from reported group by task) as c
   where t.ctid = c.task
)
select token from reported`

// completePartsSQL completes parts. They stay, with their results; the last one makes the stage ready for its join. The step
// of the stage, part 0, counts its open parts. Its turn stays: turns of parts do not compare to those of stages.
const completePartsSQL = `
/* complete parts */
with reported as materialized (
  select r.*, held.*, s.attempts, s.locked_at, s.locked_by
    from unnest($1::uuid[], $2::text[], $3::integer[], $4::uuid[], $5::text[])
         as r (task_id, stage, part, token, result)
   cross join lateral (
         select s.ctid as step, whole.ctid as whole, t.ctid as task
           from {steps} s
           join {steps} whole on whole.task_id = s.task_id and whole.stage = s.stage and whole.part = 0
           join {tasks} t on t.id = s.task_id
          where s.task_id = r.task_id and s.stage = r.stage and s.part = r.part and s.token = r.token
            for no key update of s, whole, t skip locked) as held
    join {steps} s on s.ctid = held.step
    join {steps} whole on whole.ctid = held.whole
    join {tasks} t on t.ctid = held.task
), history as (
  insert into {attempts} (task_id, token, stage, part, attempt, worker_id, started_at, outcome)
  select task_id, token, stage, part, attempts, locked_by, locked_at, 'completed' from reported
), ended as (
  update {steps} s
     set status = 'completed', ready_at = s.locked_at, token = null, locked_at = null, locked_by = null,
         result = r.result::jsonb
    from reported r
   where s.ctid = r.step
), counted as (
  update {steps} s
     set open_parts = s.open_parts - d.n,
         status = case when s.open_parts = d.n and s.status = 'divided' then 'ready' else s.status end,
         ready_at = now()
    from (select whole, count(*) as n from reported group by whole) as d
   where s.ctid = d.whole
  returning s.task_id, s.stage, s.status
), flipped as (
  update {tasks} t set
         {flip: 'pending'},
         updated_at = now()
    from (select r.task, array_agg(distinct c.stage) as stages
            from counted c join reported r on r.task_id = c.task_id and r.stage = c.stage
           where c.status = 'ready' group by r.task) as c
   where t.ctid = c.task
)
select token from reported`

// divideSQL ends the claim of a stage that was divided, and makes its parts: new ones are inserted, those of an earlier
// division that are not kept are made new, and those that are too many are deleted. Each part has a turn of its own,
// so that a short task behind a long one begins soon. The claim is not an attempt unless the report counts it.
const divideSQL = `
/* divide a stage */
with reported as materialized (
  select r.*, held.*, s.attempts, s.locked_at, s.locked_by, s.rank, s.user_id, t.placement -> r.stage as placement
    from (values ($1::uuid, $2::text, $3::integer, $4::uuid, $5::integer, $6::integer[], $7::text[], $8::boolean,
                  $9::text, $10::text)) as r (task_id, stage, part, token, parts, made, specs, counted, class, error)
   cross join lateral (
         select s.ctid as step, t.ctid as task
           from {steps} s join {tasks} t on t.id = s.task_id
          where s.task_id = r.task_id and s.stage = r.stage and s.part = r.part and s.token = r.token
            for no key update of s, t skip locked) as held
    join {steps} s on s.ctid = held.step
    join {tasks} t on t.ctid = held.task
), history as (
  insert into {attempts} (task_id, token, stage, attempt, worker_id, started_at, outcome, error_class, error, result)
  select task_id, token, stage, attempts, locked_by, locked_at, 'divided',
         case when counted then class end, case when counted then error end,
         jsonb_build_object('parts', parts, 'kept', nullif(parts - cardinality(made), 0))
    from reported
), divided as (
  update {steps} s
     set status = 'divided', parts = r.parts, open_parts = cardinality(r.made),
         attempts = s.attempts - (not r.counted)::integer,
         token = null, locked_at = null, locked_by = null
    from reported r
   where s.ctid = r.step
), surplus as (
  delete from {steps} s using reported r
   where s.task_id = $1 and s.task_id = r.task_id and s.stage = r.stage and s.part > r.parts
), made as (
  insert into {steps} (task_id, stage, part, spec, rank, user_id, placement, line, turn)
  select r.task_id, r.stage, p.part, p.spec::jsonb, r.rank, r.user_id, r.placement, r.line, r.turn + p.n - 1
    from (select r.*, cuelight_{name}_next_turn(rank, user_id, line) as turn
            from (select *, cuelight_{name}_line(rank, user_id, cardinality(made)) as line
                    from reported offset 0) as r offset 0) as r
   cross join lateral unnest(r.made, r.specs) with ordinality as p (part, spec, n)
      on conflict (task_id, stage, part) do update set
         spec = excluded.spec, rank = excluded.rank, user_id = excluded.user_id, placement = excluded.placement,
         line = excluded.line, turn = excluded.turn, ready_at = excluded.ready_at, status = 'ready', attempts = 0,
         result = null
), flipped as (
  update {tasks} t set
         {flip: 'divided'},
         updated_at = now()
    from (select task, array_agg(stage) as stages from reported group by task) as c
   where t.ctid = c.task
)
select token from reported`

// failSQL ends claims that were not completed. Failed and expired ones are tried again later, or are dead; released ones
// are ready again, perhaps after a delay. A dead part makes its stage dead, and stops the other parts that are open; one
// that another transaction has locked is stopped by the next sweep.
const failSQL = `
/* fail or release */
with reported as materialized (
  select r.*, held.*, s.attempts, s.locked_at, s.locked_by, r.dead and r.part = 0 and s.parts is null as is_gone,
         case when r.retry_in > 0 then now() + make_interval(secs => r.retry_in) end as run_at
    from unnest($1::uuid[], $2::text[], $3::integer[], $4::uuid[], $5::text[], $6::boolean[], $7::float8[],
                $8::text[], $9::text[])
         as r (task_id, stage, part, token, outcome, dead, retry_in, class, error)
   cross join lateral (
         select s.ctid as step, whole.ctid as whole, t.ctid as task
           from {steps} s
           join {steps} whole on whole.task_id = s.task_id and whole.stage = s.stage and whole.part = 0
           join {tasks} t on t.id = s.task_id
          where s.task_id = r.task_id and s.stage = r.stage and s.part = r.part and s.token = r.token
            for no key update of s, whole, t skip locked) as held
    join {steps} s on s.ctid = held.step
    join {steps} whole on whole.ctid = held.whole
    join {tasks} t on t.ctid = held.task
), died as materialized (
  select distinct task_id, stage from reported where dead
), history as (
  insert into {attempts} (task_id, token, stage, part, attempt, worker_id, started_at, outcome, error_class,
                          error, retry_at)
  select task_id, token, stage, part, attempts, locked_by, locked_at, outcome::cuelight_outcome, class, error,
         case when not dead and outcome <> 'released' then coalesce(run_at, now()) else run_at end
    from reported
), gone as (
  delete from {steps} where ctid = any (array(select step from reported where is_gone))
), stopped as (
  update {steps} s
     set status = 'stopped', run_at = null, token = null, locked_at = null, locked_by = null,
         attempts = s.attempts
                    - coalesce(s.token in (select token from reported where outcome = 'released'), false)::integer
   where s.ctid = any (array(
         select open.step
           from died d
          cross join lateral (
                select s.ctid as step from {steps} s
                 where s.task_id = d.task_id and s.stage = d.stage and s.status not in ('completed', 'stopped')
                   and (s.part > 0 or s.parts is not null)
                   for no key update skip locked) as open))
), returned as (
  update {steps} s
     set status = case when r.run_at is null then 'ready' else 'waiting' end::cuelight_step_status, run_at = r.run_at,
         ready_at = now(), attempts = greatest(s.attempts - (r.outcome = 'released')::integer, 0),
         token = null, locked_at = null, locked_by = null
    from reported r
   where s.ctid = r.step and (r.task_id, r.stage) not in (select task_id, stage from died)
), flipped as (
  update {tasks} t set
         {flip: c.statuses[array_position(c.stages, STAGE)]},
         updated_at = now()
    from (select task, array_agg(stage) as stages, array_agg(status) as statuses
            from (select task, stage,
                         max(case when dead then 'dead' when outcome = 'released' then 'pending'
                                  else 'failed' end::cuelight_status) as status
                    from reported where part = 0 or dead group by task, stage) as ended
           group by task) as c
   where t.ctid = c.task
)
select token from reported`

// sortedReports are the reports of an exchange by the statement that they need.
type sortedReports struct{ stages, parts, divided, failed []*Report }

// sortReports sorts them. Of two with the same token only the first counts.
func sortReports(all []Report) (s sortedReports) {
	seen := make(map[store.ID]bool, len(all))
	for i := range all {
		r := &all[i]
		if seen[r.Token] {
			continue
		}
		seen[r.Token] = true
		switch {
		case r.Outcome == Divided:
			s.divided = append(s.divided, r)
		case r.Outcome != Completed:
			s.failed = append(s.failed, r)
		case r.Part > 0:
			s.parts = append(s.parts, r)
		default:
			s.stages = append(s.stages, r)
		}
	}
	return s
}

// queueReports queues the statements for reports; applied gets the tokens of those that changed a row.
func (e *Engine) queueReports(batch *pgx.Batch, all []Report, applied map[store.ID]bool) {
	s := sortReports(all)
	read := func(rows pgx.Rows) error {
		var token store.ID
		_, err := pgx.ForEachRow(rows, []any{&token}, func() error {
			applied[token] = true
			return nil
		})
		return err
	}
	if len(s.parts) > 0 {
		batch.Queue(e.sql.completeParts, append(e.claimArgs(s.parts), results(s.parts))...).Query(read)
	}
	if len(s.failed) > 0 {
		batch.Queue(e.sql.fail, append(e.claimArgs(s.failed), failureArgs(s.failed)...)...).Query(read)
	}
	// One after the other, so that each sees the turns of the parts before.
	slices.SortFunc(s.divided, func(a, b *Report) int { return bytes.Compare(a.Task[:], b.Task[:]) })
	for _, r := range s.divided {
		batch.Queue(e.sql.divide, e.divideArgs(r)...).Query(read)
	}
	if len(s.stages) > 0 { // last, so that the end of a task is its last event
		batch.Queue(e.sql.completeStages, append(e.claimArgs(s.stages), results(s.stages))...).Query(read)
	}
}

// claimArgs are the tasks, stages, parts and tokens of reports.
func (e *Engine) claimArgs(reports []*Report) []any {
	n := len(reports)
	tasks, tokens, stages, parts := make([]store.ID, n), make([]store.ID, n), make([]string, n), make([]int32, n)
	for i, r := range reports {
		tasks[i], stages[i], parts[i], tokens[i] = r.Task, e.stages[r.Stage], int32(r.Part), r.Token
	}
	return []any{tasks, stages, parts, tokens}
}

func results(reports []*Report) []*string {
	all := make([]*string, len(reports))
	for i, r := range reports {
		if r.Result != nil {
			text := string(r.Result)
			all[i] = &text
		}
	}
	return all
}

func failureArgs(reports []*Report) []any {
	n := len(reports)
	outcomes, dead, retryIn := make([]string, n), make([]bool, n), make([]float64, n)
	classes, errs := make([]string, n), make([]string, n)
	for i, r := range reports {
		outcomes[i], dead[i], classes[i], errs[i] = string(r.Outcome), r.Dead, r.Class, statement.CleanText(r.Error)
		if !r.Dead {
			retryIn[i] = r.RetryIn.Seconds()
		}
	}
	return []any{outcomes, dead, retryIn, classes, errs}
}

// divideArgs are the arguments of divideSQL. Parts that are kept are not made.
func (e *Engine) divideArgs(r *Report) []any {
	kept := make(map[int]bool, len(r.Kept))
	for _, part := range r.Kept {
		kept[part] = true
	}
	made, specs := []int32{}, []string{}
	for i, spec := range r.Parts {
		if !kept[i+1] {
			made, specs = append(made, int32(i+1)), append(specs, cmp.Or(string(spec), "null"))
		}
	}
	return []any{
		r.Task, e.stages[r.Stage], r.Part, r.Token, len(r.Parts), made, specs, r.Counted, r.Class, statement.CleanText(r.Error),
	}
}
