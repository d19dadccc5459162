package store

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
)

// Status is the status of a stage, or of a task as a whole.
type Status string

// The statuses. A task as a whole is dead or cancelled when one of its stages is, completed
// when all are, and in progress once a stage has started. Only a task as a whole is
// scheduled: it waits for the time it was submitted for, before its first attempt.
const (
	StatusScheduled  Status = "scheduled"
	StatusPending    Status = "pending"
	StatusInProgress Status = "inprogress"
	StatusDivided    Status = "divided" // only of a stage: its parts are worked on
	StatusCompleted  Status = "completed"
	StatusFailed     Status = "failed" // will be retried
	StatusDead       Status = "dead"
	StatusCancelled  Status = "cancelled"
)

// Task is a task at the time of the read.
type Task struct {
	ID           ID              `json:"task_id"`
	CreatedAt    time.Time       `json:"created_at"`
	Priority     int16           `json:"priority"`
	Source       string          `json:"source"`
	Params       json.RawMessage `json:"params"`
	RequestID    string          `json:"request_id,omitempty"`
	UserID       string          `json:"user_id,omitempty"`
	SubmittedBy  string          `json:"submitted_by,omitempty"` // see [Submission]
	OverriddenBy ID              `json:"overridden_by,omitzero"`
	Placement    json.RawMessage `json:"placement,omitempty"`    // by stage, each a [Placement]
	UserContext  json.RawMessage `json:"user_context,omitempty"` // see [Submission]
	Status       Status          `json:"status"`
	Stages       []StageState    `json:"stages"` // in the pipeline's order
}

// Title is the parameter title, if it is text.
func (t Task) Title() string {
	var params struct{ Title string }
	if json.Unmarshal(t.Params, &params) != nil {
		return "" // title is not text
	}
	return params.Title
}

// Placements is the Placement by stage, nil where another program stored something else.
func (t Task) Placements() (byStage map[string]Placement) {
	if json.Unmarshal(t.Placement, &byStage) != nil {
		return nil
	}
	return byStage
}

// StageState is one stage of a [Task].
type StageState struct {
	Name     string     `json:"stage"`
	Status   Status     `json:"status"`
	Attempts int        `json:"attempts"`
	Token    ID         `json:"-"`
	LockedAt *time.Time `json:"locked_at,omitempty"`
	LockedBy ID         `json:"locked_by,omitzero"`
	RunAt    *time.Time `json:"run_at,omitempty"`
	// Parts is how many parts the stage was divided into, and OpenParts how many of them are not
	// completed; nil if it is not divided.
	Parts     *int `json:"parts,omitempty"`
	OpenParts *int `json:"open_parts,omitempty"`
}

// IsFinished reports whether the task will not change any more unless somebody changes it:
// no stage is in progress, ready, or waiting for a time.
func (t Task) IsFinished(g Graph) bool {
	for i, s := range t.Stages {
		switch s.Status {
		case StatusInProgress, StatusDivided:
			return false
		case StatusPending, StatusFailed:
			open := true
			for _, j := range g.needs[i] {
				open = open && t.Stages[j].Status == StatusCompleted
			}
			if open {
				return false
			}
		}
	}
	return true
}

// Attempt is a finished attempt at a stage, from the history.
type Attempt struct {
	Task       ID              `json:"task_id"`
	Stage      string          `json:"stage"`
	Part       int             `json:"part,omitempty"` // of a divided stage, counted from 1; 0: of the stage itself
	Attempt    int             `json:"attempt"`
	Outcome    string          `json:"outcome"` // completed, divided, failed, expired, released or cancelled
	StartedAt  time.Time       `json:"started_at"`
	FinishedAt time.Time       `json:"finished_at"`
	WorkerName string          `json:"worker_name"`
	Host       string          `json:"host"`
	PID        int             `json:"pid"`
	RetryAt    *time.Time      `json:"retry_at,omitempty"`
	Class      string          `json:"error_class,omitempty"`
	Error      string          `json:"error,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"`
	Worker     ID              `json:"worker_id"`
	Token      ID              `json:"token"`
}

// taskColumns are those of a [Task]: two of them are JSON of the stages' steps and of their latest attempts.
const taskColumns = `
t.id, t.created_at, t.priority, t.source, t.params, coalesce(t.request_id, ''), coalesce(t.user_id, ''),
       coalesce(t.submitted_by, ''), t.overridden_by, t.placement, t.user_context, cuelight_{name}_status(t) as status,
       array[{statuses t.}]::text[] as statuses,
       (select json_agg(s) from (
          select stage, max(attempts) filter (where part = 0) as attempts,
                 max(token::text) filter (where part = 0) as token,
                 max(locked_at) filter (where part = 0) as locked_at,
                 max(locked_by::text) filter (where part = 0) as locked_by,
                 max(run_at) filter (where part = 0) as run_at, nullif(count(*) filter (where part > 0), 0) as parts,
                 count(*) filter (where part > 0 and status <> 'completed') as open_parts
            from {steps} where task_id = t.id group by stage) as s) as steps,
       (select json_object_agg(stage, attempt) from (
          select distinct on (stage) stage, attempt from {attempts} a where a.task_id = t.id and a.part = 0
           order by stage, finished_at desc) as a) as attempts`

const getSQL = `
/* get task */
select ` + taskColumns + `
  from {tasks} t where t.id = $1`

// Get reads one task. It returns [ErrNotFound].
func (s *Store) Get(ctx context.Context, id ID) (Task, error) {
	found, err := query(ctx, s, "get task", getSQL, func(row pgx.CollectableRow) (Task, error) { return s.scanTask(row) }, id)
	if err == nil && len(found) == 0 {
		err = s.explain("get task", ErrNotFound)
	}
	if err != nil {
		return Task{}, err
	}
	return found[0], nil
}

// Filter selects tasks. Its zero value selects all.
type Filter struct {
	Status      Status // of the task as a whole
	Stage       string // with StageStatus: tasks whose Stage has it
	StageStatus Status
	UserID      string
	RequestID   string
	Source      string // part of the source or the title
	// PublicSourceOnly searches for Source only in the public part of a URL: not in its user and
	// password, query or fragment.
	PublicSourceOnly bool
	Error            string // part of the error of one of the attempts
	After            ID     // only tasks older than this one
	Limit            int    // default 100
}

// matches is the condition of a [Filter]. An empty parameter is no condition. The offset keeps PostgreSQL 18 from reading
// the whole history into a hash table.
const matches = `
       ($1 = '' or cuelight_{name}_status(t) = $1)
   and ($2 = '' or $3 = (select x.status::text from cuelight_{name}_stages(t) x where x.stage = $2))
   and ($4 = '' or t.user_id = $4)
   and ($5 = '' or t.request_id = $5)
   and ($6 = '' or strpos(t.source, $6) > 0
          and (not $8 or strpos(t.source, '://') = 0
               or strpos(regexp_replace(split_part(split_part(t.source, '#', 1), '?', 1),
                    '^([A-Za-z][A-Za-z0-9+.-]*:)?//[^/]*@', '\1//'), $6) > 0)
        or strpos(t.params->>'title', $6) > 0)
   and ($7 = '' or exists (select from {attempts} a where a.task_id = t.id and strpos(a.error, $7) > 0 offset 0))`

func (f Filter) args() []any {
	return []any{string(f.Status), f.Stage, string(f.StageStatus), f.UserID, f.RequestID, f.Source, f.Error, f.PublicSourceOnly}
}

// stepState is a row of the JSON of steps.
type stepState struct {
	Stage     string     `json:"stage"`
	Attempts  *int       `json:"attempts"`
	Token     ID         `json:"token"`
	LockedAt  *time.Time `json:"locked_at"`
	LockedBy  ID         `json:"locked_by"`
	RunAt     *time.Time `json:"run_at"`
	Parts     *int       `json:"parts"`
	OpenParts int        `json:"open_parts"`
}

func (s *Store) scanTask(row pgx.CollectableRow, more ...any) (t Task, err error) {
	var statuses []Status
	var steps []stepState
	var attempts map[string]int
	err = row.Scan(append([]any{
		&t.ID, &t.CreatedAt, &t.Priority, &t.Source, &t.Params, &t.RequestID, &t.UserID, &t.SubmittedBy,
		&t.OverriddenBy, &t.Placement, &t.UserContext, &t.Status, &statuses, &steps, &attempts,
	}, more...)...)
	if err != nil {
		return t, err
	}
	t.Stages = make([]StageState, len(s.graph.nodes))
	for i, n := range s.graph.nodes {
		t.Stages[i] = StageState{Name: n.Name, Status: statuses[i]}
		if statuses[i] != StatusPending {
			t.Stages[i].Attempts = attempts[n.Name]
		}
	}
	for _, step := range steps {
		if i, ok := s.graph.Stage(step.Stage); ok {
			t.Stages[i].set(step)
		}
	}
	return t, nil
}

func (s *StageState) set(step stepState) {
	if step.Attempts != nil {
		s.Attempts = *step.Attempts
	}
	s.Token, s.LockedAt, s.LockedBy, s.RunAt = step.Token, step.LockedAt, step.LockedBy, step.RunAt
	if step.Parts != nil {
		s.Parts, s.OpenParts = step.Parts, &step.OpenParts
	}
}

// findBatch is how many ids one statement compares.
const findBatch = 50_000

const findByIDSuffixSQL = `
/* find task by the end of its id */
with compared as materialized (
  select id from {tasks} where id < coalesce($2::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff') order by id desc
    limit $3
)
select array(select id from compared where replace(id::text, '-', '') like '%' || replace($1, '-', '') limit 2),
       (select count(*) from compared), (select id from compared order by id limit 1)`

var idSuffix = regexp.MustCompile(`^[0-9a-f-]{4,36}$`)

// Find resolves an id, or the last digits of one, at least four, that only one task has. (Ids
// start with the time, so their first digits are alike.) It compares them with all tasks.
func (s *Store) Find(ctx context.Context, text string) (ID, error) { return s.find(ctx, text, true) }

// FindNewest is [Store.Find] among the newest 50,000 tasks.
func (s *Store) FindNewest(ctx context.Context, text string) (ID, error) {
	return s.find(ctx, text, false)
}

func (s *Store) find(ctx context.Context, text string, all bool) (ID, error) {
	return s.findBySuffix(text, func() (found []ID, err error) {
		var last ID
		for n := findBatch; n == findBatch && len(found) < 2 && (all || last.IsZero()); {
			var some []ID
			err = s.read(ctx, findByIDSuffixSQL, []any{text, last, findBatch}, func(rows pgx.Rows) error {
				_, err := pgx.ForEachRow(rows, []any{&some, &n, &last}, func() error { return nil })
				return err
			})
			if err != nil {
				return nil, err
			}
			found = append(found, some...)
		}
		return found, nil
	})
}

// findBySuffix resolves an id, or the end of one, by a search that returns up to two or more.
func (s *Store) findBySuffix(text string, search func() ([]ID, error)) (ID, error) {
	if id, err := ParseID(text); err == nil {
		return id, nil
	}
	if !idSuffix.MatchString(text) {
		return ID{}, fmt.Errorf("%w: %q is neither an id nor the end of one", ErrNotFound, text)
	}
	found, err := search()
	switch {
	case err != nil:
		return ID{}, s.explain("find task", err)
	case len(found) == 0:
		return ID{}, fmt.Errorf("%w: none ends in %s", ErrNotFound, text)
	case len(found) > 1:
		return ID{}, fmt.Errorf("%w: several end in %s", ErrNotFound, text)
	}
	return found[0], nil
}

const historySQL = `
/* task history */
select a.task_id, a.stage, a.part, a.attempt, a.outcome::text, a.started_at, a.finished_at, coalesce(w.name, ''),
       coalesce(w.host, ''), coalesce(w.pid, 0), a.retry_at, coalesce(a.error_class, ''), coalesce(a.error, ''),
       case when a.outcome = 'completed' then a.result end, a.worker_id, a.token
  from {attempts} a
  left join {workers} w on w.id = a.worker_id
 where a.task_id = $1
 order by a.started_at, a.finished_at, a.token`

// History lists the attempts at a task, oldest first; none for a task that does not exist.
func (s *Store) History(ctx context.Context, id ID) ([]Attempt, error) {
	return query(ctx, s, "task history", historySQL, func(row pgx.CollectableRow) (a Attempt, err error) {
		err = row.Scan(&a.Task, &a.Stage, &a.Part, &a.Attempt, &a.Outcome, &a.StartedAt, &a.FinishedAt, &a.WorkerName,
			&a.Host, &a.PID, &a.RetryAt, &a.Class, &a.Error, &a.Result, &a.Worker, &a.Token)
		return a, err
	}, id)
}

// Result returns the result of a completed stage of a task, as JSON. It returns
// [ErrNotFound] for a stage that was never completed.
func (s *Store) Result(ctx context.Context, task ID, stage string) (json.RawMessage, error) {
	results, err := s.Results(ctx, stage, task)
	raw, ok := results[task]
	if err == nil && !ok {
		err = s.explain("stage results", fmt.Errorf("%w, or its stage %q was never completed", ErrNotFound, stage))
	}
	return raw, err
}

const resultsSQL = `
/* stage results */
select t.id, a.result
  from unnest($1::uuid[]) as t (id)
 cross join lateral (
   select coalesce(result, 'null') as result from {attempts}
    where task_id = t.id and stage = $2 and part = 0 and outcome = 'completed'
    order by finished_at desc limit 1) as a`

// Results returns the results of a stage of tasks as Result does, by the ids of the tasks. Tasks of which the stage was
// never completed are absent.
func (s *Store) Results(ctx context.Context, stage string, tasks ...ID) (map[ID]json.RawMessage, error) {
	type taskResult struct {
		task   ID
		result json.RawMessage
	}
	rows, err := query(ctx, s, "stage results", resultsSQL, func(row pgx.CollectableRow) (r taskResult, err error) {
		return r, row.Scan(&r.task, &r.result)
	}, tasks, stage)
	results := make(map[ID]json.RawMessage, len(rows))
	for _, r := range rows {
		results[r.task] = r.result
	}
	return results, err
}
