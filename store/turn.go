package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// Outcome is how a claim ended.
type Outcome string

// The outcomes a worker may report. The history has two more: expired, for a
// claim whose worker went away, and cancelled, for one that was taken back.
const (
	Completed Outcome = "completed" // the work was done
	Failed    Outcome = "failed"    // the work returned an error
	Released  Outcome = "released"  // given back; not counted as an attempt
)

// Claim is one stage of one task, held by one worker. The token names it for
// ever: whatever is reported for another token changes nothing.
type Claim struct {
	Task    ID
	Stage   int // its number in the [Graph]
	Token   ID
	Attempt int

	Source string
	Params json.RawMessage
	UserID string
}

// Report says how a claim ended.
type Report struct {
	Task    ID
	Stage   int
	Token   ID
	Outcome Outcome

	Result json.RawMessage // of a completed stage; nil is null

	Error   string        // of a failed one
	Class   string        // what kind of error, a word; kept in the history
	Dead    bool          // no further attempt: the stage is dead
	RetryIn time.Duration // otherwise: how long until the next
}

// Turn is what a dispatcher hands in: what its workers did since the last
// turn, what they could take on, and where to look for it.
type Turn struct {
	Worker  ID
	Reports []Report
	Free    []int  // by stage: how many claims it can take, reports included
	Look    []bool // by stage: whether something may be waiting there
	Mature  []bool // by stage: whether a time that tasks wait for has come
}

// Turned is what a dispatcher gets back.
type Turned struct {
	Claims []Claim
	// Stale are the reports that changed nothing, because the claim was no
	// longer the worker's.
	Stale []Report
	// Locked are the reports that changed nothing yet, because somebody else
	// had the task's row locked. They are to be handed in again.
	Locked []Report
	// Asked says, by stage, how many claims were asked for beside those that go
	// on with the tasks reported.
	Asked []int
	// Left says, by stage, that there may be something to claim which this turn
	// did not get: there were more tasks than free slots, or another worker had
	// the row locked just then.
	Left []bool
	// Next is, by stage looked at, how long until the earliest time that a
	// task waits for, 0 when that has come; negative where none waits.
	Next []time.Duration
}

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
  select set_config('cuelight.locked', coalesce(string_agg(id::text, ','), ''), true) from locked
)
select locked.id from locked, kept`

// complete tasks: $1 is the worker; $2 and $3 are, per task, its id and the
// set of stages to go on with; then, per stage, the token and the result where
// that stage was completed, else nulls. A stage goes on with the next ones in
// the same update, unless somebody of higher priority waits for the slot.
const completeSQL = `
/* complete tasks */
with done as materialized (
  select t.id, t.priority, $1::uuid as worker,
         case when {{.Alive "$1"}} then r.chain else 0 end as chain,
         {{- range $i, $s := .Stages}}{{if $i}},{{end}}
         coalesce(t.{{.Name}}_token = r.{{.Name}}_token, false) as {{.Name}}_done, r.{{.Name}}_result,
         t.{{.Name}}_status, t.{{.Name}}_attempts, t.{{.Name}}_token, t.{{.Name}}_locked_at, t.{{.Name}}_locked_by, t.{{.Name}}_run_at
         {{- end}}
    from unnest(string_to_array(current_setting('cuelight.locked', true), ',')::uuid[]) as locked (id)
    join unnest($2::uuid[], $3::int4[]
         {{- range $i, $s := .Stages}}, ${{arg 4 2 $i}}::uuid[], ${{arg 5 2 $i}}::text[]{{end}})
         as r (id, chain
         {{- range .Stages}}, {{.Name}}_token, {{.Name}}_result{{end}}) using (id)
    join {{.Tasks}} t using (id)
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

// end claims of one stage: failed ones are to be tried again later or are
// dead, released ones are as if they had not been claimed.
const endSQL = `
/* end {{.Stage.Name}} */
with ended as materialized (
  select t.id, r.outcome::cuelight_outcome, r.status::cuelight_status, r.retry_in, r.class, r.error,
         t.{{.Stage.Name}}_token as token, t.{{.Stage.Name}}_attempts as attempt,
         t.{{.Stage.Name}}_locked_by as locked_by, t.{{.Stage.Name}}_locked_at as locked_at
    from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::float8[], $6::text[], $7::text[])
         as r (id, token, outcome, status, retry_in, class, error)
    join unnest(string_to_array(current_setting('cuelight.locked', true), ',')::uuid[]) as locked (id) using (id)
    join {{.Tasks}} t on t.id = r.id and t.{{.Stage.Name}}_token = r.token
), moved as (
  update {{.Tasks}} t set
         {{.Stage.Name}}_status    = ended.status,
         {{.Stage.Name}}_attempts  = {{.Stage.Name}}_attempts - (ended.outcome = 'released')::int,
         {{.Stage.Name}}_token     = null,
         {{.Stage.Name}}_locked_at = null,
         {{.Stage.Name}}_locked_by = null,
         {{.Stage.Name}}_run_at    = case when ended.retry_in > 0 then now() + make_interval(secs => ended.retry_in) end
    from ended
   where t.id = ended.id
), kept as (
  insert into {{.Attempts}} (task_id, token, stage, attempt, worker_id, started_at, outcome, retry_at, error_class, error)
  select id, token, '{{.Stage.Name}}', attempt, locked_by, locked_at, outcome,
         case when status = 'failed' then now() + make_interval(secs => retry_in) end, class, error
    from ended
)
select token from ended`

// claim: the rows of the stage's ready index, from its beginning, passing over
// those that somebody else is claiming; for a worker that was not given up.
const claimSQL = `
/* claim {{.Stage.Name}} */
with ready as materialized (
  select id from {{.Tasks}}
   where {{.Stage.Ready ""}}
     and {{.Alive "$1"}}
   order by priority desc, id
   limit $2
     for no key update skip locked
)
update {{.Tasks}} t set
       {{.Stage.Name}}_status    = 'inprogress',
       {{.Stage.Name}}_attempts  = {{.Stage.Name}}_attempts + 1,
       {{.Stage.Name}}_token     = gen_random_uuid(),
       {{.Stage.Name}}_locked_at = now(),
       {{.Stage.Name}}_locked_by = $1
  from ready
 where t.id = ready.id
returning t.id, {{.Stage.Name}}_token, {{.Stage.Name}}_attempts, source, params, coalesce(user_id, '')`

// mature: what waited for a time that has come is ready from now on.
const matureSQL = `
/* mature {{.Stage.Name}} */
update {{.Tasks}} set {{.Stage.Name}}_run_at = null
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
select (select true from {{.Tasks}} where {{.Stage.Ready ""}}
         order by priority desc, id limit 1) is not null,
       (select greatest(extract(epoch from {{.Stage.Name}}_run_at - now()), 0)::float8 from {{.Tasks}}
         where {{.Stage.Name}}_run_at is not null
         order by {{.Stage.Name}}_run_at limit 1)`

// A claim that is lost with a crash of the server costs a repeated attempt
// and never a result, so a turn that only claims does not wait for the disk.
const claimsOnlySQL = `/* only claims */ select set_config('synchronous_commit', 'off', true)`

const existSQL = `
/* find tasks */
select id from {{.Tasks}} where id = any($1::uuid[])`

// Turn is the dispatcher's step, one round trip and one transaction: it
// applies the reports, goes on with the next stages of the same tasks while
// slots are free, and claims what else is ready in the stages to look at. It
// waits for nobody's locks.
//
// After an error nothing may be assumed: the transaction may have been
// committed all the same. See [Store.Settled] and [Store.Held].
func (s *Store) Turn(ctx context.Context, in Turn) (Turned, error) {
	stages := len(s.graph.nodes)
	t := turn{store: s, in: in, free: append([]int(nil), in.Free...)}
	t.out = Turned{Left: make([]bool, stages), Next: never(stages), Asked: make([]int, stages)}
	if len(in.Reports) == 0 {
		t.batch.Queue(claimsOnlySQL)
	} else {
		t.queueReports()
	}
	for i := range stages {
		t.queueLook(i)
	}
	if err := s.db.SendBatch(ctx, &t.batch).Close(); err != nil {
		return Turned{}, s.explain("dispatch", err)
	}
	t.sortOut(t.present(ctx))
	return t.out, nil
}

// never is the Next of stages where nothing waits.
func never(stages int) []time.Duration {
	all := make([]time.Duration, stages)
	for i := range all {
		all[i] = -1
	}
	return all
}

// turn is one Turn being made.
type turn struct {
	store   *Store
	in      Turn
	free    []int // by stage: slots not spoken for yet
	batch   pgx.Batch
	locked  map[ID]bool // tasks whose rows this turn had
	applied map[ID]bool // tokens of the reports that changed a row
	out     Turned
}

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

func (t *turn) queueEnds(stage int, reports []*Report) {
	if len(reports) == 0 {
		return
	}
	var (
		ids, tokens        []ID
		outcomes, statuses []string
		retryIn            []float64
		classes, errs      []string
	)
	for _, r := range reports {
		status, in := "failed", r.RetryIn.Seconds()
		switch {
		case r.Outcome == Released:
			status, in = "pending", 0
		case r.Dead:
			status, in = "dead", 0
		}
		ids, tokens = append(ids, r.Task), append(tokens, r.Token)
		outcomes, statuses, retryIn = append(outcomes, string(r.Outcome)), append(statuses, status), append(retryIn, in)
		classes, errs = append(classes, r.Class), append(errs, cleanText(r.Error))
	}
	t.batch.Queue(t.store.sql.end[stage], ids, tokens, outcomes, statuses, retryIn, classes, errs).Query(func(rows pgx.Rows) error {
		var token ID
		_, err := pgx.ForEachRow(rows, []any{&token}, func() error {
			t.applied[token] = true
			return nil
		})
		return err
	})
}

// queueLook claims in one stage, if it is to be looked at.
func (t *turn) queueLook(stage int) {
	sql := t.store.sql
	if t.in.Mature != nil && t.in.Mature[stage] {
		t.batch.Queue(sql.mature[stage])
	}
	if !t.in.Look[stage] {
		return
	}
	if n := t.free[stage]; n > 0 {
		t.out.Asked[stage] = n
		t.batch.Queue(sql.claim[stage], t.in.Worker, n).Query(func(rows pgx.Rows) error {
			c := Claim{Stage: stage}
			for rows.Next() {
				c.Params = nil
				if err := rows.Scan(&c.Task, &c.Token, &c.Attempt, &c.Source, &c.Params, &c.UserID); err != nil {
					return err
				}
				t.out.Claims = append(t.out.Claims, c)
			}
			return rows.Err()
		})
	}
	t.batch.Queue(sql.look[stage]).QueryRow(func(row pgx.Row) error {
		var left bool
		var next *float64
		if err := row.Scan(&left, &next); err != nil {
			return err
		}
		t.out.Left[stage] = t.out.Left[stage] || left
		if next != nil {
			t.out.Next[stage] = time.Duration(min(*next, farAway) * float64(time.Second))
		}
		return nil
	})
}

// farAway is as many seconds as a Duration can hold and nobody waits for.
const farAway = 1e9

// present tells which of the tasks whose rows this turn did not get are there
// at all. The turn is committed, so where that cannot be found out they are
// taken to be: they will come again.
func (t *turn) present(ctx context.Context) map[ID]bool {
	there := make(map[ID]bool)
	var unlocked []ID
	for _, r := range t.in.Reports {
		if !t.locked[r.Task] {
			unlocked = append(unlocked, r.Task)
			there[r.Task] = true
		}
	}
	if len(unlocked) == 0 {
		return there
	}
	rows, err := t.store.db.Query(ctx, t.store.sql.exist, unlocked)
	if err != nil {
		return there
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[ID])
	if err != nil {
		return there
	}
	clear(there)
	for _, id := range found {
		there[id] = true
	}
	return there
}

// sortOut tells the reports that changed nothing apart: those whose rows were
// locked by somebody else, and those whose claims, or tasks, are gone.
func (t *turn) sortOut(there map[ID]bool) {
	for _, r := range t.in.Reports {
		switch {
		case t.applied[r.Token]:
		case !t.locked[r.Task] && there[r.Task]:
			t.out.Locked = append(t.out.Locked, r)
		default:
			t.out.Stale = append(t.out.Stale, r)
		}
	}
}
