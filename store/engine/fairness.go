package engine

import (
	"slices"
	"sync"
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

// isFair says whether the next claim takes turns. One from the start of the queue does so where tasks have users, because a
// notification, which leads there, may be about a task of another user.
func (t turn) isFair(fromStart bool) bool {
	return (t.several || fromStart && t.after != "") && t.claims%usualOrder != usualOrder-1
}

func newFairness(stages int) *fairness { return &fairness{stages: make([]turn, stages)} }

func (f *fairness) turns() []turn {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.stages)
}

// setSeveral records what was ready after a claim.
func (f *fairness) setSeveral(stage int, several bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := &f.stages[stage]
	t.claims++
	t.several = several
}

// setAfter records the user whose turn was last.
func (f *fairness) setAfter(stage int, user string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stages[stage].after = user
}

// lockLimitSQL lets one process at a time claim where users have a limit, so that each sees the claims of the others.
const lockLimitSQL = `
/* lock limited claims */
select pg_advisory_xact_lock(hashtext('cuelight limits'), '{{.Tasks}}'::regclass::oid::integer)`

// usersSQL are the users whose turn it is, and the tasks of theirs that are claimed first. Each user is found by one search
// of the index. Tasks that are locked beyond the slots are not claimed. The limited form claims only for users of whom less than
// $5 tasks have started: they are worked on, or ready for a later stage.
const usersSQL = `free as materialized (
  select ` + slotsSQL + ` as slots
), top as materialized (
  select priority from {{.Tasks}} where {{.Stage.Ready ""}} order by priority desc, id limit 1
), users as (
  select next.user_id, next.user_id as first_user, 1 as number
    from (select {{.Stage.NextUser "$4::text"}} as user_id) as next
   where next.user_id is not null
  union all
  select next.user_id, users.first_user, users.number + 1
    from users
   cross join lateral (select {{.Stage.NextUser "users.user_id"}} as user_id) as next
   where users.number < (select slots from free)
         {{- if .With.Limited}} + (select count(*) from started where n >= $5){{end}} and next.user_id <> users.first_user
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
                    and t.user_id = users.user_id and t.priority = (select priority from top)
                    and {{.Alive "$1"}}
                    and {{.Stage.MayClaim "t." "$1" "null"}}
                  order by t.id
                  limit {{if not .With.Limited}}(select n from share)
                  {{- else}}least((select n from share),
                              greatest($5 - coalesce((select n from started s where s.user_id = users.user_id), 0), 0))
                  {{- end}}
                    for no key update skip locked) as locked) as oldest
   order by oldest.round, users.number
   limit (select slots from free)
)`

// slotsSQL is how many slots the statements before have left.
const slotsSQL = `greatest($2 - coalesce(
                  nullif(current_setting('cuelight.continued_{{.Stage.Name}}', true), '')::int4, 0), 0)`

// The first and the last of the users with ready tasks. Where these are one, nobody else waits, unless at a priority in between.
const (
	firstUserSQL = `(select ready.user_id from {{$.Tasks}} ready
                 where {{.Ready "ready."}} and ready.user_id is not null
                 order by ready.priority desc, ready.user_id, ready.id limit 1)`
	lastUserSQL = `(select ready.user_id from {{$.Tasks}} ready
                 where {{.Ready "ready."}} and ready.user_id is not null
                 order by ready.priority, ready.user_id desc, ready.id desc limit 1)`
)
