package store

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// StateFilter selects tasks by an index, so that they are found as quickly among millions
// of finished ones. A task may be in several.
type StateFilter string

// The values of a [StateFilter].
const (
	StateRunning   StateFilter = "running"   // a stage is in progress
	StateReady     StateFilter = "ready"     // a stage is ready
	StateScheduled StateFilter = "scheduled" // [StatusScheduled]
	StateRetrying  StateFilter = "retrying"  // a stage failed or waits for a time, and will be retried
	StateDead      StateFilter = "dead"      // a stage is dead, and the task is not overridden
)

// ListQuery selects and orders tasks. Its zero value is the newest hundred.
type ListQuery struct {
	Filter
	State       StateFilter
	OldestFirst bool // oldest first; After is then the task before the first one
}

// List reads tasks. Where a condition has no index it reads all tasks until it has found
// enough; see [Store.Page]. It returns [ErrNoStage].
func (s *Store) List(ctx context.Context, q ListQuery) ([]Task, error) {
	q.Limit = cmp.Or(max(q.Limit, 0), 100)
	var tasks []Task
	for {
		page, err := s.Page(ctx, q)
		tasks = append(tasks, page.Tasks...)
		if q.Limit -= len(page.Tasks); err != nil || q.Limit <= 0 || page.Next.IsZero() {
			return tasks, err
		}
		q.After = page.Next
	}
}

// MaxSearch is how many tasks a page reads where a condition has no index.
const MaxSearch = 3000

// Page is a part of a list of tasks.
type Page struct {
	Tasks []Task
	// Next is After of the next page, zero for none. A page that had to read each task
	// ends after [MaxSearch] of them: it may have fewer tasks than its Limit although
	// there are more.
	Next ID
}

// pageSource names what a page reads in the order of ids.
type pageSource int

const (
	sourceStates  pageSource = iota // tasks of some states
	sourceUser                      // tasks of a user
	sourceRequest                   // tasks of a request id
	sourceRunning                   // tasks with steps that are worked on
	sourceRetried                   // tasks with steps that wait for a time, or have been tried
)

// pageSources are statements for the ids of tasks after $9: the first $11. Rows are compared so that no other index has their
// order: that of ids would be read from its start where a state is rare.
var pageSources = map[pageSource]string{
	sourceStates: `
  select i.id from unnest($12::cuelight_status[]) as st
   cross join lateral (
        select t.id from {tasks} t
         where (t.state, t.id) < (st, $9) and t.state >= st order by t.state desc, t.id desc limit $11) as i`,
	sourceUser:    `select t.id from {tasks} t where t.user_id = $4 and t.id < $9 order by t.id desc limit $11`,
	sourceRequest: `select t.id from {tasks} t where t.request_id = $5 and t.id < $9 order by t.id desc limit $11`,
	sourceRunning: `select distinct s.task_id as id from {steps} s where s.status in ('running', 'divided') and s.task_id < $9`,
	sourceRetried: `
  select s.task_id as id from {steps} s where s.status = 'waiting' and s.task_id < $9
   union
  select s.task_id from {steps} s where s.attempts > 0 and s.status in ('ready', 'waiting') and s.task_id < $9`,
}

// pageSQL returns the first $10 tasks of a source that match.
const pageSQL = `
/* list tasks */
with candidates as materialized (
  select c.id from (SOURCE) as c order by c.id desc limit $11
)
select page.*, bounds.n, bounds.last
  from (select count(*) as n, (select id from candidates order by id asc limit 1) as last from candidates) as bounds
  left join lateral (
       select ` + taskColumns + `
         from candidates c
         join {tasks} t on t.id = c.id
        where ` + matches + `
          and case $13 when 'dead' then t.overridden_by is null
                       when 'retrying' then cuelight_{name}_status(t) <> 'scheduled'
                       when 'ready' then exists (
                            select from {steps} s where s.task_id = t.id and s.status = 'ready' offset 0)
                       else true end
          and ($12::text[] is null or t.state::text = any ($12::text[]))
        order by t.id desc limit $10) as page on true
 order by page.id desc`

// pageText returns the statement of a page.
func pageText(source pageSource, oldestFirst bool) string {
	text := strings.Replace(pageSQL, "SOURCE", pageSources[source], 1)
	if oldestFirst {
		text = strings.NewReplacer("< $9", "> $9", "< (st, $9)", "> (st, $9)", "state >= st", "state <= st",
			"state desc", "state asc", "id desc", "id asc", "id asc", "id desc").Replace(text)
	}
	return text
}

// maxUnmatched is how many more tasks are read where few tasks of a source do not match.
const maxUnmatched = 1000

// pagePlan is what a page reads.
type pagePlan struct {
	source pageSource
	states []string
	more   int // how many more tasks than the page has are read, because not all match
}

// plan chooses what a page reads.
func (q ListQuery) plan() (p pagePlan, err error) {
	rest := q.Filter
	rest.After, rest.Limit, rest.PublicSourceOnly = ID{}, 0, false
	p.states = statesOf(q.Status, q.StageStatus)
	switch q.State {
	case "":
	case StateRunning:
		p.source = sourceRunning
	case StateReady:
		p.states, p.more = []string{"pending", "inprogress", "dead"}, MaxSearch
	case StateScheduled:
		p.source, p.states, p.more = sourceRetried, []string{"pending"}, MaxSearch
		q.Status = StatusScheduled
	case StateRetrying:
		p.source, p.more = sourceRetried, maxUnmatched
	case StateDead:
		p.states, p.more = []string{"dead"}, maxUnmatched
	default:
		return p, fmt.Errorf("list tasks: unknown state %q", q.State)
	}
	switch {
	case q.RequestID != "":
		p.source, rest.RequestID = sourceRequest, ""
	case q.State != "":
	case q.Status == StatusFailed || q.Status == StatusScheduled:
		p.source, p.more = sourceRetried, maxUnmatched
		rest.Status = ""
	case q.UserID != "" && !slices.Contains([]Status{StatusDead, StatusCancelled}, q.Status):
		p.source, rest.UserID = sourceUser, ""
	case q.Status == StatusPending || q.Status == StatusInProgress:
		p.more, rest.Status = maxUnmatched, ""
	default:
		rest.Status = ""
	}
	if rest != (Filter{}) {
		p.more = MaxSearch
	}
	return p, nil
}

// statesOf lists the states that tasks with a status, or with a stage of a status, may have.
func statesOf(status, stage Status) []string {
	switch {
	case status == StatusScheduled:
		return []string{"pending"}
	case status == StatusFailed:
		return []string{"pending", "inprogress"}
	case status != "":
		return []string{string(status)}
	case stage == StatusInProgress || stage == StatusDivided:
		return []string{"inprogress", "dead"}
	case stage == StatusDead:
		return []string{"dead"}
	case stage == StatusCancelled:
		return []string{"cancelled", "dead"}
	}
	return []string{"pending", "inprogress", "completed", "dead", "cancelled"}
}

// Page reads a page of a list. Its cost does not grow with the number of tasks. It returns
// [ErrNoStage].
func (s *Store) Page(ctx context.Context, q ListQuery) (Page, error) {
	if _, ok := s.graph.Stage(q.Stage); q.Stage != "" && !ok {
		return Page{}, fmt.Errorf("list tasks: %w: %q", ErrNoStage, q.Stage)
	}
	plan, err := q.plan()
	if err != nil {
		return Page{}, err
	}
	if q.State == StateScheduled {
		q.Status = StatusScheduled
	}
	after := q.After
	if after.IsZero() && !q.OldestFirst {
		after = lastID
	} else if after.IsZero() {
		after = firstID
	}
	limit := cmp.Or(max(q.Limit, 0), 100)
	examined := limit + 1 + plan.more
	var page Page
	var n int
	var last ID
	args := append(q.args(), after, limit+1, examined, plan.states, string(q.State))
	err = s.read(ctx, pageText(plan.source, q.OldestFirst), args, func(rows pgx.Rows) (err error) {
		page.Tasks, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Task, error) {
			return s.scanPage(row, &n, &last)
		})
		return err
	})
	if err != nil {
		return Page{}, s.explain("list tasks", err)
	}
	page.Tasks = slices.DeleteFunc(page.Tasks, func(t Task) bool { return t.ID.IsZero() })
	switch {
	case len(page.Tasks) > limit:
		page.Tasks = page.Tasks[:limit]
		page.Next = page.Tasks[limit-1].ID
	case n >= examined:
		page.Next = last
	}
	return page, nil
}

// No id is before firstID or after lastID.
var firstID, lastID = ID{15: 1}, ID(bytes.Repeat([]byte{0xff}, 16))

// scanPage reads a row of a page. Where no task matches there is one row without a task.
func (s *Store) scanPage(row pgx.CollectableRow, n *int, last *ID) (Task, error) {
	if row.RawValues()[0] != nil {
		return s.scanTask(row, n, last)
	}
	skipped := make([]any, len(row.RawValues()))
	skipped[len(skipped)-2], skipped[len(skipped)-1] = n, last
	return Task{}, row.Scan(skipped...)
}
