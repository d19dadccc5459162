package engine

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// Claim is a worker's right to work on one stage of one task, or on one part of a divided stage.
// Its token is unique for ever: a report with another token changes nothing.
type Claim struct {
	Task    store.ID
	Stage   int // its number in the [store.Graph]
	Part    int // of the stage, counted from 1; 0: the stage itself
	Token   store.ID
	Attempt int

	// Parts is how many parts the stage was divided into, 0 if it was not; without a Part, all are
	// completed. Spec is that of the Part.
	Parts int
	Spec  json.RawMessage

	Source      string
	Params      json.RawMessage
	UserID      string
	Traceparent string // of the submission; empty for none

	// Aged says that it was claimed before tasks of higher priority, because it had
	// waited for long; see [SweepRequest].AgeAfter.
	Aged bool

	// Position is where the step was in its queue.
	Position Position

	// Waited is how long the step was ready, by the database's clock: since the
	// submission, its scheduled time, or a retry. It is 0 where it was claimed
	// in the exchange that completed the stages it needs.
	Waited time.Duration
}

// Compare orders claims as they should be started: by stage; within a stage those of the stage itself first, then parts.
func (c Claim) Compare(d Claim) int {
	return cmp.Or(cmp.Compare(c.Stage, d.Stage), cmp.Compare(min(c.Part, 1), min(d.Part, 1)), c.Position.Compare(d.Position),
		cmp.Compare(c.Part, d.Part))
}

// Position is a place in the order in which steps are claimed. Its zero value is the start of a queue.
type Position struct {
	Rank int32 // minus the priority
	Turn int64
	Task store.ID
}

// IsStart reports whether it is the start of a queue.
func (p Position) IsStart() bool { return p.Task.IsZero() }

// Compare orders positions.
func (p Position) Compare(q Position) int {
	if p.IsStart() || q.IsStart() {
		return cmp.Compare(btoi(!p.IsStart()), btoi(!q.IsStart()))
	}
	return cmp.Or(cmp.Compare(p.Rank, q.Rank), cmp.Compare(p.Turn, q.Turn), bytes.Compare(p.Task[:], q.Task[:]))
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Before is the position just before this one, from where a claim finds it.
func (p Position) Before() Position {
	for i := len(p.Task) - 1; i >= 0; i-- {
		p.Task[i]--
		if p.Task[i] != 0xff {
			break
		}
	}
	return p
}

// claimSQL claims the first ready steps of each queue after a position, as many as there are free slots, records that they
// started, and reads what they are about. A claim of a stage changes its task's status, so it locks both rows; a claim of
// a part locks its step alone, or else one claim would hide all parts of a film. What is locked is skipped.
//
// The order of a queue is that of the index of ready steps. A limited queue claims what allowSQL allows.
const claimSQL = `
/* claim */
with queues as materialized (
  select q.*, set_config('cuelight.exchange', 'claims', true)
    from unnest($2::text[], $3::boolean[], $4::integer[], $5::boolean[], $6::integer[], $7::bigint[], $8::uuid[])
         as q (stage, parts, free, limited, rank, turn, task_id)
   where exists (select from {workers} w where w.id = $1 and coalesce(w.stopped_at, w.lost_at) is null offset 0)
), chosen as materialized (
  select first.row
    from queues q
   cross join lateral (
         select s.ctid as row from {steps} s join {tasks} t on t.id = s.task_id
          where s.stage = q.stage and (s.part > 0) = q.parts and s.status = 'ready'
            and (s.rank, s.turn, s.task_id) > (q.rank, q.turn, q.task_id)
            and ($9::uuid[] is null or s.task_id = any ($9))
            and (s.placement is null or coalesce(cuelight_{name}_placement_wait(s, $1) <= 0, false))
            and (not q.limited or s.task_id = any (nullif(current_setting('cuelight.allowed', true), '')::uuid[]))
          order by s.rank, s.turn, s.task_id limit q.free
            for no key update of s, t skip locked) as first
   where not q.parts
   union all
  select first.row
    from queues q
   cross join lateral (
         select s.ctid as row from {steps} s
          where s.stage = q.stage and (s.part > 0) = q.parts and s.status = 'ready'
            and (s.rank, s.turn, s.task_id) > (q.rank, q.turn, q.task_id)
            and ($9::uuid[] is null or s.task_id = any ($9))
            and (s.placement is null or coalesce(cuelight_{name}_placement_wait(s, $1) <= 0, false))
          order by s.rank, s.turn, s.task_id limit q.free
            for no key update skip locked) as first
   where q.parts
), claimed as (
  update {steps} s
     set status = 'running', attempts = attempts + 1, token = gen_random_uuid(), locked_at = now(), locked_by = $1
   where s.ctid = any (array(select row from chosen))
  returning s.*
), started as (
  update {tasks} t set
         {flip: 'inprogress'}
    from (select task_id, array_agg(stage) as stages from claimed where part = 0 group by task_id) as c
   where t.id = c.task_id
), recorded as (
  insert into {outbox} (type, worker_id, tasks, stages, parts, attempts)
  select 'started', $1, array_agg(task_id), array_agg(stage), array_agg(part), array_agg(attempts)
    from claimed having count(*) > 0
)
select c.task_id, c.stage, c.part, c.token, c.attempts, c.rank, c.turn,
       extract(epoch from now() - c.ready_at)::float8, c.spec,
       coalesce(c.parts, (select z.parts from {steps} z where z.task_id = c.task_id and z.stage = c.stage
         and z.part = 0), 0),
       -c.rank > t.priority, t.source, t.params, coalesce(t.user_id, ''), coalesce(t.traceparent, '')
  from claimed c
  join {tasks} t on t.id = c.task_id`

// queueArgs are the arguments of a statement about queues.
type queueArgs struct {
	stages  []string
	parts   []bool
	free    []int32
	limited []bool
	ranks   []int32
	turns   []int64
	tasks   []store.ID
	numbers []int // of the queues
}

const lowestRank = -1 << 31

// maxBatch is how many steps one statement claims of a queue.
const maxBatch = 1024

// add adds a queue of the graph.
func (a *queueArgs) add(e *Engine, queue, free int, limited bool, after Position) {
	stage, parts := e.graph.QueueStage(queue)
	if after.IsStart() {
		after = Position{Rank: lowestRank, Task: store.ID{15: 1}}
	}
	a.stages, a.parts, a.free = append(a.stages, e.stages[stage]), append(a.parts, parts), append(a.free, int32(min(free, maxBatch)))
	a.limited, a.ranks, a.turns = append(a.limited, limited), append(a.ranks, after.Rank), append(a.turns, after.Turn)
	a.tasks, a.numbers = append(a.tasks, after.Task), append(a.numbers, queue)
}

func (e *Engine) scanClaim(row pgx.CollectableRow) (c Claim, err error) {
	var stage string
	var waited float64
	err = row.Scan(&c.Task, &stage, &c.Part, &c.Token, &c.Attempt, &c.Position.Rank, &c.Position.Turn, &waited, &c.Spec, &c.Parts,
		&c.Aged, &c.Source, &c.Params, &c.UserID, &c.Traceparent)
	c.Stage, _ = e.graph.Stage(stage)
	c.Position.Task, c.Waited = c.Task, max(time.Duration(waited*float64(time.Second)), 0)
	return c, err
}

// allowSQL adds to the tasks that may start, where users have a limit: all that have started, and of a user only as many others as
// keep those that have started and not ended below it. One process at a time may do so, so that each sees the claims of the others;
// the rest try again. It takes that lock with the settings, because a snapshot is taken with each statement.
const allowSQL = `
/* allow tasks of users below their limit */
with running as materialized (
  select user_id, count(*) as n from {tasks} where state = 'inprogress' and user_id is not null group by user_id
), first as materialized (
  select s.task_id, s.user_id, s.rank, s.turn, t.state = 'inprogress' or s.parts > 0 is true as has_started
    from {steps} s join {tasks} t on t.id = s.task_id
   where s.stage = $1 and (s.part > 0) = false and s.status = 'ready'
     and current_setting('cuelight.limit_lock') = 'true'
     and (s.user_id <> all (array(select user_id from running where n >= $2)) or t.state = 'inprogress' or s.parts > 0)
   order by s.rank, s.turn, s.task_id limit 1000
), numbered as (
  select f.*, coalesce(r.n, 0) + row_number() over (
                partition by f.user_id, f.has_started order by f.rank, f.turn, f.task_id) as nth
    from first f left join running r on r.user_id = f.user_id
)
select set_config('cuelight.allowed', (
         coalesce(nullif(current_setting('cuelight.allowed', true), ''), '{}')::uuid[] || array(
           select task_id from numbered where user_id = '' or has_started or nth <= $2
            order by rank, turn, task_id limit $3))::text, true),
       current_setting('cuelight.limit_lock') = 'true'`

// lookSQL looks, without locks, what each queue has ready after a position, and when what this worker may not claim yet will be
// left to it. The last columns are when a step that waits for a time is ready, of those after $8, and where the next look for
// one begins: not later than a second ago, because a step may wait for a time that has come when its transaction commits. (The
// sweep finds later ones.)
//
// Every subquery has an order that one index alone has. Where an analysis found no ready step, the planner believes that all
// of their indexes are as small, and reads any of them from its start.
const lookSQL = `
/* look what is left */
with due as materialized (
  select (select run_at from {steps} where status = 'waiting' and run_at >= $8 order by run_at limit 1) as run_at
)
select q.n::integer - 1, first.rank, first.turn, first.task_id,
       (select min(wait)
          from (select cuelight_{name}_placement_wait(s, $1) as wait from {steps} s
                 where s.stage = q.stage and (s.part > 0) = q.parts and s.status = 'ready'
                      and s.placement is not null order by s.ready_at limit 100) as w
         where wait > 0),
       extract(epoch from due.run_at - now())::float8, least(due.run_at, now() - interval '1 s')
  from unnest($2::text[], $3::boolean[], $4::integer[], $5::bigint[], $6::uuid[])
       with ordinality as q (stage, parts, rank, turn, task_id, n)
 cross join due
  left join lateral (
       select s.rank, s.turn, s.task_id from {steps} s
        where s.stage = q.stage and (s.part > 0) = q.parts and s.status = 'ready'
          and (s.rank, s.turn, s.task_id) > (q.rank, q.turn, q.task_id)
          and ($7::uuid[] is null or s.task_id = any ($7))
          and (s.placement is null or coalesce(cuelight_{name}_placement_wait(s, $1) <= 0, false))
        order by s.stage, (s.part > 0), s.rank, s.turn, s.task_id limit 1) as first on true`

// look is what a queue has left.
type look struct {
	first *Position     // the first ready step after the position; nil for none
	wait  time.Duration // until a step is left to this worker; -1 for none
}

// waiting are the steps that wait for a time.
type waiting struct {
	next time.Duration // until the first is ready; -1 for none
	from time.Time     // where the next look begins, by the database's clock
}

// queueLook queues a look at queues, and at the steps that wait for a time after another.
func (e *Engine) queueLook(
	batch *pgx.Batch, worker store.ID, only []store.ID, a queueArgs, found func(queue int, l look), from time.Time, due *waiting,
) {
	batch.Queue(e.sql.look, worker, a.stages, a.parts, a.ranks, a.turns, a.tasks, only, from).Query(func(rows pgx.Rows) error {
		var n int
		var rank *int32
		var turn *int64
		var task store.ID
		var wait, next *float64
		_, err := pgx.ForEachRow(rows, []any{&n, &rank, &turn, &task, &wait, &next, &due.from}, func() error {
			l := look{wait: secondsToDuration(wait)}
			if rank != nil {
				l.first = &Position{*rank, *turn, task}
			}
			due.next = secondsToDuration(next)
			found(a.numbers[n], l)
			return nil
		})
		return err
	})
}

// notifySQL notifies of what reports made ready and nobody has claimed yet: a step, or only that a step waits for a time; and of
// stages where a user's task may start, because another one has ended.
const notifySQL = `
/* notify of what reports left */
select cuelight_{name}_notify(stage, case status when 'ready' then rank || ':' || turn || ':' || task_id
       else 'due' end)
  from (select distinct on (stage) * from {steps} where task_id = any ($1::uuid[]) and status in ('ready', 'waiting')
         order by stage, status, rank, turn, task_id) as first
 union all
select cuelight_{name}_notify(stage) from unnest($2::text[]) as stage`

// promoteSQL makes steps ready whose time has come, of those after $1, and notifies of them. Those that are tried for the first
// time get a turn only now, because the one of their submission may be long past. A retry, or one that was released to wait, keeps its
// turn, so it comes before tasks that are newer.
const promoteSQL = `
/* make due steps ready */
with due as materialized (
  select s.ctid as row, s.rank, s.user_id,
         s.attempts = 0 and s.part = 0 and not exists (
           select from {attempts} a where a.task_id = s.task_id and a.stage = s.stage offset 0) as is_new,
         row_number() over (partition by s.rank, s.user_id order by s.task_id, s.stage) as n
    from (select s.ctid, s.* from {steps} s
           where s.status = 'waiting' and s.run_at between $1 and now() order by s.run_at limit 1000
             for no key update skip locked) as s
), promoted as (
  update {steps} s
     set status = 'ready', run_at = null, ready_at = s.run_at,
         turn = case when is_new then cuelight_{name}_next_turn(due.rank, due.user_id, 0::smallint) + due.n - 1
           else s.turn end
    from due where s.ctid = due.row
  returning s.stage, s.rank, s.turn, s.task_id
)
select cuelight_{name}_notify(stage, rank || ':' || turn || ':' || task_id)
  from (select distinct on (stage) * from promoted order by stage, rank, turn, task_id) as first`

// Due is the payload of a notification that a step waits for a time.
const Due = "due"

// ParseStep reads the step of a notification; ok is false where it names none.
func ParseStep(text string) (p Position, ok bool) {
	rank, rest, _ := strings.Cut(text, ":")
	turn, id, _ := strings.Cut(rest, ":")
	r, err := strconv.ParseInt(rank, 10, 32)
	if err != nil {
		return Position{}, false
	}
	p.Rank = int32(r)
	if p.Turn, err = strconv.ParseInt(turn, 10, 64); err != nil {
		return Position{}, false
	}
	p.Task, err = store.ParseID(id)
	return p, err == nil
}
