package store

import "github.com/jackc/pgx/v5"

// complete tasks: $1 is the worker; $2 and $3 are, per task, its id and the
// set of stages to go on with; then, per stage, the token where that stage was
// completed, else null. The last four are, per completed stage, the task, the
// stage's number, the token and the result. A row none of whose tokens holds is
// not touched. A stage goes on with the next ones in the same update, unless
// somebody of higher priority waits for the slot. The outbox gets one row of it all.
// Where a stage is opened and does not go on, its workers are woken.
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
), step as materialized (
  select place
         {{- range .Stages}}, {{.Name}}_done
         {{- if .Needs}}, {{.Name}}_open,
         {{.Name}}_open and priority >= coalesce((select waiting.priority from {{$.Tasks}} waiting
                                 where {{.Ready "waiting."}}
                                 order by waiting.priority desc, waiting.id limit 1), priority) as {{.Name}}_next
         {{- end}}
         {{- end}}
    from (select place, priority
                 {{- range .Stages}},
                 coalesce({{.Name}}_token = {{.Name}}_was, false) as {{.Name}}_done
                 {{- if .Needs}},
                 alive and chain & {{.Bit}} <> 0
                   and {{.Name}}_status in ('pending', 'failed') and {{.Name}}_run_at is null
                   {{- range .Needs}}
                   and ({{.}}_status = 'completed' or coalesce({{.}}_token = {{.}}_was, false))
                   {{- end}} as {{.Name}}_open
                 {{- end}}
                 {{- end}}
            from me
           cross join locked
            join unnest($2::uuid[], $3::int4[]
                 {{- range $i, $s := .Stages}}, ${{arg 4 $i}}::uuid[]{{end}})
                 as r (task, chain
                 {{- range .Stages}}, {{.Name}}_was{{end}}) on r.task = locked.id
           where {{range $i, $s := .Stages}}{{if $i}} or {{end}}{{.Name}}_token = {{.Name}}_was{{end}}) as told
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
         0 {{- range .Stages}}{{if .Needs}} + {{.Name}}_next::int * {{.Bit}}{{end}}{{end}} as begun,
         0 {{- range .Stages}}{{if .Needs}} + ({{.Name}}_open and not {{.Name}}_next)::int * {{.Bit}}{{end}}{{end}} as yielded,
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
  insert into {{.Outbox}} (type, worker_id, tasks, completed, begun, attempts)
  select 'turn', $1, array_agg(id), array_agg(done | whole), array_agg(begun), array_agg(attempts)
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
    join unnest(${{arg 4 (len .Stages)}}::uuid[], ${{arg 5 (len .Stages)}}::int4[], ${{arg 6 (len .Stages)}}::uuid[], ${{arg 7 (len .Stages)}}::text[])
         as r (task, stage, token, result)
      on r.task = locked.id
     and r.token = case r.stage{{range $i, $s := .Stages}} when {{$i}} then locked.{{.Name}}_token{{end}} end
), woken as materialized (
  select count(pg_notify(channel, ''))
    from (select bit_or(opened) as opened from moved) as these
    join (values {{range $i, $s := .Stages}}{{if $i}}, {{end}}('{{.Channel}}', {{.Bit}}){{end}}) as stage (channel, bit) on opened & bit <> 0
   where pg_notification_queue_usage() < 0.9
)
select moved.* from moved cross join woken`

func (t *turn) queueReports() {
	t.applied = make(map[ID]bool, len(t.in.Reports))
	var (
		seen   = make(map[ID]bool, len(t.in.Reports))
		merged completions
		ended  = make([][]*Report, len(t.store.graph.nodes))
	)
	for i := range t.in.Reports {
		r := &t.in.Reports[i]
		if seen[r.Token] {
			continue
		}
		seen[r.Token] = true
		if r.Outcome == Completed {
			t.chain(merged.add(r, len(t.store.graph.nodes), len(t.in.Reports)), r)
		} else {
			ended[r.Stage] = append(ended[r.Stage], r)
		}
	}
	for _, m := range merged {
		t.tell(madeByRecorded)
		t.batch.Queue(t.store.sql.complete, m.args(t.in.Worker)...).Query(func(rows pgx.Rows) error {
			return t.readCompleted(rows, m)
		})
	}
	for stage, reports := range ended {
		t.queueEnds(stage, reports)
	}
}

// chain sets a free slot aside for each stage that may go on after the report.
func (t *turn) chain(at place, r *Report) {
	for _, next := range t.store.graph.feeds[r.Stage] {
		bit := int32(1) << next
		switch {
		case at.chain[at.row]&bit != 0: // its other need was completed in this turn, too
		case t.free[next] > 0:
			at.chain[at.row] |= bit
			t.free[next]--
		default:
			t.out.Left[next], t.out.Yielded[next] = true, true
		}
	}
}

// readCompleted takes in what complete returned: which reports held, and the
// claims that go on with the same tasks.
func (t *turn) readCompleted(rows pgx.Rows, merged *completion) error {
	var (
		c             Claim
		done, yielded int
		graph         = t.store.graph
		token         = make([]ID, len(graph.nodes))
		attempts      []int32
		dest          = []any{&c.Task, &done, nil, &yielded, &c.Source, &c.Params, &c.UserID, &c.Traceparent, nil, &attempts, nil}
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
				t.out.Claims = append(t.out.Claims, c)
			}
			if yielded&(1<<i) != 0 {
				t.out.Left[i], t.out.Yielded[i] = true, true
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
	chain  []int32
	tokens [][]ID // by stage and row

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
		row: make(map[ID]int, most), ids: make([]ID, 0, most), chain: make([]int32, 0, most), tokens: make([][]ID, stages),
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
		c.chain = append(c.chain, 0)
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

func (c *completion) args(worker ID) []any {
	args := []any{worker, c.ids, c.chain}
	for _, tokens := range c.tokens {
		args = append(args, tokens)
	}
	return append(args, c.tasks, c.stages, c.claims, c.results)
}
