package web

import (
	"fmt"
	"net/http"

	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/report"
)

func (s *Server) listKeys(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	keys, err := report.New(s.opts.Reads.DB(), s.opts.Reads.Graph()).Keys(r.Context())
	return listResponse("keys", keys, err)
}

func (s *Server) createKey(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	var in struct {
		Name   string   `json:"name"`
		Scope  string   `json:"scope"`
		Labels []string `json:"labels"`
	}
	if err := decode(w, r, maxBody, false, &in); err != nil {
		return jsonResponse{}, err
	}
	var body struct {
		access.Key
		Text string `json:"key"`
	}
	var err error
	if body.Key, body.Text, err = s.actions().CreateKey(r.Context(), in.Name, in.Scope, in.Labels...); err != nil {
		return jsonResponse{}, err
	}
	return jsonResponse{status: http.StatusCreated, body: body}, nil
}

func (s *Server) revokeKey(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	return okResponse(s.actions().RevokeKey(r.Context(), pathID(r)))
}

func (s *Server) disableKey(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	return okResponse(s.actions().DisableKey(r.Context(), pathID(r)))
}

func (s *Server) enableKey(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	return okResponse(s.actions().EnableKey(r.Context(), pathID(r)))
}

func (s *Server) listAudit(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	p := parsedQuery(r)
	after, limit := p.eventID("after"), p.limit()
	if p.err != nil {
		return jsonResponse{}, p.err
	}
	entries, err := operators.Audits(r.Context(), s.opts.Reads.DB(), after, limit+1)
	if err != nil {
		return jsonResponse{}, err
	}
	entries, next := cutPage(entries, limit, func(e operators.AuditEntry) string { return fmt.Sprint(e.ID) })
	return pageResponse(r, "entries", entries, next)
}
