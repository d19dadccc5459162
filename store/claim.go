package store

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// claim: the rows of the stage's ready index, from its beginning or after a
// place, passing over those that somebody else is claiming; for a worker that was
// not given up. A task has waited since it was submitted, was done again by hand, or
// was due; or since an attempt at the stage, or at what it needs, ended, or was to be
// followed by the next.
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
          where {{.Stage.Ready ""}}
            and {{.Alive "$1"}}
            and ($3::uuid[] is null or id = any($3))
            {{- if .After}}
            and priority = $4 and id > $5
            {{- end}}
          order by priority desc, id
          limit $2
            for no key update skip locked))
  returning t.id, {{.Stage.Name}}_token as token, {{.Stage.Name}}_attempts as attempt, source, params, coalesce(user_id, ''), coalesce(traceparent, ''),
            extract(epoch from now() - greatest(t.created_at, t.ready_at,
              (select max(coalesce(retry_at, finished_at)) from {{.Attempts}} a
                where a.task_id = t.id and a.stage in ('{{.Stage.Name}}'{{range .Stage.Needs}}, '{{.}}'{{end}}))))::float8, priority
), told as (
  insert into {{.Outbox}} (type, worker_id, stage, tasks, attempts)
  select 'started', $1, '{{.Stage.Name}}', array_agg(id), array_agg(attempt)
    from moved having count(*) > 0
)
select * from moved`

// mature: what waited for a time that has come is ready from now on. Of what was tried
// before, the history says so; the task's other stages have waited all the same.
const matureSQL = `
/* mature {{.Stage.Name}} */
update {{.Tasks}} set {{.Stage.Name}}_run_at = null,
       ready_at = case when {{.Stage.Name}}_attempts = 0 then greatest(ready_at, {{.Stage.Name}}_run_at) else ready_at end
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

// queueLook claims in one stage, if it is to be looked at.
func (t *turn) queueLook(stage int) {
	sql := t.store.sql
	if t.in.Mature != nil && t.in.Mature[stage] {
		t.tell(madeByTurn)
		t.batch.Queue(sql.mature[stage])
	}
	if !t.in.Look[stage] {
		return
	}
	var after Place
	if t.in.After != nil {
		after = t.in.After[stage]
	}
	t.queueClaim(stage, after)
	if !after.Task.IsZero() {
		return
	}
	t.batch.Queue(sql.look[stage], t.in.Only).QueryRow(func(row pgx.Row) error {
		var left bool
		var next *float64
		if err := row.Scan(&left, &next); err != nil {
			return err
		}
		t.out.Left[stage] = t.out.Left[stage] || left
		t.out.Next[stage] = until(next)
		return nil
	})
}

func (t *turn) queueClaim(stage int, after Place) {
	n := min(t.free[stage], batchTasks)
	if n == 0 {
		return
	}
	t.out.Asked[stage] = n
	t.tell(madeByRecorded)
	sql, args := t.store.sql.claim[stage], []any{t.in.Worker, n, t.in.Only}
	if !after.Task.IsZero() {
		sql, args = t.store.sql.claimAfter[stage], append(args, after.Priority, after.Task)
	}
	t.batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		var found []placed
		for rows.Next() {
			p := placed{Claim: Claim{Stage: stage}}
			var waited float64
			if err := rows.Scan(&p.Task, &p.Token, &p.Attempt, &p.Source, &p.Params, &p.UserID, &p.Traceparent, &waited, &p.priority); err != nil {
				return err
			}
			p.Waited = until(&waited)
			found = append(found, p)
		}
		// They come as they lie in the table.
		slices.SortFunc(found, placed.compare)
		for _, p := range found {
			t.out.Claims = append(t.out.Claims, p.Claim)
			t.out.Last[stage] = Place{p.priority, p.Task}
		}
		t.out.Found[stage] = len(found)
		return rows.Err()
	})
}

// placed is a claim with its place in the order.
type placed struct {
	Claim
	priority int16
}

func (p placed) compare(q placed) int {
	return cmp.Or(cmp.Compare(q.priority, p.priority), bytes.Compare(p.Task[:], q.Task[:]))
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
