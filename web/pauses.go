package web

import (
	"context"
	"errors"
	"net/http"

	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/store"
)

func (s *Server) listPauses(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	return s.pausesResponse(r.Context())
}

func (s *Server) pausesResponse(ctx context.Context) (jsonResponse, error) {
	pauses, err := s.opts.Reads.Pauses(ctx)
	return listResponse("pauses", pauses, err)
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
	p := store.Pause{Stage: in.Stage, Host: in.Host}
	if err := s.actions().Pause(r.Context(), p); err != nil {
		return jsonResponse{}, err
	}
	return s.pausesResponse(r.Context())
}

func (s *Server) resume(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	q := parsedQuery(r)
	p := store.Pause{Stage: q.text("stage"), Host: q.text("host")}
	err := s.actions().Resume(r.Context(), p)
	if errors.Is(err, store.ErrNotFound) {
		err = problem.New(problem.NotFound, "no pause of %s exists", ops.PauseScope(p))
	}
	if err != nil {
		return jsonResponse{}, err
	}
	return s.pausesResponse(r.Context())
}
