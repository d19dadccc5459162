package web

import (
	"cmp"
	"context"
	"net/http"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/store"
)

func (s *Server) listPauses(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	return s.pausesResponse(r.Context())
}

func (s *Server) pausesResponse(ctx context.Context) (jsonResponse, error) {
	pauses, err := s.opts.Store.Pauses(ctx)
	if err != nil {
		return jsonResponse{}, err
	}
	return okResponse(map[string]any{"pauses": append([]store.Pause{}, pauses...)})
}

func (s *Server) pause(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	var in struct {
		Stage string `json:"stage"`
		Host  string `json:"host"`
	}
	if err := decode(w, r, maxBody, false, &in); err != nil {
		return jsonResponse{}, err
	}
	if err := checkText("host", in.Host); err != nil {
		return jsonResponse{}, err
	}
	p := store.Pause{Stage: in.Stage, Host: in.Host, By: access.From(r.Context()).Name}
	err := s.opts.Store.WithAudit(r.Context(), func(in *store.Store) (store.AuditEntry, error) {
		return newAuditEntry(r, "pause", pauseScope(p), nil), in.Pause(r.Context(), p)
	})
	if err != nil {
		return jsonResponse{}, err
	}
	return s.pausesResponse(r.Context())
}

func (s *Server) resume(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	q := parsedQuery(r)
	p := store.Pause{Stage: q.text("stage"), Host: q.text("host")}
	err := s.opts.Store.WithAudit(r.Context(), func(in *store.Store) (store.AuditEntry, error) {
		existed, err := in.Resume(r.Context(), p)
		if err == nil && !existed {
			err = newProblem(kindNotFound, "no pause of %s exists", pauseScope(p))
		}
		return newAuditEntry(r, "resume", pauseScope(p), nil), err
	})
	if err != nil {
		return jsonResponse{}, err
	}
	return s.pausesResponse(r.Context())
}

// pauseScope says what a pause applies to, for the audit log.
func pauseScope(p store.Pause) string {
	return cmp.Or(p.Stage, "all stages") + " on " + cmp.Or(p.Host, "all hosts")
}
