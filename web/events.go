package web

import (
	"context"
	"net/http"
	"strings"

	"github.com/cuelight/cuelight/internal/playback"
	"github.com/cuelight/cuelight/store"
)

// listEvents responds with a page of events, or with a stream if the client accepts one.
func (s *Server) listEvents(w http.ResponseWriter, r *http.Request) {
	if s.opts.Subscribe != nil && strings.Contains(r.Header.Get("Accept"), eventStreamType) {
		s.streamEvents(w, r)
		return
	}
	page, err := s.eventPage(r)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	s.respond(w, r, page)
}

func (s *Server) eventPage(r *http.Request) (jsonResponse, error) {
	p := parseQuery(r, "after", "limit", "task_id")
	q := store.EventQuery{After: p.eventID("after"), Limit: p.limit(), Task: p.id("task_id")}
	if p.err != nil {
		return jsonResponse{}, p.err
	}
	ctx, cancel := context.WithTimeout(r.Context(), handlerTimeout)
	defer cancel()
	events, err := playback.Store{Store: s.opts.Store, Addresses: s.addresses(r)}.Events(ctx, q)
	body := struct {
		Events []store.Event `json:"events"`
		After  int64         `json:"after"` // for the next page
	}{append([]store.Event{}, events...), q.After}
	if len(events) > 0 {
		body.After = events[len(events)-1].ID
	}
	return okResponse(body, err)
}
