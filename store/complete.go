package store

import (
	"fmt"

	"github.com/jackc/pgx/v5"
)

// complete tasks: $1 is the worker; $2 the tasks; then, per stage, the token where
// that stage was completed, else null. The next four are, per completed stage, the
// task, the stage's number, the token and the result. A row none of whose tokens holds
// is not touched. The outbox gets one row of it all.
//
// A stage goes on with the next ones in the same update, in the order of priority
// and id: a task that comes before all that are ready. A task that does not go on is ready, and
// its workers are woken.
//
// It is ranked where there may be more tasks than free slots, or this turn claims in
// the stage, too. The last parameters then say, by stage, how many slots are free and
// whether it claims, and which tasks it claims from. A task that comes after some that
// are ready goes on as well, if all of these have a slot; and the claim is told in a
// setting of the transaction how many slots are taken. That takes more nodes of a plan
// than a turn with one report should pay for.
//
// A turn waits for nobody, so no transaction that somebody left open can hold
// up the others' tasks, and no two turns can wait for each other: rows that are
// locked are passed over, and so are those that were changed since the statement
// began, which its snapshot does not have where they now are. Both come with the
// next turn.
const completeSQL = `
/* complete tasks */
with me as materialized (
  select {{.Alive "$1"}} as alive
), locked as materialized (
  select ctid as place, id, priority
         {{- range .Stages}},
         {{.Name}}_status, {{.Name}}_attempts, {{.Name}}_token, {{.Name}}_locked_at, {{.Name}}_locked_by, {{.Name}}_run_at
         {{- end}}
    from {{.Tasks}} where id = any($2::uuid[]) for no key update skip locked
), done as (
  select place, id, priority
         {{- range .Stages}}, {{.Name}}_status, {{.Name}}_run_at,
         coalesce({{.Name}}_token = {{.Name}}_was, false) as {{.Name}}_done
         {{- end}}
    from locked
    join unnest($2::uuid[]{{range $i, $s := .Stages}}, ${{arg 3 $i}}::uuid[]{{end}})
         as r (task{{range .Stages}}, {{.Name}}_was{{end}}) on r.task = locked.id
   where {{range $i, $s := .Stages}}{{if $i}} or {{end}}{{.Name}}_token = {{.Name}}_was{{end}}
), open as (
  select done.*
         {{- range .Stages}}{{if .Needs}},
         alive and {{.Name}}_status in ('pending', 'failed') and {{.Name}}_run_at is null
           {{- range .Needs}}
           and ({{.}}_done or {{.}}_status = 'completed')
           {{- end}}
           and ({{range $i, $n := .Needs}}{{if $i}} or {{end}}{{$n}}_done{{end}}) as {{.Name}}_open
         {{- end}}{{end}}
    from me
   cross join done
), ranked as (
  select open.*
         {{- if .Ranked}}{{range .Stages}}{{if .Needs}}, count(*) filter (where {{.Name}}_open) over best as {{.Name}}_rank{{end}}{{end}}{{end}}
    from open
  {{- if .Ranked}}
  window best as (order by priority desc, id rows unbounded preceding)
  {{- end}}
), step as materialized (
  select place
         {{- range $i, $s := .Stages}}, {{.Name}}_done
         {{- if .Needs}}, {{.Name}}_open,
         {{.Name}}_open and
           {{- if $.Ranked}} {{.Name}}_rank <= case when{{end}}
           coalesce((-priority::int, id) < (select -waiting.priority::int, waiting.id from {{$.Waiting $s}} limit 1), true)
           {{- if $.Ranked}}
           then {{$.Slots}}[{{arg 1 $i}}]
           when {{$.Claims}}[{{arg 1 $i}}]
           then {{$.Slots}}[{{arg 1 $i}}] - (select count(*) from (select from {{$.Waiting $s}} limit {{$.Slots}}[{{arg 1 $i}}]) as before)
           else 0 end
           {{- end}} as {{.Name}}_next
         {{- end}}
         {{- end}}
    from ranked
), moved as (
  update {{.Tasks}} t set
         {{- range $i, $s := .Stages}}{{if $i}},{{end}}
         {{- if .Needs}}
         {{.Name}}_status    = case when {{.Name}}_done then 'completed' when {{.Name}}_next then 'inprogress' else {{.Name}}_status end,
         {{.Name}}_attempts  = {{.Name}}_attempts + {{.Name}}_next::int,
         {{.Name}}_token     = case when {{.Name}}_done then null when {{.Name}}_next then gen_random_uuid() else {{.Name}}_token end,
         {{.Name}}_locked_at = case when {{.Name}}_done then null when {{.Name}}_next then now() else {{.Name}}_locked_at end,
         {{.Name}}_locked_by = case when {{.Name}}_done then null when {{.Name}}_next then $1 else {{.Name}}_locked_by end
         {{- else}}
         {{.Name}}_status    = case when {{.Name}}_done then 'completed' else {{.Name}}_status end,
         {{.Name}}_token     = case when {{.Name}}_done then null else {{.Name}}_token end,
         {{.Name}}_locked_at = case when {{.Name}}_done then null else {{.Name}}_locked_at end,
         {{.Name}}_locked_by = case when {{.Name}}_done then null else {{.Name}}_locked_by end
         {{- end}}
         {{- end}}
    from step
   where t.ctid = step.place
  returning t.id,
         0 {{- range .Stages}} + {{.Name}}_done::int * {{.Bit}}{{end}} as done,
         0 {{- range .Stages}}{{if .Needs}} + {{.Name}}_next::int * {{.Bit}}{{end}}{{end}} as started,
         0 {{- range .Stages}}{{if .Needs}} + ({{.Name}}_open and not {{.Name}}_next)::int * {{.Bit}}{{end}}{{end}} as yielded,
         t.priority,
         case when {{.Chained}} then t.source else '' end,
         case when {{.Chained}} then t.params end,
         coalesce(case when {{.Chained}} then t.user_id end, ''),
         coalesce(case when {{.Chained}} then t.traceparent end, ''),
         case when {{range $i, $s := .Stages}}{{if $i}} and {{end}}t.{{.Name}}_status = 'completed'{{end}} then 1 << 31 else 0 end as whole,
         array[{{.Each "t." "_attempts"}}] as attempts,
         0 {{- range .Stages}}{{if .Needs}}
           + ({{.Open "t."}} and ({{range $i, $n := .Needs}}{{if $i}} or {{end}}{{$n}}_done{{end}}))::int * {{.Bit}}{{end}}{{end}} as opened
         {{- range .Stages}}{{if .Needs}}, case when {{.Name}}_next then t.{{.Name}}_token end{{end}}{{end}}
), told as (
  insert into {{.Outbox}} (type, worker_id, tasks, completed, started, attempts)
  select 'exchange', $1, array_agg(id), array_agg(done | whole), array_agg(started), array_agg(attempts)
    from moved having count(*) > 0
), kept as (
  insert into {{.Attempts}} (task_id, token, stage, attempt, worker_id, started_at, outcome, result)
  select locked.id, r.token,
         case r.stage{{range $i, $s := .Stages}} when {{$i}} then '{{.Name}}'{{end}} end,
         case r.stage{{range $i, $s := .Stages}} when {{$i}} then locked.{{.Name}}_attempts{{end}} end,
         case r.stage{{range $i, $s := .Stages}} when {{$i}} then locked.{{.Name}}_locked_by{{end}} end,
         case r.stage{{range $i, $s := .Stages}} when {{$i}} then locked.{{.Name}}_locked_at{{end}} end,
         'completed', r.result::jsonb
    from moved
    join locked on locked.id = moved.id
    join unnest(${{arg 3 (len .Stages)}}::uuid[], ${{arg 4 (len .Stages)}}::int4[], ${{arg 5 (len .Stages)}}::uuid[], ${{arg 6 (len .Stages)}}::text[])
         as r (task, stage, token, result)
      on r.task = locked.id
     and r.token = case r.stage{{range $i, $s := .Stages}} when {{$i}} then locked.{{.Name}}_token{{end}} end
), woken as materialized (
  select count(pg_notify(channel, ''))
    from (select bit_or(opened) as opened from moved) as these
    join (values {{range $i, $s := .Stages}}{{if $i}}, {{end}}('{{.Channel}}', {{.Bit}}){{end}}) as stage (channel, bit) on opened & bit <> 0
   where pg_notification_queue_usage() < 0.9
)
select moved.* from moved cross join woken
{{- if .Ranked}}
 where not true = any({{.Claims}})
    or (select set_config('cuelight.continued', array[
         {{- range $i, $s := .Stages}}{{if $i}}, {{end}}count(*) filter (where started & {{.Bit}} <> 0){{end}}]::text, true)
          from moved) is not null
{{- end}}`

// completeWords are what completeSQL is filled with.
type completeTemplate struct {
	words
	Ranked bool
}

// Slots are how many slots are free, Claims whether the turn claims there.
func (w completeTemplate) Slots() string { return fmt.Sprintf("($%d::int4[])", len(w.Stages)+7) }

func (w completeTemplate) Claims() string { return fmt.Sprintf("($%d::bool[])", len(w.Stages)+8) }

// Waiting is what can be claimed of a stage, in the order in which it is.
func (w completeTemplate) Waiting(s stageWords) string {
	where := s.Ready("waiting.")
	if w.Ranked {
		only := fmt.Sprintf("$%d::uuid[]", len(w.Stages)+9)
		where += " and (" + only + " is null or waiting.id = any(" + only + "))"
	}
	return w.Tasks + " waiting where " + where + " order by waiting.priority desc, waiting.id"
}

func (t *exchange) queueReports() {
	t.applied = make(map[ID]bool, len(t.request.Reports))
	var (
		seen   = make(map[ID]bool, len(t.request.Reports))
		merged completions
		ended  = make([][]*Report, len(t.store.graph.nodes))
	)
	for i := range t.request.Reports {
		r := &t.request.Reports[i]
		if seen[r.Token] {
			continue
		}
		seen[r.Token] = true
		if r.Outcome != Completed {
			ended[r.Stage] = append(ended[r.Stage], r)
			continue
		}
		at := merged.add(r, len(t.store.graph.nodes), len(t.request.Reports))
		for _, next := range t.store.graph.feeds[r.Stage] {
			if bit := int32(1) << next; at.opens[at.row]&bit == 0 {
				at.opens[at.row] |= bit
				t.mayBecomeReady[next]++
			}
		}
	}
	for stage, reports := range ended { // before anything later goes on
		t.queueFailures(stage, reports)
	}
	free, claims, ranked := t.chainable(merged)
	for _, m := range merged {
		t.queueOrigin(originRecorded)
		sql, args := t.store.sql.complete, append([]any{t.request.Worker, m.ids}, m.args()...)
		if ranked {
			sql, args = t.store.sql.completeRanked, append(args, free, claims, t.request.OnlyTasks)
			// Tasks that a further statement completes get their slots by the claims.
			free, claims = make([]int32, len(free)), make([]bool, len(claims))
		}
		t.batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
			return t.readCompleted(rows, m)
		})
	}
}

// chainable says, by stage, how many slots the tasks reported may go on with, and
// whether what they leave is claimed in this turn. It matters which tasks have the
// slots where those may be too few, or are claimed, too.
func (t *exchange) chainable(merged completions) (free []int32, claims []bool, ranked bool) {
	free, claims = make([]int32, len(t.mayBecomeReady)), make([]bool, len(t.mayBecomeReady))
	for i, opens := range t.mayBecomeReady {
		free[i] = int32(t.slots(i))
		claims[i] = opens > 0 && t.request.ClaimFrom[i] && free[i] > 0
		ranked = ranked || opens > 0 && (opens > t.slots(i) || claims[i] || t.request.OnlyTasks != nil || len(merged) > 1)
	}
	return free, claims, ranked
}

// readCompleted takes in what complete returned: which reports held, and the
// claims that go on with the same tasks.
func (t *exchange) readCompleted(rows pgx.Rows, merged *completion) error {
	var (
		c             Claim
		done, yielded int
		graph         = t.store.graph
		token         = make([]ID, len(graph.nodes))
		attempts      []int32
		dest          = []any{&c.Task, &done, nil, &yielded, &c.Priority, &c.Source, &c.Params, &c.UserID, &c.Traceparent, nil, &attempts, nil}
	)
	for i := range graph.nodes {
		if len(graph.needs[i]) > 0 {
			dest = append(dest, &token[i])
		}
	}
	for rows.Next() {
		c.Params = nil
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		row := merged.row[c.Task]
		for i := range graph.nodes {
			if done&(1<<i) != 0 {
				t.applied[merged.tokens[i][row]] = true
			}
			if !token[i].IsZero() {
				c.Stage, c.Token, c.Attempt = i, token[i], int(attempts[i])
				t.result.Claims = append(t.result.Claims, c)
				t.continued[i]++
			}
			if yielded&(1<<i) != 0 {
				t.result.MoreReady[i], t.result.NewlyReady[i] = true, true
			}
		}
	}
	return rows.Err()
}

// completion is the completed stages of a turn as the columns that complete
// takes, one row per task: an update applies one row of its source to a row of
// the table, so a task that comes twice would lose one of its stages.
type completion struct {
	row    map[ID]int
	ids    []ID
	opens  []int32 // the stages that the task may be ready for then
	tokens [][]ID  // by stage and row

	// And once more, one row per completed stage, for the history.
	tasks, claims []ID
	stages        []int32
	results       []*string
}

// completions are one completion, or more where there are more tasks than
// batchTasks, or a stage of a task is reported twice, with the token that holds and
// with one that no longer does.
type completions []*completion

// place is a row of a completion.
type place struct {
	*completion
	row int
}

// add takes one report.
func (all *completions) add(r *Report, stages, most int) place {
	for _, c := range *all {
		if row, known := c.row[r.Task]; !known && len(c.ids) < batchTasks || known && c.tokens[r.Stage][row].IsZero() {
			return c.add(r)
		}
	}
	c := newCompletion(stages, most)
	*all = append(*all, c)
	return c.add(r)
}

// newCompletion has room for so many reports.
func newCompletion(stages, most int) *completion {
	c := &completion{
		row: make(map[ID]int, most), ids: make([]ID, 0, most), opens: make([]int32, 0, most), tokens: make([][]ID, stages),
		tasks: make([]ID, 0, most), claims: make([]ID, 0, most), stages: make([]int32, 0, most), results: make([]*string, 0, most),
	}
	for i := range c.tokens {
		c.tokens[i] = make([]ID, 0, most)
	}
	return c
}

func (c *completion) add(r *Report) place {
	row, known := c.row[r.Task]
	if !known {
		row = len(c.ids)
		c.row[r.Task] = row
		c.ids = append(c.ids, r.Task)
		c.opens = append(c.opens, 0)
		for i := range c.tokens {
			c.tokens[i] = append(c.tokens[i], ID{})
		}
	}
	c.tokens[r.Stage][row] = r.Token
	var result *string
	if r.Result != nil {
		text := string(r.Result)
		result = &text
	}
	c.tasks, c.claims = append(c.tasks, r.Task), append(c.claims, r.Token)
	c.stages, c.results = append(c.stages, int32(r.Stage)), append(c.results, result)
	return place{c, row}
}

func (c *completion) args() (args []any) {
	for _, tokens := range c.tokens {
		args = append(args, tokens)
	}
	return append(args, c.tasks, c.stages, c.claims, c.results)
}
