package web

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/internal/report"
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

func (s *Server) getTask(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	id, err := pathID(r)
	if err != nil {
		return jsonResponse{}, err
	}
	d, err := report.Task(r.Context(), s.opts.Store, id)
	if err != nil {
		return jsonResponse{}, err
	}
	if access.From(r.Context()).Scope < access.Admin {
		for i := range d.History {
			a := &d.History[i]
			a.Error, a.Result = redact.Text(a.Error, d.Source), redact.JSON(a.Result, d.Source)
		}
		d.Task, d.Warnings = visibleTask(r.Context(), d.Task), store.Warnings(d.History)
	}
	return okResponse(d)
}
