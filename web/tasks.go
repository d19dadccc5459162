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

// visible is a task as a principal may see it.
func visible(ctx context.Context, t store.Task) store.Task {
	if access.From(ctx).Scope < access.Admin {
		t.Source = redact.Source(t.Source)
	}
	return t
}

func (s *Server) listTasks(_ http.ResponseWriter, r *http.Request) (answer, error) {
	p := given(r)
	chosen, limit, after := p.filter(), p.limit(), p.id("after")
	f, err := chosen.store()
	if p.err != nil {
		return answer{}, p.err
	}
	if err != nil {
		return answer{}, err
	}
	f.After = after
	tasks, next, err := s.found(r.Context(), f, limit)
	if err != nil {
		return answer{}, err
	}
	body := struct {
		Tasks []store.Task `json:"tasks"`
		Next  string       `json:"next,omitempty"`
	}{Tasks: tasks}
	if !next.IsZero() {
		body.Next = s.next(api+"/tasks", p, next.String())
	}
	return answer{status: http.StatusOK, body: body, link: body.Next}, nil
}

// searchFor is for how long a page goes on looking for tasks where it has to look at
// each.
const searchFor = 2 * time.Second

// found are the tasks that a principal finds, and where the next page goes on, if there
// may be more. A caller who is not shown all of a source must not find out the rest by
// asking for parts of it: what matches only there is not there, neither in a page nor
// after it. The database passes over most of that, and what is shown has the last word.
func (s *Server) found(ctx context.Context, f store.Filter, limit int) (tasks []store.Task, next store.ID, err error) {
	tasks = []store.Task{}
	f.Limit = limit + 1 // one more, to know whether there is a next page
	f.Shown = access.From(ctx).Scope < access.Admin
	for began := time.Now(); ; {
		page, err := s.o.Store.Page(ctx, store.ListQuery{Filter: f})
		if err != nil {
			return nil, next, err
		}
		for _, t := range page.Tasks {
			t = visible(ctx, t)
			if !strings.Contains(t.Source, f.Source) && !strings.Contains(t.Title(), f.Source) {
				continue
			}
			if len(tasks) == limit {
				return tasks, tasks[limit-1].ID, nil
			}
			tasks = append(tasks, t)
		}
		if page.Next.IsZero() || time.Since(began) >= searchFor {
			return tasks, page.Next, nil
		}
		f.After = page.Next
	}
}

// details is a task with all there is to know of it.
type details struct {
	store.Task
	Running []store.Running `json:"running"`
	History []store.Attempt `json:"history"`
	// Warnings are what the stages warn of.
	Warnings []string `json:"warnings"`
}

func (s *Server) getTask(_ http.ResponseWriter, r *http.Request) (answer, error) {
	id, err := pathID(r)
	if err != nil {
		return answer{}, err
	}
	d, err := s.details(r.Context(), id)
	if err != nil {
		return answer{}, err
	}
	return ok(d)
}

func (s *Server) details(ctx context.Context, id store.ID) (details, error) {
	t, err := s.o.Store.Get(ctx, id)
	if err != nil {
		return details{}, err
	}
	history, err := s.o.Store.History(ctx, id)
	if err != nil {
		return details{}, err
	}
	d := details{Task: visible(ctx, t), Running: []store.Running{}, History: append([]store.Attempt{}, history...)}
	if access.From(ctx).Scope < access.Admin {
		for i := range d.History {
			a := &d.History[i]
			a.Error, a.Result = redact.Text(a.Error, t.Source), redact.JSON(a.Result, t.Source)
		}
	}
	d.Warnings = store.Warnings(d.History)
	held := make(map[store.ID]bool)
	for _, st := range t.Stages {
		if !st.Token.IsZero() {
			held[st.Token] = true
		}
	}
	if len(held) == 0 {
		return d, nil
	}
	workers, err := s.o.Store.Workers(ctx, false)
	if err != nil {
		return details{}, err
	}
	for _, w := range workers {
		for _, run := range w.Running {
			if held[run.Token] { // what a worker says of itself is a moment old
				d.Running = append(d.Running, run)
			}
		}
	}
	return d, nil
}

// change does something to one task, with its audit, and answers with the task as
// it is then.
func (s *Server) change(r *http.Request, action string, detail map[string]any, do func(in *store.Store, id store.ID) error) (answer, error) {
	id, err := pathID(r)
	if err != nil {
		return answer{}, err
	}
	var after store.Task
	err = s.o.Store.WithAudit(r.Context(), func(in *store.Store) (store.AuditEntry, error) {
		if err := do(in, id); err != nil {
			return store.AuditEntry{}, err
		}
		after, err = in.Get(r.Context(), id)
		return entry(r, action, id.String(), detail), err
	})
	if err != nil {
		return answer{}, err
	}
	return ok(visible(r.Context(), after))
}

func (s *Server) retry(w http.ResponseWriter, r *http.Request) (answer, error) {
	var in struct {
		From string `json:"from"`
	}
	if err := decode(w, r, bodyMost, true, &in); err != nil {
		return answer{}, err
	}
	detail := map[string]any{}
	if in.From != "" {
		detail["from"] = in.From
	}
	return s.change(r, "retry", detail, func(st *store.Store, id store.ID) error {
		return st.Retry(r.Context(), id, in.From)
	})
}

func (s *Server) cancel(w http.ResponseWriter, r *http.Request) (answer, error) {
	if err := decode(w, r, bodyMost, true, &struct{}{}); err != nil {
		return answer{}, err
	}
	return s.change(r, "cancel", nil, func(st *store.Store, id store.ID) error {
		return st.Cancel(r.Context(), id)
	})
}

// retryFor is for how long batches of tasks to retry are begun for one request, well
// within answerIn. The rest is for the next.
const retryFor = 15 * time.Second

// retryAll does again all that a filter chooses; without one for a status, all
// that died.
func (s *Server) retryAll(w http.ResponseWriter, r *http.Request) (answer, error) {
	var in struct {
		Filter filter `json:"filter"`
		From   string `json:"from"`
		DryRun bool   `json:"dry_run"`
	}
	if err := decode(w, r, bodyMost, false, &in); err != nil {
		return answer{}, err
	}
	if in.Filter.Status == "" && in.Filter.Stage == "" {
		in.Filter.Status = string(store.StatusDead)
	}
	f, err := in.Filter.store()
	if err != nil {
		return answer{}, err
	}
	var body struct {
		Matched   int  `json:"matched"`
		Retried   int  `json:"retried"`
		Remaining int  `json:"remaining"`
		DryRun    bool `json:"dry_run"`
	}
	if body.DryRun = in.DryRun; in.DryRun {
		body.Matched, err = s.o.Store.CountRetries(r.Context(), f, in.From)
		body.Remaining = body.Matched
	} else {
		in.Filter.Source = redact.Filter(in.Filter.Source)
		var done store.RetryAllResult
		done, err = s.o.Store.RetryAll(r.Context(), f, in.From, store.RetryAllOptions{
			Until: time.Now().Add(retryFor),
			Audit: func(tasks int) (store.AuditEntry, error) {
				return entry(r, "retry_all", "", map[string]any{"filter": in.Filter, "from": in.From, "tasks": tasks}), nil
			},
		})
		body.Matched, body.Retried, body.Remaining = done.Matched, done.Retried, done.Remaining
	}
	if err != nil {
		return answer{}, err
	}
	return ok(body)
}

// override puts a new task in the place of one, and of others that are named.
func (s *Server) override(w http.ResponseWriter, r *http.Request) (answer, error) {
	id, err := pathID(r)
	if err != nil {
		return answer{}, err
	}
	var in struct {
		submission
		Also []store.ID `json:"also"`
	}
	if err := decode(w, r, bodyMost, false, &in); err != nil {
		return answer{}, err
	}
	subs, err := s.accept(r, []submission{in.submission})
	if err != nil {
		return answer{}, err
	}
	old := append([]store.ID{id}, in.Also...)
	var got store.Receipt
	err = s.o.Store.WithAudit(r.Context(), func(st *store.Store) (store.AuditEntry, error) {
		got, err = st.Override(r.Context(), old, subs[0])
		return entry(r, "override", id.String(), map[string]any{"by": got.ID, "tasks": old, "source": redact.Source(subs[0].Source)}), err
	})
	if err != nil {
		return answer{}, err
	}
	return s.receipts([]store.Receipt{got}, false), nil
}
