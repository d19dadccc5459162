package invariant

// commonSQL stands before every rule.
//
//   - stages: one row per task and stage, as it is now.
//   - tries: one row per claim that ever was, in the order in which they ended:
//     the history, and the claims that are held, whose outcome is "live". A
//     claim begins when its transaction did, which may be before the one it
//     waited for, so its beginning orders nothing; it ends while its worker
//     has the row, so its end orders everything.
//   - runs: tries, each with the try of its stage before it and how many of
//     those counted. What was released did not.
//   - needs: which stage needs which.
//
// PostgreSQL makes only what a rule uses.
const commonSQL = `
with stages as not materialized (
  select t.id as task, s.stage collate "C", s.status, s.attempts, s.token, s.locked_at, s.locked_by, s.run_at, s.can_start
    from {{.Tasks}} t
   cross join lateral (values
         {{- range $i, $s := .Stages}}{{if $i}},{{end}}
         ('{{.Name}}', t.{{.Name}}_status::text, t.{{.Name}}_attempts, t.{{.Name}}_token, t.{{.Name}}_locked_at, t.{{.Name}}_locked_by, t.{{.Name}}_run_at,
          {{.NeedsCompleted}})
         {{- end}}) as s (stage, status, attempts, token, locked_at, locked_by, run_at, can_start)
), tries as (
  select task_id as task, stage collate "C", attempt, token, worker_id, started_at, finished_at, outcome::text
    from {{.Attempts}}
   union all
  select task, stage, attempts, token, locked_by, locked_at, 'infinity', 'live'
    from stages
   where token is not null
), runs as (
  select tries.*,
         lag(attempt) over of_stage as attempt_before,
         lag(outcome) over of_stage as outcome_before,
         lead(task) over of_stage is null as latest
    from tries
  window of_stage as (partition by task, stage order by finished_at)
), needs (stage, need) as (
  select null collate "C", null collate "C" where false
  {{- range .Stages}}{{$s := .}}{{range .Needs}}
   union all values ('{{$s.Name}}', '{{.}}')
  {{- end}}{{end}}
)`

const limitSQL = `
 order by 1
 limit {{.Most}}`

var rules = []rule{
	{name: "committed", sql: committedSQL,
		says: "what was submitted and acknowledged is there",
		when: func(o Options) bool { return len(o.Committed) > 0 },
		args: func(o Options) []any { return []any{o.Committed} }},
	{name: "rolled-back", sql: rolledBackSQL,
		says: "what was submitted in a transaction that was rolled back is not there",
		when: func(o Options) bool { return len(o.RolledBack) > 0 },
		args: func(o Options) []any { return []any{o.RolledBack} }},
	{name: "ended", sql: endedSQL,
		says: "once faults have stopped, every task has come to an end",
		when: func(o Options) bool { return o.Settled }},
	{name: "alive", sql: aliveSQL,
		says: "once faults have stopped, whoever holds a claim is registered and neither stopped nor given up",
		when: func(o Options) bool { return o.Settled }},
	{name: "held-long", sql: heldLongSQL,
		says: "no claim outlives its worker by more than a lease and a sweep",
		when: func(o Options) bool { return o.HeldAtMost > 0 },
		args: func(o Options) []any { return []any{o.HeldAtMost.Seconds()} }},
	{name: "token-unique", sql: tokenUniqueSQL,
		says: "no token names two claims"},
	{name: "needs", sql: needsSQL,
		says: "no stage is begun or done while something it needs is not completed"},
	{name: "order", sql: orderSQL,
		says: "no attempt began before all its stage needs was completed, nor ended after that was begun anew",
		args: func(o Options) []any { return []any{o.TurnAtMost.Seconds()} }},
	{name: "passed", sql: passedSQL,
		says: "no task that is ready is passed by more than a few later ones of its priority",
		when: func(o Options) bool { return o.PassedAtMost != nil },
		args: func(o Options) []any { return []any{*o.PassedAtMost} }},
	{name: "once", sql: onceSQL,
		says: "without retries, a completed stage was completed once, and no other was",
		when: func(o Options) bool { return o.NoRetries }},
	{name: "completed-stays", sql: completedStaysSQL,
		says: "what is completed is not begun again, unless an operator retries it, which counts from one"},
	{name: "agrees", sql: agreesSQL,
		says: "the status of a stage is what its latest attempt has made it"},
	{name: "numbered", sql: numberedSQL,
		says: "attempts are numbered without a gap: every claim ends in the history, once"},
	{name: "counted", sql: countedSQL,
		says: "the counter of a stage is the number of its attempts, those released left out",
		args: func(o Options) []any { return []any{o.NoRetries} }},
	{name: "numbered-once", sql: numberedOnceSQL,
		says: "without retries, no attempt is numbered anew",
		when: func(o Options) bool { return o.NoRetries }},
	{name: "attempts-limit", sql: attemptsLimitSQL,
		says: "no stage is tried more often than allowed, nor is to be once it was tried as often",
		when: func(o Options) bool { return o.MaxAttempts != nil },
		args: func(o Options) []any { return []any{o.MaxAttempts} }},
	{name: "history", sql: historySQL,
		says: "no attempt is there without its task, nor for a stage that is none, nor ended before it began"},
	{name: "told", sql: toldSQL,
		says: "the events of a task, in their order, lead to the statuses that its stages have",
		args: Options.untold},
	{name: "told-end", sql: toldEndSQL,
		says: "the last event to end a task, or to begin it again, is of the end that it has",
		args: Options.untold},
}

// untoldSQL: something happened to the task while nobody could be told of it.
const untoldSQL = `exists (
       select from {{.Attempts}} a
         join unnest($1::timestamptz[], $2::timestamptz[]) as untold (since, until) on a.finished_at between since and until
        where a.task_id = told.task and a.outcome <> 'completed')`

// told: what each event makes of a stage. The tasks are those whose first event is
// kept.
const toldSQL = `
, told as (
  select distinct on (e.task_id, made.stage) e.task_id as task, made.stage, made.status, e.id
    from {{.Events}} e
   cross join lateral (
         select unnest(array[{{.Names}}]), 'pending' where e.type = 'submitted'
          union all
         select e.stage, case e.type when 'started' then 'inprogress' when 'stage_completed' then 'completed' when 'dead' then 'dead'
                                     when 'released' then 'pending' when 'retry_scheduled' then 'failed' end
          where e.type in ('started', 'stage_completed', 'dead', 'released') or e.type = 'retry_scheduled' and not e.data ? 'stages'
          union all
         select jsonb_array_elements_text(e.data->'stages'), case e.type when 'retry_scheduled' then 'pending' else 'cancelled' end
          where e.type in ('retry_scheduled', 'cancelled') and e.data ? 'stages') as made (stage, status)
   order by 1, 2, e.id desc
)
select format('stage %s of task %s is %s, and event %s says %s', s.stage, s.task, s.status, told.id, told.status)
  from stages s
  join told on told.task = s.task and told.stage collate "C" = s.stage
 where told.status <> s.status
   and s.task in (select task_id from {{.Events}} where type = 'submitted')
   and not ` + untoldSQL

const toldEndSQL = `
, told as (
  select distinct on (task_id) task_id as task, type, id
    from {{.Events}}
   where type in ('submitted', 'completed', 'dead', 'cancelled') or type = 'retry_scheduled' and data ? 'stages'
   order by task_id, id desc
), ended as (
  select task, case when bool_or(status = 'dead') then 'dead' when bool_or(status = 'cancelled') then 'cancelled'
                    when bool_and(status = 'completed') then 'completed' end as type
    from stages group by task
)
select format('task %s should have come to its end with %s, and its last such event, %s, is %s', ended.task, coalesce(ended.type, 'none'), told.id, told.type)
  from ended
  join told on told.task = ended.task
 where case when ended.type = 'completed' then told.type <> 'completed'
            when ended.type is null then told.type in ('completed', 'dead', 'cancelled')
            else told.type in ('completed', 'submitted') end -- one of two dead stages may be done again
   and ended.task in (select task_id from {{.Events}} where type = 'submitted')
   and not ` + untoldSQL

const committedSQL = `
select format('the task of request %s is not there', request)
  from unnest($1::text[]) as request
 where not exists (select from {{.Tasks}} where request_id = request)`

const rolledBackSQL = `
select format('task %s of request %s is there', id, request_id)
  from {{.Tasks}}
 where request_id = any($1::text[])`

const endedSQL = `
select format('stage %s of task %s is %s, and could go on%s', stage, task, status, ' at ' || run_at::text)
  from stages
 where status = 'inprogress'
    or status in ('pending', 'failed') and can_start`

const aliveSQL = `
select format('stage %s of task %s is held by worker %s, which %s', stage, task, locked_by,
              case when w.id is null then 'is not registered'
                   when w.pipeline <> '{{.Pipeline}}' then 'works on ' || w.pipeline
                   when w.stopped_at is not null then 'stopped'
                   else 'was given up' end)
  from stages
  left join workers w on w.id = locked_by
 where status = 'inprogress'
   and (w.id is null or w.pipeline <> '{{.Pipeline}}' or w.stopped_at is not null or w.lost_at is not null)`

// held-long: a worker is gone since it stopped, was given up, or last beat; one
// that is not registered never was there.
const heldLongSQL = `
select format('stage %s of task %s is held since %s by worker %s, gone since %s',
              stage, task, locked_at, locked_by, coalesce(gone.at::text, 'ever'))
  from stages
  left join workers w on w.id = locked_by
 cross join lateral (select least(w.stopped_at, w.lost_at, w.heartbeat_at)) as gone (at)
 where status = 'inprogress'
   and greatest(locked_at, gone.at) < now() - make_interval(secs => $1)`

const tokenUniqueSQL = `
select format('token %s names %s claims: %s', token, count(*),
              string_agg(format('%s of stage %s of task %s', outcome, stage, task), ', ' order by finished_at))
  from tries
 group by token
having count(*) > 1`

// needs: what constraints of the table say, too, as long as they are there.
const needsSQL = `
select format('stage %s of task %s is %s, but not all it needs is completed', stage, task, status)
  from stages
 where status not in ('pending', 'cancelled') and not can_start`

// order: of each stage that is needed, the latest try before the end of this
// one was its completion, and that was before this one began.
const orderSQL = `
select format('attempt %s at stage %s of task %s (%s to %s, %s) %s',
              r.attempt, r.stage, r.task, r.started_at, r.finished_at, r.outcome,
              case when n.outcome is null then format('was made without any at %s, which it needs', needs.need)
                   else format('needs %s, of which attempt %s ended %s at %s', needs.need, n.attempt, n.outcome, n.finished_at) end)
  from tries r
  join needs on needs.stage = r.stage
  left join lateral (select attempt, outcome, finished_at from {{.Attempts}}
                      where task_id = r.task and stage collate "C" = needs.need and finished_at < r.finished_at
                      order by finished_at desc limit 1) n on true
 where n.outcome is distinct from 'completed'
    or n.finished_at > r.started_at + make_interval(secs => $1)`

// passed: of each task, the first try at a stage. It was ready when the tries at what the
// stage needs that began before it were completed. They may end later than it begins: a
// stage that goes on with a task begins at the start of the transaction that ends them.
const passedSQL = `
, first as (
  select r.task, r.stage, r.started_at, t.priority,
         greatest(t.created_at, t.ready_at,
                  (select max(n.finished_at) from needs join {{.Attempts}} n on n.stage collate "C" = needs.need
                    where needs.stage = r.stage and n.task_id = r.task and n.outcome = 'completed' and n.started_at < r.started_at)) as ready
    from runs r
    join {{.Tasks}} t on t.id = r.task
   where r.attempt_before is null
)
select format('stage %s of task %s was ready at %s and began at %s: %s later tasks of its priority began in between',
              a.stage, a.task, a.ready, a.started_at, passed.n)
  from first a
 cross join lateral (select count(*) as n from first b
                      where b.stage = a.stage and b.priority = a.priority and b.task > a.task
                        and b.started_at > a.ready and b.started_at < a.started_at) as passed
 where passed.n > $1`

const onceSQL = `
select format('stage %s of task %s is %s, and was completed %s times', stage, task, max(status), count(done))
  from stages
  left join (select task, stage, token as done from tries where outcome = 'completed') as completed using (task, stage)
 group by task, stage
having count(done) <> (max(status) = 'completed')::int`

const completedStaysSQL = `
select format('stage %s of task %s was completed, and then begun again with attempt %s (%s)', stage, task, attempt, outcome)
  from runs
 where outcome_before = 'completed' and attempt <> 1`

const agreesSQL = `
select format('stage %s of task %s is %s, but %s', stage, task, status,
              coalesce('its latest attempt was ' || outcome, 'was never tried'))
  from stages
  left join (select task, stage, outcome from runs where latest) as was using (task, stage)
 where case status when 'completed'  then outcome is distinct from 'completed'
                   when 'failed'     then outcome is null or outcome not in ('failed', 'expired')
                   when 'dead'       then outcome is null or outcome not in ('failed', 'expired')
                   when 'inprogress' then outcome is distinct from 'live'
                   else false end`

// numbered: an operator's retry counts from one again.
const numberedSQL = `
select format('stage %s of task %s: attempt %s (%s) follows %s', stage, task, attempt, outcome,
              coalesce(format('attempt %s (%s)', attempt_before, outcome_before), 'none'))
  from runs
 where attempt not in (1, coalesce(attempt_before + (outcome_before <> 'released')::int, 1))`

const numberedOnceSQL = `
select format('stage %s of task %s: attempt 1 (%s) follows attempt %s (%s)', stage, task, outcome, attempt_before, outcome_before)
  from runs
 where attempt = 1 and attempt_before + (outcome_before <> 'released')::int <> 1`

// counted: $1 says that nobody retried, so that no counter was reset.
const countedSQL = `
select format('stage %s of task %s has counted %s attempts, its history %s', stage, task, attempts, coalesce(was.attempt, 0))
  from stages
  left join (select task, stage, attempt - (outcome = 'released')::int as attempt from runs where latest) as was using (task, stage)
 where attempts <> coalesce(was.attempt, 0) and ($1 or attempts <> 0)`

const attemptsLimitSQL = `
select format('stage %s of task %s %s for the %s. time of %s', stage, task, what, n, most)
  from (select task, stage, attempt as n, 'was tried (' || outcome || ')' as what from tries
         union all
        select task, stage, attempts + 1, 'is to be tried' from stages where status = 'failed') as tried
  join (values {{- range $i, $s := .Stages}}{{if $i}},{{end}} ('{{.Name}}', ($1::int[])[{{$i}} + 1]){{end}}) as allowed (name, most) on name collate "C" = stage
 where n > most`

const historySQL = `
select format('attempt %s at stage %s of task %s (%s) %s', attempt, tries.stage, tries.task, outcome,
              case when stages.task is null then 'has no such task or stage' else 'ended before it began' end)
  from tries
  left join stages using (task, stage)
 where stages.task is null or finished_at < started_at`
