package engine

import (
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// fairness lets users take turns: while ready tasks of several users wait for a stage, each claim goes on with the user
// after the last one, in the order of their names. Tasks without a user are those of one more. Priorities come first: only
// users with tasks of the highest one take turns.
//
// Each process has its own turns, so a user's first task starts within as many claims of one process as there are users.
type fairness struct {
	mu     sync.Mutex
	stages []turn
}

// turn is whose turn it is in a stage.
type turn struct {
	several bool   // tasks of several users were ready at the last look
	after   string // the user of the last claim; empty for none
}

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
	f.stages[stage].after = user
}

// isFair says whether the next claim takes turns. One from the start of the queue does so where tasks have users, because a
// notification, which leads there, may be about a task of another user.
func (x *exchange) isFair(stage int, after Position) bool {
	t := x.turns[stage]
	return (t.several || after.Task.IsZero() && t.after != "") && x.request.OnlyTasks == nil
}

func (x *exchange) isLimited(stage int) bool {
	return x.request.MaxRunningPerUser > 0 && x.request.OnlyTasks == nil && len(x.graph.Needs(stage)) == 0
}

// queueFairClaims claims by turns: from the start, or tasks of the priority of a position, after it.
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
		user, err := x.readTaskClaims(rows, stage, func(Claim) {}, &lastUser, &last.Priority, &last.Task)
		if lastUser != nil {
			user = *lastUser
		}
		x.fairness.setAfter(stage, user)
		if !isLimited {
			if after.Task.IsZero() && !last.Task.IsZero() {
				last.Task = idBefore(last.Task) // the first ready task itself may not have been claimed
			}
			x.result.LastPosition[stage] = last
		}
		return err
	})
}

// notifyLimitedSQL wakes other processes, since a user's next task may start when one has ended.
const notifyLimitedSQL = `
/* notify of users below their limit */
select {{range .Stages}}{{if not .Needs}}pg_notify('{{.Channel}}', ''), {{end}}{{end}}true as sent
 where pg_notification_queue_usage() < 0.9`

// queueLimitNotification notifies of tasks that the reports may have ended.
func (x *exchange) queueLimitNotification() {
	mayEnd := func(r Report) bool {
		return r.Outcome == Failed || r.Outcome == Completed && len(x.graph.Feeds(r.Stage)) == 0
	}
	if x.request.MaxRunningPerUser > 0 && slices.ContainsFunc(x.request.Reports, mayEnd) {
		x.batch.Queue(x.sql.notifyLimited)
	}
}

// idBefore returns the greatest id before another.
func idBefore(id store.ID) store.ID {
	for i := len(id) - 1; i >= 0; i-- {
		id[i]--
		if id[i] != 0xff {
			break
		}
	}
	return id
}

// lockLimitSQL lets one process at a time claim where users have a limit, so that each sees the claims of the others. The
// others claim nothing, and try again. It is a statement before the claim, whose snapshot must be later than the lock.
const lockLimitSQL = `
/* lock limited claims */
select set_config('cuelight.limit_lock',
                  pg_try_advisory_xact_lock(hashtext('cuelight limits'), '{{.Tasks}}'::regclass::oid::integer)::text, true)`

// maxUsers is how many users at most take their turns in one claim. Each costs two searches of the index.
const maxUsers = "20"

// claimFairSQL claims by turns: for each of the users after $3, the oldest tasks of the highest priority, as many as there
// are slots, and then other tasks in their usual order. The form for a position claims only tasks of its
// priority, after it. Each row has the last user, and the position of the first ready task or that given.
//
// The limited form claims only for users of whom less than $4 tasks have started and not ended. Other tasks are
// those of users who have not reached the limit, among the first 1000.
//
// Each user is found by one search of the index. The offset keeps PostgreSQL from doing each of them twice. Rows locked
// beyond the slots stay ready.
const claimFairSQL = `
/* claim {{.Stage.Name}} by turns */
with recursive free as materialized (
  select {{if .With.Limited}}(current_setting('cuelight.limit_lock') = 'true')::int * {{end}}` + slotsSQL + ` as slots
), top as materialized (
  {{- if .With.After}}
  select $4::int2 as priority, $5::uuid as id
  {{- else}}
  select priority, id from {{.Tasks}} where {{.Stage.Ready ""}} order by priority desc, id limit 1
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
    from (select id, user_id from {{.Tasks}} where {{.IsWorkedOn ""}}
          {{- range .Stages}}{{if .Needs}}
          union
          select id, user_id from {{$.Tasks}} where {{.Ready ""}}
          union
          select id, user_id from {{$.Tasks}} where {{.Name}}_run_at is not null
          {{- end}}{{end}}) as each
   where user_id <> ''
   group by user_id
{{- end}}
), share as materialized (
  select ceil((select slots from free)::float8 / count(*))::int as n from users
), first as materialized (
  select oldest.row_ctid, users.user_id
    from users
   cross join lateral (
         select row_ctid, row_number() over () as round
           from (select ctid as row_ctid from {{.Tasks}} t
                  where {{.Stage.Ready "t."}}
                    and {{user "t."}} = users.user_id and t.priority = (select priority from top){{.With.AfterID}}
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
)
{{- if .With.Limited}}, counted as (
  select user_id, sum(n) as n
    from (select * from started union all select user_id, count(*) from first where user_id <> '' group by 1) as each
   group by user_id
), allowed as materialized (
  select ctid as row_ctid
    from (select t.*, row_number() over (partition by t.user_id order by t.priority desc, t.id) as nth
            from (select ctid, priority, id, {{user ""}} as user_id
                    from {{.Tasks}}
                   where {{.Stage.Ready ""}}
                     and {{.Alive "$1"}}
                     and {{.Stage.MayClaim "" "$1" "null"}}
                     and {{user ""}} <> all (array(select user_id from counted where n >= $4))
                     and ctid <> all (array(select row_ctid from first))
                   order by priority desc, id
                   limit 1000) as t) as t
    left join counted using (user_id)
   where user_id = '' or nth <= $4 - coalesce(n, 0)
   order by priority desc, id
   limit (select slots from free) - (select count(*) from first)
){{end}}, claimed as (` + startSQL + `
   where ctid = any (array(
         select row_ctid from first union all select ctid from (
         select ctid from {{.Tasks}}
          where {{.Stage.Ready ""}}
            {{- if .With.Limited}}
            and ctid = any (array(select row_ctid from allowed))
            {{- else}}
            and {{.Alive "$1"}}
            and {{.Stage.MayClaim "" "$1" "null"}}
            {{- if .With.After}}
            and priority = $4 and id > $5
            {{- end}}
            and ctid <> all (array(select row_ctid from first))
            {{- end}}
          order by priority desc, id
          limit (select slots from free) - (select count(*) from first)
            for no key update skip locked) as others))` + startedSQL + `
select claimed.*, (select user_id from users order by number desc limit 1) as last_user, top.priority, top.id
  from claimed
 cross join top`

// slotsSQL is how many slots the statements before have left.
const slotsSQL = `greatest($2 - coalesce(
                  nullif(current_setting('cuelight.continued_{{.Stage.Name}}', true), '')::int4, 0), 0)`

// The first and the last of the users whose tasks of the highest priority are ready. Where these are one, nobody else waits.
const (
	topPrioritySQL = `(select top.priority from {{$.Tasks}} top
                 where {{.Ready "top."}} order by top.priority desc, top.id limit 1)`
	firstUserSQL = `(select {{user "ready."}} from {{$.Tasks}} ready
                 where {{.Ready "ready."}}
                 order by ready.priority desc, {{user "ready."}}, ready.id limit 1)`
	lastUserSQL = `(select {{user "ready."}} from {{$.Tasks}} ready
                 where {{.Ready "ready."}} and ready.priority = ` + topPrioritySQL + `
                 order by {{user "ready."}} desc, ready.id desc limit 1)`
)
