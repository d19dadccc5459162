package store

import (
	"bytes"
	"cmp"
	"time"

	"github.com/jackc/pgx/v5"
)

// claim: the rows of the stage's ready index, from its beginning or after a
// place, passing over those that somebody else is claiming; for a worker that was
// not given up. A task has waited since it was submitted, was done again by hand, or
// was due; or since an attempt at the stage, or at what it needs, ended, or was to be
// followed by the next. Where tasks went on with the stage in this turn, their slots
// are not free any more. Aged tasks are found by their ids; coalesce keeps the planner
// from reading the ready index for them, where they may be behind a million others.
const claimSQL = `
/* claim {{.Stage.Name}} */
with moved as (
  update {{.Tasks}} t set
         {{.Stage.Name}}_status    = 'inprogress',
         {{.Stage.Name}}_attempts  = {{.Stage.Name}}_attempts + 1,
         {{.Stage.Name}}_token     = gen_random_uuid(),
         {{.Stage.Name}}_locked_at = now(),
         {{.Stage.Name}}_locked_by = $1
   where ctid = any (array(
         select ctid from {{.Tasks}}
          where {{if .Aged}}id = any($3::uuid[]) and coalesce({{.Stage.Ready ""}}, false)
            {{- else}}{{.Stage.Ready ""}} and ($3::uuid[] is null or id = any($3)){{end}}
            and {{.Alive "$1"}}
            {{- if .After}}
            and priority = $4 and id > $5
            {{- end}}
          order by {{if not .Aged}}priority desc, {{end}}id
          limit {{if .Rest}}greatest($2 - coalesce((nullif(current_setting('cuelight.continued', true), '')::int4[])[{{.Nth}}], 0), 0){{else}}$2{{end}}
            for no key update skip locked))
  returning t.id, {{.Stage.Name}}_token as token, {{.Stage.Name}}_attempts as attempt, source, params, coalesce(user_id, ''), coalesce(traceparent, ''),
            extract(epoch from {{.Stage.Waited .Attempts}})::float8, priority
), told as (
  insert into {{.Outbox}} (type, worker_id, stage, tasks, attempts)
  select 'started', $1, '{{.Stage.Name}}', array_agg(id), array_agg(attempt)
    from moved having count(*) > 0
)
select * from moved`

// mature: a stage that waited for a time that has come is ready from now on. A task that
// waited for the time it was submitted for is ready since then. Of any other the history
// says when this stage was to be tried again; its other stages have waited all the same.
const promoteSQL = `
/* mature {{.Stage.Name}} */
update {{.Tasks}} set {{.Stage.Name}}_run_at = null,
       ready_at = case when {{.Stage.Name}}_attempts = 0 then coalesce(ready_at, {{.Stage.Name}}_run_at) else ready_at end
 where id in (select id from {{.Tasks}}
               where {{.Stage.Name}}_run_at <= now()
               order by {{.Stage.Name}}_run_at
               limit 1000
                 for no key update skip locked)`

// look: whether something is ready, seen without locking, and how long until
// something else will be. The order decides nothing but the plan: with exists,
// where a good part of the table is ready, PostgreSQL would rather read the
// table from its beginning, where the finished tasks are.
const readySQL = `
/* look at {{.Stage.Name}} */
select {{with .Stage}}` + readyColumnsSQL + `{{end}}`

const readyColumnsSQL = `
       (select true from {{$.Tasks}} where {{.Ready ""}}
           and ($1::uuid[] is null or id = any($1))
         order by priority desc, id limit 1) is not null,
       (select greatest(extract(epoch from {{.Name}}_run_at - now()), 0)::float8 from {{$.Tasks}}
         where {{.Name}}_run_at is not null
         order by {{.Name}}_run_at limit 1)`

// queueMature makes ready what is due in one stage.
func (t *exchange) queuePromote(stage int) {
	if t.request.PromoteDue != nil && t.request.PromoteDue[stage] {
		t.queueOrigin(originExchange)
		t.batch.Queue(t.store.sql.mature[stage])
	}
}

// queueLook claims in one stage, if it is to be looked at. Where the turn itself makes
// tasks ready, these may come before the place that it was to go on from.
func (t *exchange) queueClaimStage(stage int) {
	if !t.request.ClaimFrom[stage] {
		return
	}
	var after Position
	if t.request.After != nil && t.mayBecomeReady[stage] == 0 && !t.retried[stage] {
		after = t.request.After[stage]
	}
	t.queueClaim(stage, after)
	if !after.Task.IsZero() {
		return
	}
	t.batch.Queue(t.store.sql.look[stage], t.request.OnlyTasks).QueryRow(func(row pgx.Row) error {
		var next *float64
		if err := row.Scan(&t.result.MoreReady[stage], &next); err != nil {
			return err
		}
		t.result.NextDue[stage] = secondsToDue(next)
		return nil
	})
}

// slots is how many claims of a stage a turn makes at the most, beside those of aged tasks.
func (t *exchange) slots(stage int) int {
	return min(t.request.FreeSlots[stage], batchTasks) - t.agedSlots[stage]
}

func (t *exchange) queueClaim(stage int, after Position) {
	n := t.slots(stage)
	if n == 0 {
		return
	}
	t.queueOrigin(originRecorded)
	sql, args := t.store.sql.claim[stage], []any{t.request.Worker, n, t.request.OnlyTasks}
	switch {
	case t.mayBecomeReady[stage] > 0:
		sql = t.store.sql.claimRest[stage]
	case !after.Task.IsZero():
		sql, args = t.store.sql.claimAfter[stage], append(args, after.Priority, after.Task)
	}
	t.batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		t.result.Requested[stage] = n - t.continued[stage]
		return t.readClaims(rows, stage, func(c Claim) {
			t.result.Claims = append(t.result.Claims, c)
			t.result.Granted[stage]++
			if last := &t.result.LastPosition[stage]; last.Task.IsZero() || last.compare(c.position()) < 0 {
				*last = c.position()
			}
		})
	})
}

// readClaims reads what a claim returned.
func (t *exchange) readClaims(rows pgx.Rows, stage int, take func(Claim)) error {
	for rows.Next() {
		c := Claim{Stage: stage}
		var waited float64
		if err := rows.Scan(&c.Task, &c.Token, &c.Attempt, &c.Source, &c.Params, &c.UserID, &c.Traceparent, &waited, &c.Priority); err != nil {
			return err
		}
		c.Waited = secondsToDue(&waited)
		take(c)
	}
	return rows.Err()
}

// Compare puts claims in the order in which they are to be started: by stage, and
// those of a stage by priority and id, after those of aged tasks.
func (c Claim) Compare(d Claim) int {
	if c.Stage == d.Stage && c.Aged != d.Aged {
		if c.Aged {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(c.Stage, d.Stage), c.position().compare(d.position()))
}

func (c Claim) position() Position { return Position{c.Priority, c.Task} }

func (p Position) compare(q Position) int {
	return cmp.Or(cmp.Compare(q.Priority, p.Priority), bytes.Compare(p.Task[:], q.Task[:]))
}

// until is the [Turned] Next of what the database answered, in seconds.
func secondsToDue(seconds *float64) time.Duration {
	if seconds == nil {
		return -1
	}
	return time.Duration(min(max(*seconds, 0), maxSeconds) * float64(time.Second))
}

// farAway is as many seconds as a Duration can hold and nobody waits for.
const maxSeconds = 1e9
