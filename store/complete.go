package store

import "github.com/jackc/pgx/v5"

// lock tasks: those that nobody else has locked just now. A turn waits for
// nobody, so no transaction that somebody left open can hold up the others'
// tasks, and no two turns can wait for each other; what was locked is reported
// with the next turn. It is a statement of its own because the next ones then
// begin with a snapshot that has the rows as they were locked, and leaves them
// the list in a setting of the transaction.
const lockSQL = `
/* lock tasks */
with locked as materialized (
  select id from {{.Tasks}} where id = any($1::uuid[]) for no key update skip locked
), kept as materialized (
  select set_config('cuelight.locked', coalesce(jsonb_object_agg(id, 1), '{}')::text, true) from locked
)
select locked.id from locked, kept`

// complete tasks: $1 is the worker; $2 and $3 are, per task, its id and the
// set of stages to go on with; then, per stage, the token and the result where
// that stage was completed, else nulls. A row none of whose tokens holds is not
// touched. A stage goes on with the next ones in the same update, unless
// somebody of higher priority waits for the slot.
const completeSQL = `
/* complete tasks */
with locked as materialized (
  select current_setting('cuelight.locked')::jsonb as ids
), done as materialized (
  select t.id, t.priority, $1::uuid as worker,
         case when {{.Alive "$1"}} then r.chain else 0 end as chain,
         {{- range $i, $s := .Stages}}{{if $i}},{{end}}
         coalesce(t.{{.Name}}_token = r.{{.Name}}_token, false) as {{.Name}}_done, r.{{.Name}}_result,
         t.{{.Name}}_status, t.{{.Name}}_attempts, t.{{.Name}}_token, t.{{.Name}}_locked_at, t.{{.Name}}_locked_by, t.{{.Name}}_run_at
         {{- end}}
    from locked
   cross join unnest($2::uuid[], $3::int4[]
         {{- range $i, $s := .Stages}}, ${{arg 4 2 $i}}::uuid[], ${{arg 5 2 $i}}::text[]{{end}})
         as r (id, chain
         {{- range .Stages}}, {{.Name}}_token, {{.Name}}_result{{end}})
    join {{.Tasks}} t on t.id = r.id
   where locked.ids ? r.id::text
), open as materialized (
  select id, worker, priority
         {{- range .Stages}},
         {{.Name}}_done
         {{- if .Needs}},
         chain & {{.Bit}} <> 0
           and {{.Name}}_status in ('pending', 'failed') and {{.Name}}_run_at is null
           {{- range .Needs}}
           and ({{.}}_done or {{.}}_status = 'completed')
           {{- end}} as {{.Name}}_open
         {{- end}}
         {{- end}}
    from done
   where {{range $i, $s := .Stages}}{{if $i}} or {{end}}{{.Name}}_done{{end}}
), next as materialized (
  select open.*
         {{- range .Stages}}{{if .Needs}},
         {{.Name}}_open and priority >= coalesce((select waiting.priority from {{$.Tasks}} waiting
                                 where {{.Ready "waiting."}}
                                 order by waiting.priority desc, waiting.id limit 1), priority) as {{.Name}}_next
         {{- end}}{{end}}
    from open
), moved as (
  update {{.Tasks}} t set
         {{- range $i, $s := .Stages}}{{if $i}},{{end}}
         {{- if .Needs}}
         {{.Name}}_status    = case when {{.Name}}_done then 'completed' when {{.Name}}_next then 'inprogress' else {{.Name}}_status end,
         {{.Name}}_attempts  = {{.Name}}_attempts + {{.Name}}_next::int,
         {{.Name}}_token     = case when {{.Name}}_done then null when {{.Name}}_next then gen_random_uuid() else {{.Name}}_token end,
         {{.Name}}_locked_at = case when {{.Name}}_done then null when {{.Name}}_next then now() else {{.Name}}_locked_at end,
         {{.Name}}_locked_by = case when {{.Name}}_done then null when {{.Name}}_next then worker else {{.Name}}_locked_by end
         {{- else}}
         {{.Name}}_status    = case when {{.Name}}_done then 'completed' else {{.Name}}_status end,
         {{.Name}}_token     = case when {{.Name}}_done then null else {{.Name}}_token end,
         {{.Name}}_locked_at = case when {{.Name}}_done then null else {{.Name}}_locked_at end,
         {{.Name}}_locked_by = case when {{.Name}}_done then null else {{.Name}}_locked_by end
         {{- end}}
         {{- end}}
    from next
   where t.id = next.id
  returning t.id, t.source, t.params, coalesce(t.user_id, ''),
         0 {{- range .Stages}}{{if .Needs}} + ({{.Name}}_open and not {{.Name}}_next)::int * {{.Bit}}{{end}}{{end}} as yielded
         {{- range .Stages}}, {{.Name}}_done, {{if .Needs}}case when {{.Name}}_next then {{.Name}}_token end{{else}}null::uuid{{end}}, {{.Name}}_attempts{{end}}
), kept as (
  insert into {{.Attempts}} (task_id, token, stage, attempt, worker_id, started_at, outcome, result)
  select done.id, was.token, was.stage, was.attempt, was.locked_by, was.locked_at, 'completed', was.result::jsonb
    from done
   cross join lateral (values
         {{- range $i, $s := .Stages}}{{if $i}},{{end}}
         ('{{.Name}}', {{.Name}}_done, {{.Name}}_token, {{.Name}}_attempts, {{.Name}}_locked_by, {{.Name}}_locked_at, {{.Name}}_result)
         {{- end}}) as was (stage, done, token, attempt, locked_by, locked_at, result)
   where was.done
)
select * from moved`

func (t *turn) queueReports() {
	t.locked = make(map[ID]bool, len(t.in.Reports))
	t.applied = make(map[ID]bool, len(t.in.Reports))
	var (
		ids    = make([]ID, 0, len(t.in.Reports))
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
		ids = append(ids, r.Task)
		if r.Outcome == Completed {
			t.chain(merged.add(r, len(t.store.graph.nodes)), r)
		} else {
			ended[r.Stage] = append(ended[r.Stage], r)
		}
	}
	t.batch.Queue(t.store.sql.lock, ids).Query(func(rows pgx.Rows) error {
		var id ID
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
			t.locked[id] = true
			return nil
		})
		return err
	})
	for _, m := range merged {
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
			t.out.Left[next] = true
		}
	}
}

// readCompleted takes in what complete returned: which reports held, and the
// claims that go on with the same tasks.
func (t *turn) readCompleted(rows pgx.Rows, merged *completion) error {
	stages := len(t.store.graph.nodes)
	var (
		c       Claim
		yielded int
		done    = make([]bool, stages)
		token   = make([]ID, stages)
		attempt = make([]int, stages)
		dest    = []any{&c.Task, &c.Source, &c.Params, &c.UserID, &yielded}
	)
	for i := range stages {
		dest = append(dest, &done[i], &token[i], &attempt[i])
	}
	for rows.Next() {
		c.Params = nil
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		row := merged.row[c.Task]
		for i := range stages {
			if done[i] {
				t.applied[merged.tokens[i][row]] = true
			}
			if !token[i].IsZero() {
				c.Stage, c.Token, c.Attempt = i, token[i], attempt[i]
				t.out.Claims = append(t.out.Claims, c)
			}
			if yielded&(1<<i) != 0 {
				t.out.Left[i] = true
			}
		}
	}
	return rows.Err()
}

// completion is the completed stages of a turn as the columns that complete
// takes, one row per task: an update applies one row of its source to a row of
// the table, so a task that comes twice would lose one of its stages.
type completion struct {
	row     map[ID]int
	ids     []ID
	chain   []int32
	tokens  [][]ID      // by stage and row
	results [][]*string // by stage and row
}

// completions are one completion, or more where a stage of a task is reported
// twice, with the token that holds and with one that no longer does.
type completions []*completion

// place is a row of a completion.
type place struct {
	*completion
	row int
}

// add takes one report.
func (all *completions) add(r *Report, stages int) place {
	for _, c := range *all {
		if row, known := c.row[r.Task]; !known || c.tokens[r.Stage][row].IsZero() {
			return c.add(r)
		}
	}
	c := &completion{row: make(map[ID]int), tokens: make([][]ID, stages), results: make([][]*string, stages)}
	*all = append(*all, c)
	return c.add(r)
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
			c.results[i] = append(c.results[i], nil)
		}
	}
	c.tokens[r.Stage][row] = r.Token
	if r.Result != nil {
		text := string(r.Result)
		c.results[r.Stage][row] = &text
	}
	return place{c, row}
}

func (c *completion) args(worker ID) []any {
	args := []any{worker, c.ids, c.chain}
	for i := range c.tokens {
		args = append(args, c.tokens[i], c.results[i])
	}
	return args
}
