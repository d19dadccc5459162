package web

import (
	"context"
	"net/http"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
)

// visibleTask returns a task as the principal may see it.
func visibleTask(ctx context.Context, t store.Task) store.Task {
	if !access.PrincipalOf(ctx).Scope.Allows(access.Admin) {
		t.Source = redact.Shown(t.Source)
	}
	return t
}

// taskBody is a task as responses have it.
type taskBody struct {
	store.Task
	Playback *playback.Video `json:"playback,omitempty"`
}

// taskBodies returns tasks as the principal of a request may see them, with how they are watched.
func (s *Server) taskBodies(r *http.Request, tasks ...store.Task) ([]taskBody, error) {
	found, err := s.addresses(r).Find(r.Context(), s.opts.Reads, tasks...)
	bodies := make([]taskBody, len(tasks))
	for i, t := range tasks {
		bodies[i] = taskBody{visibleTask(r.Context(), t), found[t.ID]}
	}
	return bodies, err
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
	visible, err := s.taskBodies(r, tasks...)
	if err != nil {
		return jsonResponse{}, err
	}
	nextAfter := ""
	if !next.IsZero() {
		nextAfter = next.String()
	}
	return pageResponse(r, "tasks", visible, nextAfter)
}

func (s *Server) getTask(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	d, err := report.Task(r.Context(), s.opts.Reads, pathID(r))
	if err != nil {
		return jsonResponse{}, err
	}
	if !access.PrincipalOf(r.Context()).Scope.Allows(access.Admin) {
		ofPlacement := d.Warnings[len(report.Warnings(d.History)):] // the others may contain the source
		for i := range d.History {
			a := &d.History[i]
			a.Error, a.Result = redact.Text(a.Error, d.Source), redact.JSON(a.Result, d.Source)
		}
		d.Warnings = append(report.Warnings(d.History), ofPlacement...)
		d.Task = visibleTask(r.Context(), d.Task)
	}
	found, err := s.addresses(r).Find(r.Context(), s.opts.Reads, d.Task)
	return okResponse(struct {
		report.TaskDetails
		Playback *playback.Video `json:"playback,omitempty"`
	}{d, found[d.ID]}, err)
}
