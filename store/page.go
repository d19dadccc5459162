package store

import (
	"cmp"
	"context"
	"fmt"
	"slices"

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

// pageKey names one of the statements for a page.
type pageKey struct {
	index  pageIndex
	oldest bool
}

// pageIndex names the index, or the indexes, that a page reads in the order of ids.
type pageIndex string

// The indexes apart from those of statuses and of [StateFilter].
const (
	indexAll     pageIndex = "all"
	indexRequest pageIndex = "request"
	indexUser    pageIndex = "user"
)

func indexOfStatus(status Status) pageIndex    { return pageIndex("status " + status) }
func indexOfState(state StateFilter) pageIndex { return pageIndex("state " + state) }
func indexOfStage(status Status) pageIndex     { return pageIndex("stage " + status) }

// pageConditions are the conditions of the indexes of a [pageIndex]. A task may be in several.
type pageConditions struct {
	templateData
	OldestFirst bool
	Where       []string    // conditions on a row t
	Ready       []stageData // and what is ready for these stages
}

// newPages fills the statements for pages.
func newPages(w templateData) map[pageKey]string {
	pages := make(map[pageKey]string)
	for of, from := range pageIndexes(w) {
		from.templateData = w
		for _, from.OldestFirst = range []bool{false, true} {
			pages[pageKey{of, from.OldestFirst}] = fill(pageSQL, from)
		}
	}
	return pages
}

// pageIndexes returns the conditions of all page indexes.
func pageIndexes(w templateData) map[pageIndex]pageConditions {
	running, died := "("+w.IsWorkedOn("t.")+")", "("+w.Any("t.", "dead")+")"
	failed := w.indexed("t.", StatusFailed, notWaiting, waitsUnclaimed, waitsReclaimed)
	cancelled := w.indexed("t.", StatusCancelled, notWaiting, waitsUnclaimed, waitsReclaimed)
	var first, later []stageData
	for _, s := range w.Stages {
		if len(s.Needs) == 0 {
			first = append(first, s)
		} else {
			later = append(later, s)
		}
	}
	return map[pageIndex]pageConditions{
		indexAll:                       {Where: []string{"true"}},
		indexRequest:                   {Where: []string{"t.request_id = $5"}},
		indexUser:                      {Where: []string{"t.user_id = $4"}},
		indexOfState(StateRunning):     {Where: []string{running}},
		indexOfState(StateReady):       {Ready: w.Stages},
		indexOfState(StateScheduled):   {Where: []string{w.IsScheduled("t.")}},
		indexOfState(StateRetrying):    {Where: w.Retrying("t.")},
		indexOfState(StateDead):        {Where: []string{died + " and t.overridden_by is null"}},
		indexOfStatus(StatusScheduled): {Where: []string{w.IsScheduled("t.")}},
		indexOfStatus(StatusCompleted): {Where: w.indexed("t.", StatusCompleted, notWaiting)},
		indexOfStatus(StatusFailed):    {Where: w.withStatus(StatusFailed, failed)},
		indexOfStatus(StatusDead):      {Where: []string{died}},
		indexOfStatus(StatusCancelled): {Where: w.withStatus(StatusCancelled, cancelled)},
		// No index exists for these statuses, because they change with every exchange. The
		// indexes of exchanges find them, unless they wait for a time.
		indexOfStatus(StatusPending): {Where: w.indexed("t.", StatusPending, waitsReclaimed), Ready: first},
		indexOfStatus(StatusInProgress): {
			Where: append(w.indexed("t.", StatusCompleted, waitsUnclaimed, waitsReclaimed), running), Ready: later,
		},
		indexOfStage(StatusInProgress): {Where: []string{running}},
		indexOfStage(StatusDivided):    {Where: []string{running}},
		indexOfStage(StatusFailed):     {Where: slices.Concat(failed, cancelled, []string{died})},
		indexOfStage(StatusDead):       {Where: []string{died}},
		indexOfStage(StatusCancelled):  {Where: cancelled},
	}
}

// withStatus adds to each condition on a row t that the task has the status, because a task
// with such a stage may have another status because of another stage.
func (d templateData) withStatus(status Status, conditions []string) (all []string) {
	for _, c := range conditions {
		all = append(all, c+" and "+d.StatusOf("t.")+" = '"+string(status)+"'")
	}
	return all
}

// pageSQL reads the first $11 tasks of a page index after $9, and returns the first $10 of them
// that match. The index of ready tasks is ordered by priority first, so it is read once per
// priority, of which there are few.
const pageSQL = `
/* list tasks */
{{- define "beyond"}}
{{- if .OldestFirst}} and t.id > coalesce($9::uuid, '00000000-0000-0000-0000-000000000000') order by t.id limit $11
{{- else}} and t.id < coalesce($9::uuid, 'ffffffff-ffff-ffff-ffff-ffffffffffff') order by t.id desc limit $11{{end}}
{{- end}}
{{- define "order"}}id{{if not .OldestFirst}} desc{{end}}{{end}}
with
{{- if or .Ready (gt (len .Where) 1)}} found as (
  {{- range $i, $where := .Where}}{{if $i}} union{{end}}
  (select t.id from {{$.Tasks}} t where {{$where}}{{template "beyond" $}})
  {{- end}}
  {{- range $i, $s := .Ready}}{{if or $i $.Where}} union{{end}}
  (with recursive levels (priority) as (
     (select priority from {{$.Tasks}} t where {{.Ready "t."}} order by priority desc, id limit 1)
     union all
     select (select t.priority from {{$.Tasks}} t where {{.Ready "t."}} and t.priority < l.priority
              order by t.priority desc, t.id limit 1)
       from levels l where l.priority is not null
   )
   select t.id from (select priority from levels where priority is not null limit 100) as l
    cross join lateral (select t.id from {{$.Tasks}} t where {{.Ready "t."}} and t.priority = l.priority{{template "beyond" $}}) as t)
  {{- end}}
), candidates as materialized (
  select t.* from (select id from found order by {{template "order" .}} limit $11) as f
   cross join lateral (select * from {{.Tasks}} where id = f.id offset 0) as t
)
{{- else}} candidates as materialized (
  select t.* from {{.Tasks}} t where {{index .Where 0}}{{template "beyond" .}}
)
{{- end}}
select ` + taskColumns + `, bounds.n, bounds.last
  from (select count(*) as n,
               (select id from candidates order by id{{if .OldestFirst}} desc{{end}} limit 1) as last
          from candidates) as bounds
  left join lateral (
       select * from candidates t where ` + matches + `
        order by t.{{template "order" .}} limit $10) as t on true
 order by t.{{template "order" .}}`

// maxUnmatched is how many more tasks are read where few tasks of an index do not match.
const maxUnmatched = 1000

// chooseIndex returns the index of a page, and how many more tasks than the page has are read
// from it, because not all match.
func (q ListQuery) chooseIndex() (from pageIndex, more int) {
	rest := q.Filter
	rest.After, rest.Limit, rest.PublicSourceOnly = ID{}, 0, false
	byUser := q.UserID != "" && slices.Contains([]Status{"", StatusPending, StatusInProgress, StatusCompleted}, q.Status)
	switch {
	case q.RequestID != "":
		from, rest.RequestID = indexRequest, ""
	case q.State != "":
		from = indexOfState(q.State)
	case byUser:
		from, rest.UserID = indexUser, ""
	case q.Status != "":
		from, rest.Status = indexOfStatus(q.Status), ""
		if q.Status == StatusPending || q.Status == StatusInProgress {
			more = maxUnmatched
		}
	case slices.Contains([]Status{StatusInProgress, StatusDivided, StatusFailed, StatusDead, StatusCancelled}, q.StageStatus):
		from = indexOfStage(q.StageStatus)
	default:
		from = indexAll
	}
	if rest != (Filter{}) {
		more = MaxSearch
	}
	return from, more
}

// Page reads a page of a list. Its cost does not grow with the number of tasks. It returns
// [ErrNoStage].
func (s *Store) Page(ctx context.Context, q ListQuery) (Page, error) {
	if _, ok := s.graph.Stage(q.Stage); q.Stage != "" && !ok {
		return Page{}, fmt.Errorf("list tasks: %w: %q", ErrNoStage, q.Stage)
	}
	from, more := q.chooseIndex()
	sql, ok := s.sql.pages[pageKey{from, q.OldestFirst}]
	if !ok {
		return Page{}, fmt.Errorf("list tasks: unknown state %q", from)
	}
	limit := cmp.Or(max(q.Limit, 0), 100)
	examined := limit + 1 + more
	var page Page
	var n int
	var last ID
	err := s.read(ctx, sql, append(q.args(s.graph), q.After, limit+1, examined), func(rows pgx.Rows) (err error) {
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

// scanPage reads a row of a page. Where no task matches there is one row without a task.
func (s *Store) scanPage(row pgx.CollectableRow, n *int, last *ID) (Task, error) {
	if row.RawValues()[0] != nil {
		return s.scanTask(row, n, last)
	}
	skipped := make([]any, len(row.RawValues()))
	skipped[len(skipped)-2], skipped[len(skipped)-1] = n, last
	return Task{}, row.Scan(skipped...)
}
