package invariant

// rule is one promise. Its statement returns one line of text per violation. Its named arguments are those of
// [Options.args].
type rule struct {
	name     string
	sentence string
	sql      string
	applies  func(Options) bool // nil: always
}

var rules = []rule{
	{name: "committed",
		sentence: "the task of an acknowledged submission exists", sql: `
select format('there is no task of request %s', request)
  from unnest(@committed::text[]) as request
 where not exists (select from {tasks} where request_id = request)`},
	{name: "rolled-back",
		sentence: "the task of a submission that was rolled back does not exist", sql: `
select format('task %s of request %s exists', id, request_id)
  from {tasks}
 where request_id = any (@rolled_back::text[])`},
	{name: "settled",
		sentence: "once faults have stopped, every task is finished",
		applies:  func(o Options) bool { return o.Settled }, sql: `
select format('stage %s of task %s is %s, and could run%s', stage, task, status, ' at ' || run_at::text)
  from stages
 where part = 0 and (status in ('inprogress', 'divided') or status in ('pending', 'failed') and unblocked)`},
	{name: "live-owner",
		sentence: "once faults have stopped, the worker of each claim is registered and has neither stopped nor been lost",
		applies:  func(o Options) bool { return o.Settled }, sql: `
select format('stage %s of task %s is claimed by worker %s, which %s', stage, task, locked_by,
              case when w.id is null then 'is not registered'
                   when w.stopped_at is not null then 'has stopped'
                   else 'was lost' end)
  from stages
  left join {workers} w on w.id = locked_by
 where step = 'running' and (w.id is null or w.stopped_at is not null or w.lost_at is not null)`},
	// A worker's last sign of life is its stop, its loss, or its last heartbeat. A worker that is not
	// registered gave none.
	{name: "orphaned",
		sentence: "no claim outlives its worker by more than a lease and a sweep",
		applies:  func(o Options) bool { return o.MaxOrphanTime > 0 }, sql: `
select format('stage %s of task %s is claimed since %s by worker %s, last seen %s',
              stage, task, locked_at, locked_by, coalesce(seen.at::text, 'never'))
  from stages
  left join {workers} w on w.id = locked_by
 cross join lateral (select least(w.stopped_at, w.lost_at, w.heartbeat_at)) as seen (at)
 where step = 'running' and greatest(locked_at, seen.at) < now() - make_interval(secs => @max_orphan_s)`},
	{name: "unique-token",
		sentence: "no two claims have the same token", sql: `
select format('%s claims have token %s: %s', count(*), token,
              string_agg(format('%s of stage %s of task %s', outcome, stage, task), ', ' order by finished_at))
  from tries
 group by token
having count(*) > 1`},

	// Steps. Constraints and triggers see to these rules, as long as nobody drops or disables them.
	{name: "needs-completed",
		sentence: "no stage has started while a stage that it needs is not completed", sql: `
select format('stage %s of task %s is %s, but not all the stages it needs are completed', stage, task, status)
  from stages
 where part = 0 and status not in ('pending', 'cancelled') and not unblocked`},
	{name: "open-step",
		sentence: "a stage that is open and not blocked has one step of its own, and its status is that of the stage", sql: `
select format('stage %s of task %s is %s, but its step is %s', stage, task, status, coalesce(step, 'missing'))
  from stages
 where part = 0 and unblocked
   and not case status when 'pending' then coalesce(step in ('ready', 'waiting'), false)
                       when 'failed' then coalesce(step in ('ready', 'waiting'), false)
                       when 'inprogress' then step is not distinct from 'running'
                       when 'divided' then step is not distinct from 'divided'
                       else true end`},
	{name: "closed-step",
		sentence: "a stage that is finished or blocked has no step, except a stopped one if it was divided, and dead or cancelled", sql: `
select format('stage %s of task %s is %s%s, but its step is %s', stage, task, case when not unblocked then 'blocked and ' end,
              status, step)
  from stages
 where part = 0 and step is not null
   and case when not unblocked or status = 'completed' then true
            when status in ('dead', 'cancelled') then step <> 'stopped' or parts is null end
 union all
select format('there is a step of stage %s, part %s, of task %s, but no such task or stage', stage, part, task_id)
  from {steps}
 where stage <> all (@stages::text[]) or task_id not in (select id from {tasks})`},
	// The parts of a dead stage that another transaction had locked are stopped a sweep later.
	{name: "open-part",
		sentence: "a part is open only while its stage is divided, and stopped only while that is dead or cancelled", sql: `
select format('stage %s of task %s is %s, but stage %s is %s', p.stage, p.task, p.step, s.stage, s.status)
  from stages p
  join stages s on s.task = p.task and s.stage = p.node
 where p.part > 0
   and not case p.step when 'completed' then s.status = 'completed' or s.parts is not null
                       when 'stopped' then s.status in ('dead', 'cancelled')
                       else s.status = 'divided' or s.status = 'dead' and not @settled end`},
	{name: "open-parts",
		sentence: "the step of a divided stage counts its parts that are not completed; where it counts none, none is open", sql: `
select format('stage %s of task %s is %s and counts %s of %s parts as open, but %s of its %s parts are open, the last is number %s',
              stage, task, status, coalesce(open_parts::text, 'none'), coalesce(s.parts::text, 'no'), found.open, found.parts, found.last)
  from stages s
 cross join lateral (select count(*) as parts, count(*) filter (where p.step <> 'completed') as open,
                            coalesce(max(p.part), 0) as last
                       from stages p where p.task = s.task and p.node = s.stage and p.part > 0) as found
 where part = 0
   and (found.last <> found.parts or case when s.parts is null then found.open > 0
          else (s.parts, s.open_parts) is distinct from (found.parts, found.open) or (s.step = 'divided') <> (found.open > 0)
               and s.step <> 'stopped' end)`},
	{name: "step-order",
		sentence: "an open step has the user, the placement and the priority of its task, or a higher one if it was aged", sql: `
select format('the step of stage %s of task %s has rank %s, user %L and placement %s, but the task has priority %s, user %L, '
              'placement %s',
              s.stage, s.task, s.rank, s.user_id, coalesce(s.placement, 'null'), t.priority, t.user_id, coalesce(t.placement, 'null'))
  from stages s
  join {tasks} t on t.id = s.task
 where s.step not in ('completed', 'stopped')
   and (s.rank > -t.priority or s.user_id <> coalesce(t.user_id, '')
        or s.placement is distinct from
           case when s.part > 0 or s.node <> all (@divided::text[]) then t.placement -> s.node end)`},

	// The history.
	// For each stage that is needed, the latest try before the end of this one must be its
	// completion, and before the start of this one.
	{name: "needs-first",
		sentence: "each attempt started after the stages it needs were completed, and ended before they were started again", sql: `
select format('attempt %s at stage %s of task %s (%s to %s, %s) %s',
              r.attempt, r.stage, r.task, r.started_at, r.finished_at, r.outcome,
              case when n.outcome is null then format('needs %s, which had no attempt', needs.need)
                   else format('needs %s, whose attempt %s ended %s at %s',
                               needs.need, n.attempt, n.outcome, n.finished_at) end)
  from tries r
  join needs on needs.stage = r.node
  left join lateral (select attempt, outcome, finished_at from {attempts}
                      where task_id = r.task and stage collate "C" = needs.need and part = 0
                        and finished_at < r.finished_at
                      order by finished_at desc limit 1) n on true
 where n.outcome is distinct from 'completed'
    or n.finished_at > r.started_at + make_interval(secs => @max_transaction_s)`},
	// Only the first try of a stage counts. A task is ready for it when the tries of the needed stages
	// that started before it are completed. Those may end later than it starts: a worker that goes on
	// with a task starts its next stage with the transaction that ends the previous one.
	{name: "overtaken",
		sentence: "only a few later tasks of the same priority and user overtake a task that is ready",
		applies:  func(o Options) bool { return o.MaxOvertaking != nil }, sql: `
, first_tries as (
  select r.task, r.stage, r.started_at, t.priority, t.user_id,
         greatest(t.created_at, t.scheduled_at,
                  (select max(n.finished_at) from needs join {attempts} n on n.stage collate "C" = needs.need
                    where needs.stage = r.stage and n.task_id = r.task and n.part = 0
                      and n.outcome = 'completed' and n.started_at < r.started_at)) as ready
    from runs r
    join {tasks} t on t.id = r.task
   where r.attempt_before is null and r.part = 0
)
select format('stage %s of task %s was ready at %s and started at %s: %s later tasks of its priority overtook it',
              a.stage, a.task, a.ready, a.started_at, overtaking.n)
  from first_tries a
 cross join lateral (select count(*) as n from first_tries b
                      where b.stage = a.stage and b.priority = a.priority and b.task > a.task
                        and b.user_id is not distinct from a.user_id
                        and b.started_at > a.ready and b.started_at < a.started_at) as overtaking
 where overtaking.n > @max_overtaking::integer`},
	// A part may be made again by each division of its stage.
	{name: "completed-once",
		sentence: "without retries, a completed stage was completed exactly once, and any other stage never; a part so between divisions",
		applies:  func(o Options) bool { return o.NoRetries }, sql: `
select format('stage %s of task %s is %s, and was completed %s times', stage, task, max(status), count(token))
  from (select task, stage, part, status from stages) as s
  left join (select task, stage, token, division, division = divisions as is_latest
               from runs where outcome = 'completed') as completed using (task, stage)
 group by task, stage
having case when max(part) = 0 then count(token) <> (max(status) = 'completed')::integer
            else count(token) <> count(distinct division)
                 or case max(status) when 'completed' then count(token) = 0 else bool_or(is_latest) end end`},
	{name: "completed-stays",
		sentence: "a completed stage starts again only when an operator retries it, which resets its attempts", sql: `
select format('stage %s of task %s was completed, and started again with attempt %s (%s)', stage, task, attempt, outcome)
  from runs
 where outcome_before = 'completed' and attempt > 1`},
	// No status says that a part is dead. In the history its last attempt is the one that has no next.
	{name: "status-matches",
		sentence: "the status of a stage is the outcome of its latest attempt, or it is dead because a part is", sql: `
select format('stage %s of task %s is %s, but %s', stage, task, status,
              coalesce('its latest attempt is ' || outcome, 'has no attempt'))
  from stages
  left join (select task, stage, outcome from runs where is_latest) as latest using (task, stage)
 where case status when 'completed'  then outcome is distinct from 'completed'
                   when 'failed'     then outcome is null or outcome not in ('failed', 'expired')
                   when 'dead'       then outcome is null or outcome not in ('failed', 'expired')
                                          and not (outcome = 'divided' and (task, stage) in (
                                            select task, node from runs
                                             where part > 0 and is_latest and outcome in ('failed', 'expired') and retry_at is null))
                   when 'divided'    then outcome is distinct from 'divided'
                   when 'inprogress' then outcome is distinct from 'live'
                   else false end`},
	// An operator's retry starts at attempt 1 again. What an operator completed by hand is not numbered.
	{name: "attempt-numbers",
		sentence: "attempts are numbered without a gap: the history has the end of every claim, once", sql: `
select format('stage %s of task %s: attempt %s (%s) follows %s', stage, task, attempt, outcome,
              coalesce(format('attempt %s (%s)', attempt_before, outcome_before), 'none'))
  from runs
 where worker_id is not null and attempt not in (1, coalesce(attempt_before + counts_before::integer, 1))`},
	// Without retries no counter was reset.
	{name: "attempt-counter",
		sentence: "the counter of a step is the number of its attempts, without those that were released or divided it as planned", sql: `
select format('stage %s of task %s counts %s attempts, its history %s', stage, task, attempts, coalesce(latest.attempt, 0))
  from stages
  left join (select task, stage, attempt - (not counts)::integer as attempt, division < divisions as is_made_again
               from runs where is_latest) as latest using (task, stage)
 where attempts <> coalesce(latest.attempt, 0) and (attempts <> 0 or @no_retries and not (part > 0 and is_made_again))`},
	{name: "no-renumbering",
		sentence: "without retries, the numbers of attempts never start again, except at parts that are made again",
		applies:  func(o Options) bool { return o.NoRetries }, sql: `
select format('stage %s of task %s: attempt 1 (%s) follows attempt %s (%s)', stage, task, outcome, attempt_before, outcome_before)
  from runs
 where attempt = 1 and attempt_before + counts_before::integer <> 1 and (part = 0 or division = division_before)`},
	{name: "attempt-limit",
		sentence: "no stage has more attempts than allowed, nor is ready for one more",
		applies:  func(o Options) bool { return o.MaxAttempts != nil }, sql: `
select format('stage %s of task %s %s: attempt %s of at most %s', stage, task, what, n, allowed)
  from (select task, stage, node, attempt as n, 'was tried (' || outcome || ')' as what from tries
         union all
        select task, stage, node, attempts + 1, 'is ' || step from stages where step in ('ready', 'waiting')) as tried
  join unnest(@stages::text[], @max_attempts::integer[]) as limits (name, allowed) on name collate "C" = node
 where n > allowed`},
	{name: "valid-history",
		sentence: "each attempt belongs to a task, perhaps a deleted one, and to a stage of the pipeline, and ended after it started", sql: `
select format('attempt %s at stage %s of task %s (%s) %s', attempt, stage, task, outcome,
              case when finished_at < started_at then 'ended before it started' else 'has no such task or stage' end)
  from tries
 where node <> all (@stages::text[]) or (part > 0 or outcome = 'divided') and node <> all (@divided::text[])
    or task not in (select id from {tasks} union all select id from {deleted_tasks} where purged_at is null)
    or finished_at < started_at`},
	{name: "joined-last",
		sentence: "a stage that was divided was joined after all its parts were completed", sql: `
select format('attempt %s at stage %s of task %s (%s to %s, %s) came before the end of part %s',
              attempt, stage, task, started_at, finished_at, outcome, part)
  from (select distinct on (j.token, p.part) j.attempt, j.stage, j.task, j.started_at, j.finished_at, j.outcome, p.part,
               c.outcome as part_outcome, c.finished_at as part_finished_at
          from runs j
          join stages p on p.task = j.task and p.node = j.stage and p.part > 0
          left join tries c on c.task = p.task and c.stage = p.stage and c.finished_at < j.finished_at
         where j.part = 0 and j.division > 0 and j.division = j.divisions and j.outcome <> 'divided'
         order by j.token, p.part, c.finished_at desc) as joined
 where part_outcome is distinct from 'completed' or part_finished_at > started_at + make_interval(secs => @max_transaction_s)`},
	// The parts that exist were made by the latest attempt that divided the stage, or kept.
	{name: "kept-parts",
		sentence: "a stage that was divided again keeps as many parts as its history says, and all others are done again", sql: `
select format('stage %s of task %s has %s parts that were completed before it was divided last, but then %s were kept',
              d.stage, d.task, count(*) filter (where is_kept), d.kept)
  from (select r.task, r.stage, coalesce((a.result ->> 'kept')::integer, 0) as kept
          from runs r
          join {attempts} a on a.task_id = r.task and a.token = r.token
         where r.outcome = 'divided' and r.division = r.divisions) as d
  join (select p.task, p.node, p.step = 'completed' and count(c.token) = 0 as is_kept
          from stages p
          left join runs c on c.task = p.task and c.stage = p.stage and c.outcome = 'completed' and c.division = c.divisions
         where p.part > 0
         group by p.task, p.node, p.stage, p.step) as parts on parts.task = d.task and parts.node = d.stage
 group by d.task, d.stage, d.kept
having count(*) filter (where is_kept) <> d.kept`},

	// Deleted tasks.
	{name: "deleted",
		sentence: "a deleted task is no task any more", sql: `
select format('task %s was deleted at %s, and exists', id, deleted_at)
  from {deleted_tasks} join {tasks} using (id)`},
	// Both clocks are the database's: deleted_at is read while the row is locked.
	{name: "deleted-work",
		sentence: "a deletion takes the claims of the task from their workers; none is made afterwards, nor ends", sql: `
select format('attempt %s at stage %s of task %s (%s to %s) is %s after the deletion at %s',
              attempt, stage, r.task, started_at, finished_at, outcome, deleted_at)
  from tries r join {deleted_tasks} d on d.id = r.task
 where started_at > deleted_at or finished_at > deleted_at and outcome <> 'cancelled'`},

	// Events.
	{name: "event-ids",
		sentence: "each attempt that was not cancelled is an event, and no two events have the same id", sql: `
select format('attempt %s at stage %s of task %s (%s) has the event %s', attempt, stage, task_id, outcome, coalesce(event_id::text, 'none'))
  from {attempts}
 where (outcome = 'cancelled') <> (event_id is null)
 union all
select format('%s rows have the event %s', count(*), id)
  from (select id from {outbox} union all select event_id from {attempts} where event_id is not null) as events
 group by id
having count(*) > 1`},
	// Tasks whose rows were deleted otherwise have no event after that either.
	{name: "event-deleted",
		sentence: "the last of the events deleted, undeleted and purged of a task says whether it exists; no work follows its deletion",
		sql: `
, last_event as (
  select distinct on (task_id) task_id as task, type, id
    from {events} where type in ('submitted', 'deleted', 'undeleted', 'purged')
   order by task_id, id desc
)
select format('task %s %s, but its last event of that kind is %s, %s', last_event.task,
              case when t.id is not null then 'exists' when d.purged_at is null and d.id is not null then 'is deleted'
                   else 'is purged or was never there' end, last_event.id, last_event.type)
  from last_event
  left join {tasks} t on t.id = last_event.task
  left join {deleted_tasks} d on d.id = last_event.task
 where case when t.id is not null then last_event.type not in ('submitted', 'undeleted')
            when d.id is not null and d.purged_at is null
            then last_event.type <> 'deleted'
            else last_event.type not in ('deleted', 'purged') end
 union all
select format('event %s, %s, of task %s follows its deletion with event %s', e.id, e.type, e.task_id, last_event.id)
  from last_event
  join {events} e on e.task_id = last_event.task and e.id > last_event.id
 where last_event.type in ('deleted', 'purged')
   and e.type not in ('progress', 'deleted', 'undeleted', 'purged')`},
	// The last event of each stage and part, and the status that it leads to. It covers the tasks whose
	// first event has not been pruned. No event says that a divided stage is to be joined, nor, of a part,
	// that its stage is dead or was retried, nor which parts are kept, nor which stages an undeletion makes pending.
	{name: "event-status",
		sentence: "the events of a task, in their order, lead to the statuses of its stages", sql: `
, last_event as (
  select distinct on (e.task_id, effect.stage) e.task_id as task, effect.stage, effect.status, e.id
    from {events} e
   cross join lateral (
         select unnest(@stages::text[]), 'pending' where e.type = 'submitted'
          union all
         select e.stage || coalesce(' part ' || e.part, ''),
                case e.type when 'started' then 'inprogress' when 'stage_completed' then 'completed'
                            when 'part_completed' then 'completed'
                            when 'retry_scheduled' then case when e.part is null then 'failed' else 'pending' end
                            when 'attempt_failed' then 'stopped' when 'attempt_expired' then 'stopped' else 'pending' end
          where e.type in ('started', 'stage_completed', 'part_completed', 'released', 'divided')
             or e.type = 'retry_scheduled' and not e.data ? 'stages'
             or e.type in ('attempt_failed', 'attempt_expired') and e.part is not null
          union all
         select e.stage, 'dead' where e.type = 'dead'
          union all
         select e.stage || ' part ' || generate_series(1, (e.data ->> 'parts')::integer),
                case when e.data ? 'kept' then 'kept' else 'pending' end where e.type = 'divided'
          union all
         select jsonb_array_elements_text(e.data -> 'stages'),
                case e.type when 'retry_scheduled' then 'pending' else 'cancelled' end
          where e.type in ('retry_scheduled', 'cancelled') and e.data ? 'stages') as effect (stage, status)
   order by 1, 2, e.id desc
)
select format('stage %s of task %s is %s, but event %s says %s', s.stage, s.task, s.status, last_event.id, last_event.status)
  from stages s
  join last_event on last_event.task = s.task and last_event.stage collate "C" = s.stage
 where last_event.status <> case s.status when 'divided' then 'pending' else s.status end
   and not (s.part > 0 and last_event.status <> 'completed'
            and (s.status = 'stopped' or s.status = 'pending' and not @no_retries))
   and not (last_event.status = 'kept' and s.status in ('pending', 'completed'))
   and not (last_event.status = 'inprogress' and s.status = 'pending'
            and exists (select from undeleted u where u.task = s.task and u.id > last_event.id))
   and s.task in (select task_id from {events} where type = 'submitted')`},
	{name: "event-outcome",
		sentence: "the last event that finishes or restarts a task matches the status of the task", sql: `
, last_event as (
  select distinct on (task_id) task_id as task, type, id
    from {events}
   where type in ('submitted', 'completed', 'dead', 'cancelled')
      or type = 'retry_scheduled' and data ? 'stages'
   order by task_id, id desc
)
select format('task %s is %s, but its last event of that kind is %s, %s', last_event.task, t.state, last_event.id, last_event.type)
  from last_event
  join {tasks} t on t.id = last_event.task
 where case when t.state = 'completed' then last_event.type <> 'completed'
            when t.state in ('pending', 'inprogress') then last_event.type in ('completed', 'dead', 'cancelled')
            else last_event.type in ('completed', 'submitted') end -- an operator may retry one of two dead stages
   and t.id in (select task_id from {events} where type = 'submitted')`},
}

// commonSQL precedes the statement of every rule. PostgreSQL evaluates only the tables that a
// rule uses.
//
//   - needs: which stage needs which.
//   - stages: one row per task and stage, and one per part of a divided stage, as it is now. A part
//     has a name of its own, such as transcode part 3; node is the stage it belongs to. The step is the status of its row of
//     steps, null without one. The status of a part is its step in the words of stages.
//   - undeleted: the events of tasks that were deleted and restored. A claim that the deletion cancelled does not count. Its
//     row was written by the transaction of the event.
//   - tries: one row per claim that ever existed, ordered by its end: the history, and the current
//     claims, whose outcome is "live". A claim starts with its transaction, which may be earlier
//     than one it waited for, so the start orders nothing. It ends while its worker holds the
//     row lock, so the end orders everything. It counts unless it was released, divided its stage without
//     an error, or was cancelled by a deletion that was undone.
//   - runs: tries, each with the number, the outcome and the end of the previous try of its stage, and with how often its stage
//     had been divided then, and was divided in all.
const commonSQL = `
with needs as materialized (
  select stage collate "C", need collate "C" from unnest(@needing::text[], @needed::text[]) as n (stage, need)
), stages as not materialized (
  select t.id as task, x.stage collate "C", x.stage collate "C" as node, 0 as part, x.status::text, x.unblocked,
         s.status::text as step, s.attempts, s.token, s.locked_at, s.locked_by, s.run_at, s.parts, s.open_parts,
         s.rank, s.user_id, s.placement
    from {tasks} t
   cross join lateral cuelight_{name}_stages(t) as x
    left join {steps} s on s.task_id = t.id and s.stage = x.stage and s.part = 0
   union all
  select task_id, (stage || ' part ' || part) collate "C", stage collate "C", part,
         case status when 'running' then 'inprogress' when 'ready' then 'pending' when 'waiting' then 'pending' else status::text end,
         true, status::text, attempts, token, locked_at, locked_by, run_at, null, null, rank, user_id, placement
    from {steps} where part > 0
), undeleted as not materialized (
  select task_id as task, id << 16 as id from {outbox} where type = 'undeleted' and task_id is not null
   union all
  select unnest(tasks), id << 16 from {outbox} where type = 'undeleted'
), tries as (
  select task_id as task, (stage || case when part > 0 then ' part ' || part else '' end) collate "C" as stage,
         stage collate "C" as node, part, attempt, token, worker_id, started_at, finished_at, outcome::text, retry_at,
         outcome <> 'released' and (outcome <> 'divided' or error is not null)
           and not (outcome = 'cancelled' and task_id in (select task from undeleted)
                    and (task_id, a.xmin::text) in (select o.task_id, o.xmin::text from {outbox} o where o.type = 'deleted'
                                                     union all
                                                    select unnest(o.tasks), o.xmin::text from {outbox} o
                                                     where o.type = 'deleted')) as counts
    from {attempts} a
   union all
  select task, stage, node, part, attempts, token, locked_by, locked_at, 'infinity', 'live', null, true
    from stages
   where token is not null
), numbered as (
  select tries.*,
         count(*) filter (where outcome = 'divided') over (of_stage order by finished_at) as division,
         count(*) filter (where outcome = 'divided') over of_stage as divisions
    from tries
  window of_stage as (partition by task, node)
), runs as (
  select numbered.*,
         lag(attempt) over of_stage as attempt_before,
         lag(outcome) over of_stage as outcome_before,
         lag(counts) over of_stage as counts_before,
         lag(division) over of_stage as division_before,
         lead(task) over of_stage is null as is_latest
    from numbered
  window of_stage as (partition by task, stage order by finished_at)
)`

// maxPerRule limits the violations listed for one rule: more of them have likely the same cause.
const maxPerRule = 50

const limitSQL = `
 order by 1
 limit @max_per_rule`
