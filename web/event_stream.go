package web

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/store"
)

// streamEvents follows all events, or those of some types.
func (s *Server) streamEvents(w http.ResponseWriter, r *http.Request) {
	q, err := s.parseEventStreamQuery(r)
	if err != nil {
		s.writeError(w, r, err)
		return
	}
	s.serveStream(w, r, func(st *stream) error {
		// The first event has the start position, so that a client that reconnects before another event misses
		// none.
		if err := st.sendPosition("open", q.after); err != nil {
			return err
		}
		if q.pruned {
			return st.resync()
		}
		st.subscribe(q.after, q.keep)
		st.follow(func(events []store.Event) (bool, error) { return false, st.sendEvents(events) })
		return nil
	})
}

// eventStreamQuery says which events a client wants.
type eventStreamQuery struct {
	after  int64
	pruned bool // the database cannot tell what came after that id
	keep   func(store.Event) bool
}

func (s *Server) parseEventStreamQuery(r *http.Request) (q eventStreamQuery, err error) {
	p := parseQuery(r, "after", "types")
	after, hasAfter := streamStart(r, &p)
	q.after = after
	types, err := parseEventTypes(p.text("types"))
	if err = errors.Join(p.err, err); err != nil {
		return q, err
	}
	q.keep = func(e store.Event) bool { return types == nil || types[e.Type] }
	ctx, cancel := context.WithTimeout(r.Context(), handlerTimeout)
	defer cancel()
	if hasAfter {
		q.pruned, err = s.arePruned(ctx, q.after)
	} else {
		q.after, err = s.opts.Store.EventWatermark(ctx)
	}
	return q, err
}

// streamStart returns the event id after which a client continues, and whether it names one: in the header that a
// browser sends when it reconnects, or in the query.
func streamStart(r *http.Request, p *queryParameters) (after int64, given bool) {
	if header := r.Header.Get("Last-Event-ID"); header != "" {
		after, given, ok := parseEventID(header)
		if !ok {
			p.err = problem.New(problem.InvalidRequest, "the header Last-Event-ID must be the id of an event")
		}
		return after, given
	}
	return p.eventID("after"), p.text("after") != ""
}

// parseEventTypes reads a comma-separated list of event types. It returns nil, which means all, for an empty one.
func parseEventTypes(text string) (map[store.EventType]bool, error) {
	if text == "" {
		return nil, nil
	}
	types := make(map[store.EventType]bool)
	for name := range strings.SplitSeq(text, ",") {
		if !slices.Contains(store.EventTypes(), store.EventType(name)) {
			return nil, problem.New(problem.InvalidRequest, "unknown event type %q", name)
		}
		types[store.EventType(name)] = true
	}
	return types, nil
}

// arePruned reports whether events after an id are deleted, or the database does not know the id: it was created
// again or restored from a backup. A subscription would then wait until the ids have grown that far.
func (s *Server) arePruned(ctx context.Context, after int64) (bool, error) {
	_, err := s.opts.Store.Events(ctx, store.EventQuery{After: after, Limit: 1})
	if errors.Is(err, store.ErrEventsGone) {
		return true, nil
	}
	return false, err
}
