package engine

import (
	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// completeSQL completes stages of tasks: those of a [completeForm], which says what the parameters are. Tasks
// without a matching token are not changed. The outbox gets one row for all.
//
// In the same update a task continues with the next stages: those that are ready now and
// come before all tasks that are ready there already, unless tasks of another user are. For the others the stage's workers
// are notified.
//
// The ranked form is for exchanges in which tasks compete for slots: because there are
// more tasks than free slots, or because the exchange also claims in the stage. Three more
// parameters say, per stage, how many slots are free and whether the exchange claims, and
// which tasks it claims. A task may then continue behind ready tasks if those get a slot
// as well; the setting cuelight.continued_STAGE tells the claim how many slots are taken.
//
// Rows that are locked, or changed since the statement's snapshot, are skipped and
// reported again: no exchange waits for another transaction.
const completeSQL = `
{{- $form := .With}}{{$reported := .StagesIn $form.Reported}}{{$next := .StagesIn $form.Next}}{{$read := .StagesIn $form.Read -}}
/* complete {{$form.Name}} */
with me as materialized (
  select {{.Alive "$1"}} as alive
         {{- range $next}},
         ` + topPrioritySQL + ` as {{.Name}}_top,
         ` + firstUserSQL + ` as {{.Name}}_first_user{{end}}
), locked as materialized (
  select ctid as row_ctid, id, priority, placement{{if $next}}, user_id{{end}}
         {{- range $read}},
         {{.Name}}_status{{end}}
         {{- range $next}},
         {{.Name}}_run_at{{end}}
         {{- range $reported}},
         {{.Name}}_attempts, {{.Name}}_token, {{.Name}}_locked_at, {{.Name}}_locked_by{{end}}
    from {{.Tasks}}
   where {{if $form.Single}}id = $2::uuid{{else}}id = any($2::uuid[]){{end}}
     for no key update skip locked
), matched as (
  select locked.*
         {{- range $i, $s := $reported}},
         coalesce({{.Name}}_token = {{if $form.Single}}${{arg 3 $i}}::uuid{{else}}{{.Name}}_reported{{end}}, false) as {{.Name}}_done{{end}}
    from locked
    {{- if not $form.Single}}
    join unnest($2::uuid[]{{range $i, $s := $reported}}, ${{arg 3 $i}}::uuid[]{{end}})
         as r (task{{range $reported}}, {{.Name}}_reported{{end}})
      on r.task = locked.id
    {{- end}}
), unblocked as (
  select matched.*
         {{- range $next}},
         {{.Name}}_top, {{.Name}}_first_user,
         alive and {{.Name}}_status in ('pending', 'failed') and {{.Name}}_run_at is null
           {{- range .Needs}}
           and {{if $form.Reports .}}({{.}}_done or {{.}}_status = 'completed'){{else}}{{.}}_status = 'completed'{{end}}
           {{- end}}
           and ({{.AnyNeedDone $form.Reported}})
           and {{.MayClaim "" "$1" "now()"}} as {{.Name}}_ready
         {{- end}}
    from me
   cross join matched
   where {{range $i, $s := $reported}}{{if $i}}
      or {{end}}{{.Name}}_done{{end}}
), ranked as (
  select unblocked.*
         {{- if $form.Ranked}}{{range $next}},
         count(*) filter (where {{.Name}}_ready) over by_priority as {{.Name}}_rank{{end}}{{end}}
    from unblocked
  {{- if $form.Ranked}}
  window by_priority as (order by priority desc, id rows unbounded preceding)
  {{- end}}
), step as materialized (
  select row_ctid
         {{- range $reported}},
         {{.Name}}_done{{end}}
         {{- range $s := $next}},
         {{.Name}}_ready,
         {{.Name}}_ready
           and (coalesce({{.Name}}_top < priority, true)
                or {{.Name}}_first_user = {{user ""}} and ` + lastUserSQL + ` = {{user ""}}) and
           {{- if $form.Ranked}} {{.Name}}_rank <= case when{{end}}
           coalesce((-priority::int, id) < (
             select -waiting.priority::int, waiting.id from ` + waitingSQL + ` limit 1), true)
           {{- if $form.Ranked}}
           then ` + freeSlots + `
           when ` + claimsHere + `
           then ` + freeSlots + `
                - (select count(*) from (select from ` + waitingSQL + ` limit ` + freeSlots + `) as ` +
	`before)
           else 0 end
           {{- end}} as {{.Name}}_continues
         {{- end}}
    from ranked
), updated as (
  update {{.Tasks}} t set
         {{- range $i, $s := .StagesIn $form.Written}}{{if $i}},{{end}}
         {{.Name}}_status    = {{$form.NewValue .Name "status" "'completed'" "'inprogress'"}},
         {{- if $form.Continues .Name}}
         {{.Name}}_attempts  = {{.Name}}_attempts + {{.Name}}_continues::int,
         {{- end}}
         {{.Name}}_token     = {{$form.NewValue .Name "token" "null" "gen_random_uuid()"}},
         {{.Name}}_locked_at = {{$form.NewValue .Name "locked_at" "null" "now()"}},
         {{.Name}}_locked_by = {{$form.NewValue .Name "locked_by" "null" "$1"}}
         {{- end}}
    from step
   where t.ctid = step.row_ctid
  returning t.id,
         0 {{- range $reported}}
           + {{.Name}}_done::int * {{.Bit}}{{end}} as done,
         0 {{- range $next}}
           + {{.Name}}_continues::int * {{.Bit}}{{end}} as started,
         0 {{- range $next}}
           + ({{.Name}}_ready and not {{.Name}}_continues)::int * {{.Bit}}{{end}} as left_ready,
         t.priority,
         case when {{.AnyContinues $form.Next}}
              then t.source else '' end,
         case when {{.AnyContinues $form.Next}}
              then t.params end,
         coalesce(case when {{.AnyContinues $form.Next}}
                       then t.user_id end, ''),
         coalesce(case when {{.AnyContinues $form.Next}}
                       then t.traceparent end, ''),
         {{if $form.MayEnd}}case when {{range $i, $s := .Stages}}{{if $i}}
               and {{end}}t.{{.Name}}_status = 'completed'{{end}} then 1 << 31 else 0 end{{else}}0{{end}} as task_done,
         array[{{.Each "t." "_attempts"}}] as attempts,
         0 {{- range $next}}
           + ({{.Unblocked "t."}}
              and ({{.AnyNeedDone $form.Reported}}))::int * {{.Bit}}{{end}} as to_notify
         {{- range $next}},
         case when {{.Name}}_continues then t.{{.Name}}_token end{{end}}
), recorded as (
  insert into {{.Outbox}} (type, worker_id, tasks, completed, started, attempts)
  {{- if $form.Single}}
  select 'exchange', $1, array[id], array[done | task_done], array[started], array[attempts] from updated
  {{- else}}
  select 'exchange', $1, array_agg(id), array_agg(done | task_done), array_agg(started), array_agg(attempts)
    from updated having count(*) > 0
  {{- end}}
), history as (
  insert into {{.Attempts}} (task_id, token, stage, attempt, worker_id, started_at, outcome, result)
  select locked.id, r.token,
         case r.stage{{range $reported}}
              when {{.Number}} then '{{.Name}}'{{end}} end,
         case r.stage{{range $reported}}
              when {{.Number}} then locked.{{.Name}}_attempts{{end}} end,
         case r.stage{{range $reported}}
              when {{.Number}} then locked.{{.Name}}_locked_by{{end}} end,
         case r.stage{{range $reported}}
              when {{.Number}} then locked.{{.Name}}_locked_at{{end}} end,
         'completed', r.result::jsonb
    from updated
    join locked on locked.id = updated.id
    {{- if $form.Single}}
    join (values {{range $i, $s := $reported}}{{if $i}},
                 {{end}}({{.Number}}, ${{arg 3 $i}}::uuid, ${{$form.Param $i}}::text){{end}}) as r (stage, token, result)
      on r.token
    {{- else}}
    join unnest(${{$form.Param 0}}::uuid[], ${{$form.Param 1}}::int4[],
                ${{$form.Param 2}}::uuid[], ${{$form.Param 3}}::text[])
         as r (task, stage, token, result)
      on r.task = locked.id
     and r.token
    {{- end}} = case r.stage{{range $reported}}
                        when {{.Number}} then locked.{{.Name}}_token{{end}} end
){{if $next}}, notified as materialized (
  select count(pg_notify(channel, ''))
    from {{if $form.Single}}updated{{else}}(select bit_or(to_notify) as to_notify from updated) as all_tasks{{end}}
    join (values {{range $i, $s := $next}}{{if $i}},
                 {{end}}('{{.Channel}}', {{.Bit}}){{end}}) as stage (channel, bit)
      on to_notify & bit <> 0
   where pg_notification_queue_usage() < 0.9
){{end}}
select updated.* from updated{{if $next}} cross join notified{{end}}
{{- if $form.Ranked}}
 where not true = any(${{$form.Param 5}}::bool[])
    or (select concat(
         {{- range $i, $s := $next}}{{if $i}},{{end}}
         set_config('cuelight.continued_{{.Name}}', (count(*) filter (where started & {{.Bit}} <> 0))::text, true)
         {{- end}})
          from updated) is not null
{{- end}}`

// Parts of completeSQL: two parameters of the ranked form, and the ready tasks of stage
// $s in the order in which they are claimed.
const (
	freeSlots  = `(${{$form.Param 4}}::int4[])[{{arg 1 $s.Number}}]`
	claimsHere = `(${{$form.Param 5}}::bool[])[{{arg 1 $s.Number}}]`
	waitingSQL = `{{$.Tasks}} waiting
             where {{$s.Ready "waiting."}}
               and {{$s.MayClaim "waiting." "$1" "null"}}
             {{- if $form.Ranked}}
               and (${{$form.Param 6}}::uuid[] is null or waiting.id = any(${{$form.Param 6}})){{end}}
             order by waiting.priority desc, waiting.id`
)

func (x *exchange) queueReports() {
	x.applied = make(map[store.ID]bool, len(x.request.Reports))
	var (
		seen    = make(map[store.ID]bool, len(x.request.Reports))
		batches completions
		failed  = make([][]*Report, len(x.stages))
		parts   = make([]partReports, len(x.stages))
		perSet  = x.reportsPerSet()
	)
	for i := range x.request.Reports {
		r := &x.request.Reports[i]
		if seen[r.Token] {
			continue
		}
		seen[r.Token] = true
		if r.Part > 0 || r.Outcome == Divided {
			parts[r.Stage].add(r)
			continue
		}
		if r.Outcome != Completed {
			failed[r.Stage] = append(failed[r.Stage], r)
			continue
		}
		set := x.setOf(r)
		c, row := batches.add(r, set, len(x.stages), perSet[set])
		for _, next := range x.graph.Feeds(r.Stage) {
			if bit := int32(1) << next; c.unblocks[row]&bit == 0 {
				c.unblocks[row] |= bit
				x.mayBecomeReady[next]++
			}
		}
	}
	for stage, reports := range failed { // before anything that continues with these tasks
		x.queueFailures(stage, reports)
		x.queueParts(stage, parts[stage])
	}
	x.queueCompletions(batches)
}

// queueCompletions queues a statement for each completion. Where a set of stages has several, the first one has the free
// slots, and the tasks of the others get theirs by the claims.
func (x *exchange) queueCompletions(batches completions) {
	onePerSet := batches.isOnePerSet()
	free, claims, ranked := x.continuable(onePerSet)
	if onePerSet {
		batches = batches.merged(len(x.stages))
	}
	slotsGiven := make([]bool, len(x.stages)) // by set
	for _, c := range batches {
		x.queueOrigin(originRecorded)
		n := x.formFor(c, ranked)
		form, args := x.forms[n], append([]any{x.request.Worker}, c.args(x.forms[n])...)
		switch {
		case form.Ranked && slotsGiven[c.set]:
			args = append(args, make([]int32, len(free)), make([]bool, len(claims)), x.request.OnlyTasks)
		case form.Ranked:
			args = append(args, free, claims, x.request.OnlyTasks)
		}
		slotsGiven[c.set] = true
		x.batch.Queue(x.sql.complete[n], args...).Query(func(rows pgx.Rows) error { return x.readCompleted(rows, c, form) })
	}
}

// setOf returns the set of a report's stage, 0 for all where stages need stages of several sets: then a statement for one
// set cannot know how many slots the others take.
func (x *exchange) setOf(r *Report) int {
	if !x.disjoint {
		return 0
	}
	return x.group[r.Stage]
}

func (x *exchange) reportsPerSet() []int {
	n := make([]int, len(x.stages))
	for i := range x.request.Reports {
		n[x.setOf(&x.request.Reports[i])]++
	}
	return n
}

// continuable returns, by stage, how many slots the reported tasks may continue in and
// whether the exchange claims there as well; and whether tasks compete for slots, so that
// the ranked form is needed.
func (x *exchange) continuable(onePerSet bool) (free []int32, claims []bool, ranked bool) {
	free, claims = make([]int32, len(x.stages)), make([]bool, len(x.stages))
	for i, n := range x.mayBecomeReady {
		free[i] = int32(x.slots(i))
		claims[i] = n > 0 && x.request.ClaimFrom[i] && free[i] > 0
		ranked = ranked || n > 0 && (n > x.slots(i) || claims[i] || x.request.OnlyTasks != nil || !onePerSet)
	}
	return free, claims, ranked
}

// readCompleted reads which reports were applied, and the claims that continue.
func (x *exchange) readCompleted(rows pgx.Rows, completed *completion, form completeForm) error {
	var (
		c               Claim
		done, leftReady int
		token           = make([]store.ID, len(x.stages))
		attempts        []int32
		dest            = []any{&c.Task, &done, nil, &leftReady, &c.Priority, &c.Source, &c.Params, &c.UserID, &c.Traceparent,
			nil, &attempts, nil}
	)
	for i := range x.stages {
		if form.Next&(1<<i) != 0 {
			dest = append(dest, &token[i])
		}
	}
	for rows.Next() {
		c.Params = nil
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		row := completed.row[c.Task]
		for i := range x.stages {
			if done&(1<<i) != 0 {
				x.applied[completed.tokens[i][row]] = true
			}
			if !token[i].IsZero() {
				c.Stage, c.Token, c.Attempt = i, token[i], int(attempts[i])
				x.result.Claims = append(x.result.Claims, c)
				x.continued[i]++
			}
			if leftReady&(1<<i) != 0 {
				x.markReady(i)
			}
		}
	}
	return rows.Err()
}
