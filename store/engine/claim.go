package engine

import (
	"time"

	"github.com/jackc/pgx/v5"
)

// claimSQL claims from the stage's ready index, from its start or after a position, and
// skips rows that other workers are claiming. A lost worker claims nothing. Slots that
// the completing statement used for continued tasks are not free any more.
//
// Aged tasks are found by id. The coalesce keeps PostgreSQL from reading the ready
// index for them, where a million other tasks may come first.
const claimSQL = `
/* claim {{.Stage.Name}} */
with claimed as (` + startSQL + `
   where ctid = any (array(
         select ctid from {{.Tasks}}
          where {{if .With.Aged}}id = any($3::uuid[]) and coalesce({{.Stage.Ready ""}}, false)
            {{- else}}{{.Stage.Ready ""}} and ($3::uuid[] is null or id = any($3)){{end}}
            and {{.Alive "$1"}}
            and {{.Stage.MayClaim "" "$1" "null"}}
            {{- if .With.After}}
            and priority = $4 and id > $5
            {{- end}}
          order by {{if not .With.Aged}}priority desc, {{end}}id
          limit {{if .With.Continued}}` + slotsSQL + `{{else}}$2{{end}}
            for no key update skip locked))` + startedSQL + `
select * from claimed`

const startSQL = `
  update {{.Tasks}} t set
         {{.Stage.Name}}_status    = 'inprogress',
         {{.Stage.Name}}_attempts  = {{.Stage.Name}}_attempts + 1,
         {{.Stage.Name}}_token     = gen_random_uuid(),
         {{.Stage.Name}}_locked_at = now(),
         {{.Stage.Name}}_locked_by = $1`

// startedSQL returns the claims, and records them.
const startedSQL = `
  returning t.id, {{.Stage.Name}}_token as token, {{.Stage.Name}}_attempts as attempt,
            source, params, coalesce(user_id, ''), coalesce(traceparent, ''),
            extract(epoch from {{.Stage.Waited .Attempts}})::float8 as waited, priority
            {{- if .Stage.Divides}},
            {{.Stage.DividedInto "t."}} as parts, 0 as part, null::jsonb as spec, 0::bigint as turn
            {{- end}}
), recorded as (
  insert into {{.Outbox}} (type, worker_id, stage, tasks, attempts)
  select 'started', $1, '{{.Stage.Name}}', array_agg(id), array_agg(attempt)
    from claimed having count(*) > 0
)`

// claimPartsSQL claims parts of a stage, or one part of each aged task.
const claimPartsSQL = `
/* claim parts of {{.Stage.Name}} */
with claimed as (
  update {{.Parts}} p set
         status = 'inprogress', attempts = attempts + 1, token = gen_random_uuid(), locked_at = now(), locked_by = $1
   where ctid = any (array(
         select ctid from {{.Parts}}
          {{- if .With.Aged}}
          where (task_id, part) in (
                select task_id, part
                  from unnest($3::uuid[]) as aged (id)
                 cross join lateral (
                       select task_id, part from {{.Parts}}
                        where task_id = aged.id and stage = '{{.Stage.Name}}' and coalesce({{.Stage.PartReady ""}}, false)
                        order by part limit 1) as next)
            and stage = '{{.Stage.Name}}' and coalesce({{.Stage.PartReady ""}}, false)
          {{- else}}
          where {{.Stage.PartReady ""}} and ($3::uuid[] is null or task_id = any($3))
          {{- end}}
            and {{.Alive "$1"}}
            and {{.Stage.MayClaimPart "" "$1"}}
          {{- if not .With.Aged}}
          order by priority desc, turn, task_id desc
          {{- end}}
          limit $2
            for no key update skip locked))
  returning p.*
), recorded as (
  insert into {{.Outbox}} (type, worker_id, stage, tasks, parts, attempts)
  select 'started', $1, '{{.Stage.Name}}', array_agg(task_id), array_agg(part), array_agg(attempts)
    from claimed having count(*) > 0
)
select t.id, p.token, p.attempts, t.source, t.params, coalesce(t.user_id, ''), coalesce(t.traceparent, ''),
       extract(epoch from now() - p.ready_at)::float8, p.priority, t.{{.Stage.Name}}_parts, p.part, p.spec, p.turn
  from claimed p
  join {{.Tasks}} t on t.id = p.task_id`

// promoteSQL makes tasks ready whose time has come. A task that waited for its
// scheduled time is ready since then; for a retry the history knows since when.
const promoteSQL = `
/* promote due {{.Stage.Name}} */
update {{.Tasks}} set {{.Stage.Name}}_run_at = null,
       ready_at = case when {{.Stage.Name}}_attempts = 0
                       then coalesce(ready_at, {{.Stage.Name}}_run_at) else ready_at end
 where id in (select id from {{.Tasks}}
               where {{.Stage.Name}}_run_at <= now()
               order by {{.Stage.Name}}_run_at
               limit 1000
                 for no key update skip locked)`

// readySQL says, without locking, whether a stage has a task that the worker may claim; when
// the next one is due or need not be left to other workers any more; and whether tasks of several users are ready.
const readySQL = `
/* find ready {{.Stage.Name}} */
select {{with .Stage}}` + readyColumnsSQL + `,
       coalesce(` + firstUserSQL + `
                <> ` + lastUserSQL + `, false){{end}}`

// The order by is there for the plan: for a plain exists, PostgreSQL reads a table of
// which much is ready from its start, past all finished tasks.
const readyColumnsSQL = `
       (select true from {{$.Tasks}} where {{.Ready ""}}
           and ($1::uuid[] is null or id = any($1))
           and {{.MayClaim "" "$2" "null"}}
         order by priority desc, id limit 1) is not null,
       least(
         (select greatest(extract(epoch from {{.Name}}_run_at - now()), 0)::float8 from {{$.Tasks}}
           where {{.Name}}_run_at is not null
           order by {{.Name}}_run_at limit 1),
         (select min(wait)
            from (select {{.PlacementWait "" "$2" "null"}} as wait from {{$.Tasks}}
                   where {{.Ready ""}} and placement is not null
                   order by id limit ` + maxPlacedWaits + `) as placed
           where wait > 0))`

// readyPartsSQL is readySQL for the parts of a stage. It considers the placements of the first ready parts only:
// a part without one can be claimed, and then no wait matters. Parts with a placement have no index of their own,
// and to search all ready parts for them costs more than a claim.
const readyPartsSQL = `
/* find ready parts of {{.Stage.Name}} */
select {{with .Stage}}` + readyPartsColumnsSQL + `{{end}}, false`

const readyPartsColumnsSQL = `
       (select true from {{$.Parts}} where {{.PartReady ""}}
           and ($1::uuid[] is null or task_id = any($1))
           and {{.MayClaimPart "" "$2"}}
         order by priority desc, turn, task_id desc limit 1) is not null,
       least(
         (select greatest(extract(epoch from run_at - now()), 0)::float8 from {{$.Parts}}
           where stage = '{{.Name}}' and run_at is not null
           order by run_at limit 1),
         (select min(wait)
            from (select {{.PartPlacementWait "" "$2"}} as wait
                    from (select * from {{$.Parts}} where {{.PartReady ""}}
                           order by priority desc, turn, task_id desc limit ` + maxPlacedWaits + `) as first_ready
                   where placement is not null) as placed
           where wait > 0))`

// maxPlacedWaits is how many tasks with a placement, or ready parts, are considered: the oldest, or first.
const maxPlacedWaits = "100"

func (x *exchange) queuePromote(queue int) {
	if x.request.PromoteDue[queue] {
		x.queueOrigin(originExchange)
		x.batch.Queue(x.sql.promote[queue])
	}
}

// queueClaims claims from a queue, and asks what is still ready there. Tasks that the
// exchange itself makes ready may come before the position given, so it is ignored then.
func (x *exchange) queueClaims(queue int) {
	if !x.request.ClaimFrom[queue] {
		return
	}
	var after Position
	stage, parts := x.graph.QueueStage(queue)
	switch {
	case parts:
		x.queueClaimParts(queue, stage)
	default:
		if x.request.After != nil && x.mayBecomeReady[stage] == 0 && !x.retried[stage] && !x.isLimited(stage) {
			after = x.request.After[stage]
		}
		x.queueClaimsAfter(stage, after)
	}
	if !after.Task.IsZero() {
		return
	}
	x.batch.Queue(x.sql.ready[queue], x.request.OnlyTasks, x.request.Worker).QueryRow(func(row pgx.Row) error {
		var next *float64
		var several bool
		if err := row.Scan(&x.result.MoreReady[queue], &next, &several); err != nil {
			return err
		}
		x.result.NextDue[queue] = secondsToDuration(next)
		if !parts {
			x.fairness.setSeveral(stage, several)
		}
		return nil
	})
}

// queueClaimParts claims parts of a stage.
func (x *exchange) queueClaimParts(queue, stage int) {
	n := x.slots(queue)
	if n == 0 {
		return
	}
	x.queueOrigin(originRecorded)
	x.batch.Queue(x.sql.claimParts[x.divided(stage)], x.request.Worker, n, x.request.OnlyTasks).Query(func(rows pgx.Rows) error {
		x.result.Requested[queue] = n
		return x.readClaims(rows, stage, func(c Claim) {
			x.result.Claims = append(x.result.Claims, c)
			x.result.Granted[queue]++
		})
	})
}

func (x *exchange) queueClaimsAfter(stage int, after Position) {
	n := x.slots(stage)
	if n == 0 {
		return
	}
	x.queueOrigin(originRecorded)
	if isLimited := x.isLimited(stage); isLimited || x.isFair(stage, after) {
		x.queueFairClaims(stage, after, isLimited)
		return
	}
	sql, args := x.sql.claim[stage], []any{x.request.Worker, n, x.request.OnlyTasks}
	switch {
	case x.mayBecomeReady[stage] > 0:
		sql = x.sql.claimContinued[stage]
	case !after.Task.IsZero():
		sql, args = x.sql.claimAfter[stage], append(args, after.Priority, after.Task)
	}
	x.batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		last := &x.result.LastPosition[stage]
		user, err := x.readTaskClaims(rows, stage, func(c Claim) {
			if last.Task.IsZero() || last.compare(c.position()) < 0 {
				*last = c.position()
			}
		})
		x.fairness.setAfter(stage, user)
		return err
	})
}

// readTaskClaims reads claims of tasks, and returns the last one's user.
func (x *exchange) readTaskClaims(rows pgx.Rows, stage int, add func(Claim), more ...any) (user string, err error) {
	x.result.Requested[stage] = x.slots(stage) - x.continued[stage]
	user = x.turns[stage].after
	err = x.readClaims(rows, stage, func(c Claim) {
		x.result.Claims = append(x.result.Claims, c)
		x.result.Granted[stage]++
		user = c.UserID
		add(c)
	}, more...)
	return user, err
}

// queueAgedClaims claims the aged tasks of a queue, before other tasks get its slots.
func (x *exchange) queueAgedClaims(queue int) {
	if x.request.Aged == nil || !x.request.ClaimFrom[queue] {
		return
	}
	ids := x.request.Aged[queue]
	ids = ids[:min(len(ids), x.slots(queue))]
	if len(ids) == 0 {
		return
	}
	x.agedSlots[queue] = len(ids)
	stage, _ := x.graph.QueueStage(queue)
	x.queueOrigin(originRecorded)
	x.batch.Queue(x.sql.claimAged[queue], x.request.Worker, len(ids), ids).Query(func(rows pgx.Rows) error {
		return x.readClaims(rows, stage, func(c Claim) {
			c.Aged = true
			x.result.Claims = append(x.result.Claims, c)
		})
	})
}

func (x *exchange) readClaims(rows pgx.Rows, stage int, add func(Claim), more ...any) error {
	for rows.Next() {
		c := Claim{Stage: stage}
		var waited float64
		dest := []any{&c.Task, &c.Token, &c.Attempt, &c.Source, &c.Params, &c.UserID, &c.Traceparent, &waited, &c.Priority}
		if x.graph.Divides(stage) {
			dest = append(dest, &c.Parts, &c.Part, &c.Spec, &c.turn)
		}
		if err := rows.Scan(append(dest, more...)...); err != nil {
			return err
		}
		c.Waited = secondsToDuration(&waited)
		add(c)
	}
	return rows.Err()
}

// secondsToDuration converts the database's seconds, -1 for null.
func secondsToDuration(seconds *float64) time.Duration {
	const maxSeconds = 1e9 // fits a Duration
	if seconds == nil {
		return -1
	}
	return time.Duration(min(max(*seconds, 0), maxSeconds) * float64(time.Second))
}

// claimVariant selects one of the forms of claimSQL.
type claimVariant struct{ After, Continued, Aged, Limited bool }

// AfterID is the condition of claimFairSQL that a task is after the position.
func (v claimVariant) AfterID() string {
	if v.After {
		return " and t.id > $5"
	}
	return ""
}
