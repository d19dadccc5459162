package web

import (
	"context"
	"net/http"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/store"
)

// deleteTask deletes a task, which can be restored unless it is purged at once.
func (s *Server) deleteTask(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	p := parsedQuery(r)
	o := store.DeleteOptions{KeepPublished: p.flag("keep_published"), Purge: p.flag("purge")}
	if p.err != nil {
		return jsonResponse{}, p.err
	}
	d, err := s.actions().Delete(r.Context(), pathID(r), o)
	return okResponse(visibleDeleted(r.Context(), d), err)
}

func (s *Server) undeleteTask(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	return s.changeTask(r, func(id store.ID) error { return s.actions().Undelete(r.Context(), id) })
}

func (s *Server) listDeleted(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	p := parsedQuery(r)
	q, limit := store.DeletedQuery{UserID: p.text("user_id"), After: p.id("after")}, p.limit()
	if p.err != nil {
		return jsonResponse{}, p.err
	}
	q.Limit = limit + 1
	tasks, err := s.opts.Reads.ListDeleted(r.Context(), q)
	if err != nil {
		return jsonResponse{}, err
	}
	tasks, next := cutPage(tasks, limit, func(d store.DeletedTask) string { return d.ID.String() })
	for i, d := range tasks {
		tasks[i] = visibleDeleted(r.Context(), d)
	}
	return pageResponse(r, "tasks", tasks, next)
}

// visibleDeleted returns a deleted task as the principal may see it.
func visibleDeleted(ctx context.Context, d store.DeletedTask) store.DeletedTask {
	if !access.PrincipalOf(ctx).Scope.Allows(access.Admin) {
		d.Source = redact.Source(d.Source)
	}
	return d
}
