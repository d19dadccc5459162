package engine

import (
	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// completeSQL completes stages of tasks. $1 is the worker and $2 the tasks; then follows
// one array per stage with the token of the claim that was completed, or null; then four
// arrays with one element per completed stage: task, stage number, token and result.
// Tasks without a matching token are not changed. The outbox gets one row for all.
//
// In the same update a task continues with the next stages: those that are ready now and
// come before all tasks that are ready there already. For the others the stage's workers
// are notified.
//
// The ranked form is for exchanges in which tasks compete for slots: because there are
// more tasks than free slots, or because the exchange also claims in the stage. Three more
// parameters say, per stage, how many slots are free and whether the exchange claims, and
// which tasks it claims. A task may then continue behind ready tasks if those get a slot
// as well; the setting cuelight.continued tells the claim how many slots are taken. The
// plan is larger, so that single reports use the simple form.
//
// Rows that are locked, or changed since the statement's snapshot, are skipped and
// reported again: no exchange waits for another transaction.
const completeSQL = `
/* complete tasks */
with me as materialized (
  select {{.Alive "$1"}} as alive
), locked as materialized (
  select ctid as row_ctid, id, priority, placement
         {{- range .Stages}},
         {{.Name}}_status, {{.Name}}_attempts, {{.Name}}_run_at,
         {{.Name}}_token, {{.Name}}_locked_at, {{.Name}}_locked_by
         {{- end}}
    from {{.Tasks}} where id = any($2::uuid[]) for no key update skip locked
), matched as (
  select row_ctid, id, priority, placement
         {{- range .Stages}},
         {{.Name}}_status, {{.Name}}_run_at, coalesce({{.Name}}_token = {{.Name}}_reported, false) as {{.Name}}_done
         {{- end}}
    from locked
    join unnest($2::uuid[]{{range $i, $s := .Stages}}, ${{arg 3 $i}}::uuid[]{{end}})
         as r (task{{range .Stages}}, {{.Name}}_reported{{end}})
      on r.task = locked.id
   where {{range $i, $s := .Stages}}{{if $i}}
      or {{end}}{{.Name}}_token = {{.Name}}_reported{{end}}
), unblocked as (
  select matched.*
         {{- range .Stages}}{{if .Needs}},
         alive and {{.Name}}_status in ('pending', 'failed') and {{.Name}}_run_at is null
           {{- range .Needs}}
           and ({{.}}_done or {{.}}_status = 'completed')
           {{- end}}
           and ({{range $i, $n := .Needs}}{{if $i}} or {{end}}{{$n}}_done{{end}})
           and {{.MayClaim "" "$1" "now()"}} as {{.Name}}_ready
         {{- end}}{{end}}
    from me
   cross join matched
), ranked as (
  select unblocked.*
         {{- if .With.Ranked}}{{range .Stages}}{{if .Needs}},
         count(*) filter (where {{.Name}}_ready) over by_priority as {{.Name}}_rank{{end}}{{end}}{{end}}
    from unblocked
  {{- if .With.Ranked}}
  window by_priority as (order by priority desc, id rows unbounded preceding)
  {{- end}}
), step as materialized (
  select row_ctid
         {{- range $i, $s := .Stages}},
         {{.Name}}_done
         {{- if .Needs}}, {{.Name}}_ready,
         {{.Name}}_ready and
           {{- if $.With.Ranked}} {{.Name}}_rank <= case when{{end}}
           coalesce((-priority::int, id) < (
             select -waiting.priority::int, waiting.id from ` + waitingSQL + ` limit 1), true)
           {{- if $.With.Ranked}}
           then ` + freeSlots + `[{{arg 1 $i}}]
           when ` + claimsHere + `[{{arg 1 $i}}]
           then ` + freeSlots + `[{{arg 1 $i}}]
                - (select count(*) from (select from ` + waitingSQL + ` limit ` + freeSlots + `[{{arg 1 $i}}]) as ` +
	`before)
           else 0 end
           {{- end}} as {{.Name}}_continues
         {{- end}}
         {{- end}}
    from ranked
), updated as (
  update {{.Tasks}} t set
         {{- range $i, $s := .Stages}}{{if $i}},{{end}}
         {{- if .Needs}}
         {{.Name}}_status    = case when {{.Name}}_done then 'completed'
                                    when {{.Name}}_continues then 'inprogress' else {{.Name}}_status end,
         {{.Name}}_attempts  = {{.Name}}_attempts + {{.Name}}_continues::int,
         {{.Name}}_token     = case when {{.Name}}_done then null
                                    when {{.Name}}_continues then gen_random_uuid() else {{.Name}}_token end,
         {{.Name}}_locked_at = case when {{.Name}}_done then null
                                    when {{.Name}}_continues then now() else {{.Name}}_locked_at end,
         {{.Name}}_locked_by = case when {{.Name}}_done then null
                                    when {{.Name}}_continues then $1 else {{.Name}}_locked_by end
         {{- else}}
         {{.Name}}_status    = case when {{.Name}}_done then 'completed' else {{.Name}}_status end,
         {{.Name}}_token     = case when {{.Name}}_done then null else {{.Name}}_token end,
         {{.Name}}_locked_at = case when {{.Name}}_done then null else {{.Name}}_locked_at end,
         {{.Name}}_locked_by = case when {{.Name}}_done then null else {{.Name}}_locked_by end
         {{- end}}
         {{- end}}
    from step
   where t.ctid = step.row_ctid
  returning t.id,
         0 {{- range .Stages}}
           + {{.Name}}_done::int * {{.Bit}}{{end}} as done,
         0 {{- range .Stages}}{{if .Needs}}
           + {{.Name}}_continues::int * {{.Bit}}{{end}}{{end}} as started,
         0 {{- range .Stages}}{{if .Needs}}
           + ({{.Name}}_ready and not {{.Name}}_continues)::int * {{.Bit}}{{end}}{{end}} as left_ready,
         t.priority,
         case when {{.AnyContinued}}
              then t.source else '' end,
         case when {{.AnyContinued}}
              then t.params end,
         coalesce(case when {{.AnyContinued}}
                       then t.user_id end, ''),
         coalesce(case when {{.AnyContinued}}
                       then t.traceparent end, ''),
         case when {{range $i, $s := .Stages}}{{if $i}}
               and {{end}}t.{{.Name}}_status = 'completed'{{end}} then 1 << 31 else 0 end as task_done,
         array[{{.Each "t." "_attempts"}}] as attempts,
         0 {{- range .Stages}}{{if .Needs}}
           + ({{.Unblocked "t."}}
              and ({{range $i, $n := .Needs}}{{if $i}} or {{end}}{{$n}}_done{{end}}))::int * {{.Bit}}{{end}}{{end}} as to_notify
         {{- range .Stages}}{{if .Needs}},
         case when {{.Name}}_continues then t.{{.Name}}_token end{{end}}{{end}}
), recorded as (
  insert into {{.Outbox}} (type, worker_id, tasks, completed, started, attempts)
  select 'exchange', $1, array_agg(id), array_agg(done | task_done), array_agg(started), array_agg(attempts)
    from updated having count(*) > 0
), history as (
  insert into {{.Attempts}} (task_id, token, stage, attempt, worker_id, started_at, outcome, result)
  select locked.id, r.token,
         case r.stage{{range $i, $s := .Stages}}
              when {{$i}} then '{{.Name}}'{{end}} end,
         case r.stage{{range $i, $s := .Stages}}
              when {{$i}} then locked.{{.Name}}_attempts{{end}} end,
         case r.stage{{range $i, $s := .Stages}}
              when {{$i}} then locked.{{.Name}}_locked_by{{end}} end,
         case r.stage{{range $i, $s := .Stages}}
              when {{$i}} then locked.{{.Name}}_locked_at{{end}} end,
         'completed', r.result::jsonb
    from updated
    join locked on locked.id = updated.id
    join unnest(${{arg 3 (len .Stages)}}::uuid[], ${{arg 4 (len .Stages)}}::int4[],
                ${{arg 5 (len .Stages)}}::uuid[], ${{arg 6 (len .Stages)}}::text[])
         as r (task, stage, token, result)
      on r.task = locked.id
     and r.token = case r.stage{{range $i, $s := .Stages}}
                        when {{$i}} then locked.{{.Name}}_token{{end}} end
), notified as materialized (
  select count(pg_notify(channel, ''))
    from (select bit_or(to_notify) as to_notify from updated) as all_tasks
    join (values {{range $i, $s := .Stages}}{{if $i}},
                 {{end}}('{{.Channel}}', {{.Bit}}){{end}}) as stage (channel, bit)
      on to_notify & bit <> 0
   where pg_notification_queue_usage() < 0.9
)
select updated.* from updated cross join notified
{{- if .With.Ranked}}
 where not true = any(` + claimsHere + `)
    or (select set_config('cuelight.continued', array[
         {{- range $i, $s := .Stages}}{{if $i}},{{end}}
         count(*) filter (where started & {{.Bit}} <> 0){{end}}]::text, true)
          from updated) is not null
{{- end}}`

// completeVariant selects one of the forms of completeSQL.
type completeVariant struct{ Ranked bool }

// Parts of completeSQL: two parameters of the ranked form, and the ready tasks of stage
// $s in the order in which they are claimed.
const (
	freeSlots  = `(${{arg 7 (len $.Stages)}}::int4[])`
	claimsHere = `(${{arg 8 (len $.Stages)}}::bool[])`
	waitingSQL = `{{$.Tasks}} waiting
             where {{$s.Ready "waiting."}}
               and {{$s.MayClaim "waiting." "$1" "null"}}
             {{- if $.With.Ranked}}
               and (${{arg 9 (len $.Stages)}}::uuid[] is null or waiting.id = any(${{arg 9 (len $.Stages)}})){{end}}
             order by waiting.priority desc, waiting.id`
)

func (x *exchange) queueReports() {
	x.applied = make(map[store.ID]bool, len(x.request.Reports))
	var (
		seen    = make(map[store.ID]bool, len(x.request.Reports))
		batches completions
		failed  = make([][]*Report, len(x.stages))
		parts   = make([]partReports, len(x.stages))
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
		c, row := batches.add(r, len(x.stages), len(x.request.Reports))
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
	free, claims, ranked := x.continuable(len(batches))
	for _, c := range batches {
		x.queueOrigin(originRecorded)
		sql, args := x.sql.complete, append([]any{x.request.Worker, c.ids}, c.args()...)
		if ranked {
			sql, args = x.sql.completeRanked, append(args, free, claims, x.request.OnlyTasks)
			// Tasks of further batches get their slots by the claims.
			free, claims = make([]int32, len(free)), make([]bool, len(claims))
		}
		x.batch.Queue(sql, args...).Query(func(rows pgx.Rows) error { return x.readCompleted(rows, c) })
	}
}

// continuable returns, by stage, how many slots the reported tasks may continue in and
// whether the exchange claims there as well; and whether tasks compete for slots, so that
// the ranked form is needed.
func (x *exchange) continuable(batches int) (free []int32, claims []bool, ranked bool) {
	free, claims = make([]int32, len(x.stages)), make([]bool, len(x.stages))
	for i, n := range x.mayBecomeReady {
		free[i] = int32(x.slots(i))
		claims[i] = n > 0 && x.request.ClaimFrom[i] && free[i] > 0
		ranked = ranked || n > 0 && (n > x.slots(i) || claims[i] || x.request.OnlyTasks != nil || batches > 1)
	}
	return free, claims, ranked
}

// readCompleted reads which reports were applied, and the claims that continue.
func (x *exchange) readCompleted(rows pgx.Rows, completed *completion) error {
	var (
		c               Claim
		done, leftReady int
		token           = make([]store.ID, len(x.stages))
		attempts        []int32
		dest            = []any{&c.Task, &done, nil, &leftReady, &c.Priority, &c.Source, &c.Params, &c.UserID, &c.Traceparent,
			nil, &attempts, nil}
	)
	for i := range x.stages {
		if len(x.graph.Needs(i)) > 0 {
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
