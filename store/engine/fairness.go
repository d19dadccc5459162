package engine

import (
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// fairness lets users take turns: while ready tasks of several users wait for a stage, each claim goes on with the user
// after the last one, in the order of their names. Every fourth claim takes the first tasks in the usual
// order instead, for tasks without a user. Priorities come first: only users with tasks of the highest one take turns.
//
// Each process has its own turns, so a user's first task starts within as many claims of one process as there are users,
// and one more.
type fairness struct {
	mu     sync.Mutex
	stages []turn
}

// turn is whose turn it is in a stage.
type turn struct {
	several bool   // tasks of several users were ready at the last look
	after   string // the user of the last claim; empty for none
	claims  int    // from the start of the queue, or by turns
}

// usualOrder is how often a claim is in the usual order.
const usualOrder = 4

func newFairness(stages int) *fairness { return &fairness{stages: make([]turn, stages)} }

func (f *fairness) turns() []turn {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.stages)
}

// setSeveral records whether tasks of several users are ready after a claim.
func (f *fairness) setSeveral(stage int, several bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stages[stage].several = several
}

// setAfter records the user whose turn was last in a claim.
func (f *fairness) setAfter(stage int, user string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := &f.stages[stage]
	t.claims++
	t.after = user
}

// isFair says whether the next claim takes turns. One from the start of the queue does so where tasks have users, because a
// notification, which leads there, may be about a task of another user.
func (x *exchange) isFair(stage int, after Position) bool {
	t := x.turns[stage]
	return (t.several || after.Task.IsZero() && t.after != "") && t.claims%usualOrder != usualOrder-1 && x.request.OnlyTasks == nil
}

func (x *exchange) isLimited(stage int) bool {
	return x.request.MaxRunningPerUser > 0 && x.request.OnlyTasks == nil && len(x.graph.Needs(stage)) == 0
}

// queueFairClaims claims by turns. Those from the start are of the highest priority, and later ones go on with it after
// the tasks that a claim in the usual order took.
func (x *exchange) queueFairClaims(stage int, after Position, isLimited bool) {
	sql, args := x.sql.claimFair[stage], []any{x.request.Worker, x.slots(stage), x.turns[stage].after}
	switch {
	case isLimited:
		x.batch.Queue(x.sql.lockLimit)
		sql, args = x.sql.claimLimited[stage], append(args, x.request.MaxRunningPerUser)
	case !after.Task.IsZero():
		sql, args = x.sql.claimFairAfter[stage], append(args, after.Priority, after.Task)
	}
	x.batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		last := after
		var lastUser *string
		user, err := x.readTaskClaims(rows, stage, func(c Claim) {
			if after.Task.IsZero() && (last.Task.IsZero() || last.Priority < c.Priority) {
				last = Position{c.Priority, firstID}
			}
		}, &lastUser)
		if lastUser != nil {
			user = *lastUser
		}
		x.fairness.setAfter(stage, user)
		if !isLimited {
			x.result.LastPosition[stage] = last
		}
		return err
	})
}

// firstID is before the ids of all tasks.
var firstID = store.ID{15: 1}

// lockLimitSQL lets one process at a time claim where users have a limit, so that each sees the claims of the others.
const lockLimitSQL = `
/* lock limited claims */
select pg_advisory_xact_lock(hashtext('cuelight limits'), '{{.Tasks}}'::regclass::oid::integer)`

// maxUsers is how many users at most take their turns in one claim. Each costs two searches of the index, 6 µs in all.
const maxUsers = "20"

// claimFairSQL claims by turns: for each of the users after $3, the oldest tasks of the highest priority, as many as there
// are slots, and then other tasks in their usual order. The form for a position claims only tasks after it, and of its
// priority. The limited form claims only for users of whom less than $4 tasks have started: they are worked on, or ready for
// a later stage.
//
// Each user is found by one search of the index. The offset keeps PostgreSQL from doing each of them twice. Rows locked
// beyond the slots stay ready.
const claimFairSQL = `
/* claim {{.Stage.Name}} by turns */
with recursive free as materialized (
  select ` + slotsSQL + ` as slots
), top as materialized (
  {{- if .With.After}}
  select $4::int2 as priority
  {{- else}}
  select priority from {{.Tasks}} where {{.Stage.Ready ""}} order by priority desc, id limit 1
  {{- end}}
), users as (
  select next.user_id, next.user_id as first_user, 1 as number
    from (select {{.Stage.NextUser "$3::text" .With.AfterID}} as user_id offset 0) as next
   where next.user_id is not null
  union all
  select next.user_id, users.first_user, users.number + 1
    from users
   cross join lateral (select {{.Stage.NextUser "users.user_id" .With.AfterID}} as user_id offset 0) as next
   where users.number < (select slots from free)
         {{- if .With.Limited}} + (select count(*) from started where n >= $4)
         {{- else}} and users.number < ` + maxUsers + `{{end}} and next.user_id <> users.first_user
{{- if .With.Limited}}
), started as materialized (
  select user_id, count(*) as n
    from (select id, user_id from {{.Tasks}} where ({{.IsWorkedOn ""}}) and user_id is not null
          {{- range .Stages}}{{if .Needs}}
          union
          select id, user_id from {{$.Tasks}} where {{.Ready ""}} and user_id is not null
          {{- end}}{{end}}) as each
   group by user_id
{{- end}}
), share as materialized (
  select ceil((select slots from free)::float8 / count(*))::int as n from users
), first as materialized (
  select oldest.row_ctid
    from users
   cross join lateral (
         select row_ctid, row_number() over () as round
           from (select ctid as row_ctid from {{.Tasks}} t
                  where {{.Stage.Ready "t."}}
                    and t.user_id = users.user_id and t.priority = (select priority from top){{.With.AfterID}}
                    and {{.Alive "$1"}}
                    and {{.Stage.MayClaim "t." "$1" "null"}}
                  order by t.id
                  limit {{if not .With.Limited}}(select n from share)
                  {{- else}}least((select n from share),
                              greatest($4 - coalesce((select n from started s where s.user_id = users.user_id), 0), 0))
                  {{- end}}
                    for no key update skip locked) as locked) as oldest
   order by oldest.round, users.number
   limit (select slots from free)
), claimed as (` + startSQL + `
   where ctid = any (array(
         select row_ctid from first union all select ctid from (
         select ctid from {{.Tasks}}
          where {{.Stage.Ready ""}}
            and {{.Alive "$1"}}
            and {{.Stage.MayClaim "" "$1" "null"}}
            {{- if .With.After}}
            and priority = $4 and id > $5
            {{- end}}
            and ctid <> all (array(select row_ctid from first))
            {{- if .With.Limited}}
            and user_id is null
            {{- end}}
          order by priority desc, id
          limit (select slots from free) - (select count(*) from first)
            for no key update skip locked) as others))` + startedSQL + `
select *, (select user_id from users order by number desc limit 1) as last_user from claimed`

// The first and the last of the users with ready tasks. Where these are one, nobody else waits, unless at a priority in between.
const (
	firstUserSQL = `(select ready.user_id from {{$.Tasks}} ready
                 where {{.Ready "ready."}} and ready.user_id is not null
                 order by ready.priority desc, ready.user_id, ready.id limit 1)`
	lastUserSQL = `(select ready.user_id from {{$.Tasks}} ready
                 where {{.Ready "ready."}} and ready.user_id is not null
                 order by ready.priority, ready.user_id desc, ready.id desc limit 1)`
)
