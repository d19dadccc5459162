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
          limit {{if .Rest}}greatest($2 - coalesce((nullif(current_setting('cuelight.begun', true), '')::int4[])[{{.Nth}}], 0), 0){{else}}$2{{end}}
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
const matureSQL = `
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
const lookSQL = `
/* look at {{.Stage.Name}} */
select {{with .Stage}}` + lookedSQL + `{{end}}`

const lookedSQL = `
       (select true from {{$.Tasks}} where {{.Ready ""}}
           and ($1::uuid[] is null or id = any($1))
         order by priority desc, id limit 1) is not null,
       (select greatest(extract(epoch from {{.Name}}_run_at - now()), 0)::float8 from {{$.Tasks}}
         where {{.Name}}_run_at is not null
         order by {{.Name}}_run_at limit 1)`

// queueMature makes ready what is due in one stage.
func (t *turn) queueMature(stage int) {
	if t.in.Mature != nil && t.in.Mature[stage] {
		t.tell(madeByTurn)
		t.batch.Queue(t.store.sql.mature[stage])
	}
}

// queueLook claims in one stage, if it is to be looked at. Where the turn itself makes
// tasks ready, these may come before the place that it was to go on from.
func (t *turn) queueLook(stage int) {
	if !t.in.Look[stage] {
		return
	}
	var after Place
	if t.in.After != nil && t.opens[stage] == 0 && !t.again[stage] {
		after = t.in.After[stage]
	}
	t.queueClaim(stage, after)
	if !after.Task.IsZero() {
		return
	}
	t.batch.Queue(t.store.sql.look[stage], t.in.Only).QueryRow(func(row pgx.Row) error {
		var next *float64
		if err := row.Scan(&t.out.Left[stage], &next); err != nil {
			return err
		}
		t.out.Next[stage] = until(next)
		return nil
	})
}

// slots is how many claims of a stage a turn makes at the most, beside those of aged tasks.
func (t *turn) slots(stage int) int { return min(t.in.Free[stage], batchTasks) - t.aged[stage] }

func (t *turn) queueClaim(stage int, after Place) {
	n := t.slots(stage)
	if n == 0 {
		return
	}
	t.tell(madeByRecorded)
	sql, args := t.store.sql.claim[stage], []any{t.in.Worker, n, t.in.Only}
	switch {
	case t.opens[stage] > 0:
		sql = t.store.sql.claimRest[stage]
	case !after.Task.IsZero():
		sql, args = t.store.sql.claimAfter[stage], append(args, after.Priority, after.Task)
	}
	t.batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		t.out.Asked[stage] = n - t.begun[stage]
		return t.readClaims(rows, stage, func(c Claim) {
			t.out.Claims = append(t.out.Claims, c)
			t.out.Found[stage]++
			if last := &t.out.Last[stage]; last.Task.IsZero() || last.compare(c.place()) < 0 {
				*last = c.place()
			}
		})
	})
}

// readClaims reads what a claim returned.
func (t *turn) readClaims(rows pgx.Rows, stage int, take func(Claim)) error {
	for rows.Next() {
		c := Claim{Stage: stage}
		var waited float64
		if err := rows.Scan(&c.Task, &c.Token, &c.Attempt, &c.Source, &c.Params, &c.UserID, &c.Traceparent, &waited, &c.Priority); err != nil {
			return err
		}
		c.Waited = until(&waited)
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
	return cmp.Or(cmp.Compare(c.Stage, d.Stage), c.place().compare(d.place()))
}

func (c Claim) place() Place { return Place{c.Priority, c.Task} }

func (p Place) compare(q Place) int {
	return cmp.Or(cmp.Compare(q.Priority, p.Priority), bytes.Compare(p.Task[:], q.Task[:]))
}

// until is the [Turned] Next of what the database answered, in seconds.
func until(seconds *float64) time.Duration {
	if seconds == nil {
		return -1
	}
	return time.Duration(min(max(*seconds, 0), farAway) * float64(time.Second))
}

// farAway is as many seconds as a Duration can hold and nobody waits for.
const farAway = 1e9
