package web

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/store"
)

// searchTimeout is how long one page searches when the database cannot find all matches by an index.
const searchTimeout = 2 * time.Second

// visibleTask returns a task as the principal may see it.
func visibleTask(ctx context.Context, t store.Task) store.Task {
	if access.From(ctx).Scope < access.Admin {
		t.Source = redact.Source(t.Source)
	}
	return t
}

func (s *Server) listTasks(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	p := parsedQuery(r)
	conditions, limit, after := p.filter(), p.limit(), p.id("after")
	if p.err != nil {
		return jsonResponse{}, p.err
	}
	f, err := conditions.toStoreFilter()
	if err != nil {
		return jsonResponse{}, err
	}
	f.After = after
	tasks, next, err := s.searchTasks(r.Context(), f, limit)
	if err != nil {
		return jsonResponse{}, err
	}
	body := struct {
		Tasks []store.Task `json:"tasks"`
		Next  string       `json:"next,omitempty"`
	}{Tasks: tasks}
	if !next.IsZero() {
		body.Next = s.nextPageURL(apiPath+"/tasks", p, next.String())
	}
	return jsonResponse{status: http.StatusOK, body: body, nextPage: body.Next}, nil
}

// searchTasks returns a page of tasks and, if there may be more, the id after which the next page starts. A principal
// that sees only the public form of sources must not learn the rest by searching for parts of it. So a match in the
// hidden part is no match, in this page and in the decision whether there is a next one. The database skips most of
// these tasks; the public form decides.
func (s *Server) searchTasks(
	ctx context.Context, f store.Filter, limit int,
) (tasks []store.Task, next store.ID, err error) {
	tasks = []store.Task{}
	f.Limit = limit + 1 // one more, to find out whether there is a next page
	f.Shown = access.From(ctx).Scope < access.Admin
	for start := time.Now(); ; {
		page, err := s.opts.Store.Page(ctx, store.ListQuery{Filter: f})
		if err != nil {
			return nil, next, err
		}
		for _, t := range page.Tasks {
			t = visibleTask(ctx, t)
			if !strings.Contains(t.Source, f.Source) && !strings.Contains(t.Title(), f.Source) {
				continue
			}
			if len(tasks) == limit {
				return tasks, tasks[limit-1].ID, nil
			}
			tasks = append(tasks, t)
		}
		if page.Next.IsZero() || time.Since(start) >= searchTimeout {
			return tasks, page.Next, nil
		}
		f.After = page.Next
	}
}

// taskDetails is a task with its attempts.
type taskDetails struct {
	store.Task
	Running  []store.Running `json:"running"`
	History  []store.Attempt `json:"history"`
	Warnings []string        `json:"warnings"` // of the stages
}

func (s *Server) getTask(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	id, err := pathID(r)
	if err != nil {
		return jsonResponse{}, err
	}
	d, err := s.taskDetails(r.Context(), id)
	if err != nil {
		return jsonResponse{}, err
	}
	return okResponse(d)
}

func (s *Server) taskDetails(ctx context.Context, id store.ID) (taskDetails, error) {
	t, err := s.opts.Store.Get(ctx, id)
	if err != nil {
		return taskDetails{}, err
	}
	history, err := s.opts.Store.History(ctx, id)
	if err != nil {
		return taskDetails{}, err
	}
	d := taskDetails{Task: visibleTask(ctx, t), History: append([]store.Attempt{}, history...)}
	if access.From(ctx).Scope < access.Admin {
		for i := range d.History {
			a := &d.History[i]
			a.Error, a.Result = redact.Text(a.Error, t.Source), redact.JSON(a.Result, t.Source)
		}
	}
	d.Warnings = store.Warnings(d.History)
	d.Running, err = s.runningStages(ctx, t)
	return d, err
}

// runningStages returns what workers report of the stages that they run now. A report may be older than the task, so
// only stages with a current claim count.
func (s *Server) runningStages(ctx context.Context, t store.Task) ([]store.Running, error) {
	running := []store.Running{}
	claimed := make(map[store.ID]bool)
	for _, st := range t.Stages {
		if !st.Token.IsZero() {
			claimed[st.Token] = true
		}
	}
	if len(claimed) == 0 {
		return running, nil
	}
	workers, err := s.opts.Store.Workers(ctx, false)
	for _, w := range workers {
		for _, run := range w.Running {
			if claimed[run.Token] {
				running = append(running, run)
			}
		}
	}
	return running, err
}
