package web

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/cuelight/cuelight/store"
)

func (s *Server) listKeys(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	keys, err := s.opts.Store.Keys(r.Context())
	if err != nil {
		return jsonResponse{}, err
	}
	return okResponse(map[string]any{"keys": append([]store.Key{}, keys...)})
}

func (s *Server) createKey(w http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	var in struct {
		Name  string `json:"name"`
		Scope string `json:"scope"`
	}
	if err := decode(w, r, maxBody, false, &in); err != nil {
		return jsonResponse{}, err
	}
	var body struct {
		store.Key
		Text string `json:"key"`
	}
	err := s.opts.Store.WithAudit(r.Context(), func(st *store.Store) (e store.AuditEntry, err error) {
		body.Key, body.Text, err = st.CreateKey(r.Context(), in.Name, in.Scope)
		return newAuditEntry(r, "key_create", body.Prefix, map[string]any{"name": in.Name, "scope": in.Scope}), err
	})
	if err != nil {
		return jsonResponse{}, err
	}
	return jsonResponse{status: http.StatusCreated, body: body}, nil
}

func (s *Server) revokeKey(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	id, err := pathID(r)
	if err != nil {
		return jsonResponse{}, err
	}
	var k store.Key
	err = s.opts.Store.WithAudit(r.Context(), func(in *store.Store) (e store.AuditEntry, err error) {
		k, err = in.RevokeKey(r.Context(), id)
		return newAuditEntry(r, "key_revoke", k.Prefix, map[string]any{"name": strings.ToValidUTF8(k.Name, "")}), err
	})
	if err != nil {
		return jsonResponse{}, err
	}
	return okResponse(k)
}

func (s *Server) listAudit(_ http.ResponseWriter, r *http.Request) (jsonResponse, error) {
	p := parsedQuery(r)
	after, limit := p.eventID("after"), p.limit()
	if p.err != nil {
		return jsonResponse{}, p.err
	}
	entries, err := s.opts.Store.Audits(r.Context(), after, limit+1)
	if err != nil {
		return jsonResponse{}, err
	}
	body := struct {
		Entries []store.AuditEntry `json:"entries"`
		Next    string             `json:"next,omitempty"`
	}{Entries: append([]store.AuditEntry{}, entries...)}
	if len(entries) > limit {
		body.Entries = entries[:limit]
		body.Next = s.nextPageURL(apiPath+"/audit", p, fmt.Sprint(entries[limit-1].ID))
	}
	return jsonResponse{status: http.StatusOK, body: body, nextPage: body.Next}, nil
}
