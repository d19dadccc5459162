package web

import (
	"context"
	"net/http"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
)

// visibleTask returns a task as the principal may see it.
func visibleTask(ctx context.Context, t store.Task) store.Task {
	if !access.PrincipalOf(ctx).Scope.Allows(access.Admin) {
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
	f.After, f.Limit, f.PublicSourceOnly = after, limit, !access.PrincipalOf(r.Context()).Scope.Allows(access.Admin)
	tasks, next, err := report.Search(r.Context(), s.opts.Reads, store.ListQuery{Filter: f})
	if err != nil {
		return jsonResponse{}, err
	}
	visible := make([]store.Task, len(tasks))
	for i, t := range tasks {
		visible[i] = visibleTask(r.Context(), t)
	}
	nextAfter := ""
	if !next.IsZero() {
		nextAfter = next.String()
	}
	return pageResponse(r, "tasks", visible, nextAfter)
}

func (s *Server) getTask(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	d, err := report.Task(r.Context(), s.opts.Reads, pathID(r))
	if !access.PrincipalOf(r.Context()).Scope.Allows(access.Admin) {
		ofPlacement := d.Warnings[len(report.Warnings(d.History)):] // the others may contain the source
		for i := range d.History {
			a := &d.History[i]
			a.Error, a.Result = redact.Text(a.Error, d.Source), redact.JSON(a.Result, d.Source)
		}
		d.Warnings = append(report.Warnings(d.History), ofPlacement...)
		d.Task = visibleTask(r.Context(), d.Task)
	}
	return okResponse(d, err)
}
