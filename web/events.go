package web

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/store"
)

// listEvents reads events from a place on; a client that wants a stream of them
// gets one.
func (s *Server) listEvents(w http.ResponseWriter, r *http.Request) {
	if s.o.Subscribe != nil && strings.Contains(r.Header.Get("Accept"), eventStream) {
		s.streamEvents(w, r)
		return
	}
	a, err := s.eventPage(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	a.write(w)
}

func (s *Server) eventPage(r *http.Request) (answer, error) {
	p := query(r, "after", "limit", "task_id")
	q := store.EventQuery{After: p.place("after"), Limit: p.limit(), Task: p.id("task_id")}
	if p.err != nil {
		return answer{}, p.err
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerIn)
	defer cancel()
	events, err := s.o.Store.Events(ctx, q)
	if err != nil {
		return answer{}, err
	}
	body := struct {
		Events []store.Event `json:"events"`
		After  int64         `json:"after"` // of the next page, now or later
	}{append([]store.Event{}, events...), q.After}
	if len(events) > 0 {
		body.After = events[len(events)-1].ID
	}
	return ok(body)
}

// eventTypes reads a choice of types, separated by commas; none is all.
func eventTypes(text string) (map[store.EventType]bool, error) {
	if text == "" {
		return nil, nil
	}
	chosen := make(map[store.EventType]bool)
	for name := range strings.SplitSeq(text, ",") {
		if !slices.Contains(store.EventTypes(), store.EventType(name)) {
			return nil, refuse(kindRequest, "there are no events of type %q", name)
		}
		chosen[store.EventType(name)] = true
	}
	return chosen, nil
}

// startOf is where a client wants a stream to go on, and whether it says so: in
// the header by which a browser comes back, or else in the query.
func startOf(r *http.Request, p *parameters) (after int64, given bool) {
	if header := r.Header.Get("Last-Event-ID"); header != "" {
		after, given, ok := parsePlace(header)
		if !ok {
			p.err = refuse(kindRequest, "the header Last-Event-ID is not the id of an event")
		}
		return after, given
	}
	return p.place("after"), p.text("after") != ""
}

// ended reports whether nothing more will happen to a task by itself.
func ended(t store.Task) bool {
	return t.Status == store.StatusCompleted || t.Status == store.StatusDead || t.Status == store.StatusCancelled
}
