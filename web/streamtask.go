package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/cuelight/cuelight/store"
)

// streamTask follows one task to its end. It begins with the task as it is; for a
// client that has been there before, with what happened since.
func (s *Server) streamTask(w http.ResponseWriter, r *http.Request) {
	p := query(r, "after")
	after, given := startOf(r, &p)
	id, err := pathID(r)
	if p.err != nil || err != nil {
		s.fail(w, r, errors.Join(p.err, err))
		return
	}
	// The place is read before the task: what happens in between is told twice,
	// by the state and by an event, rather than not at all.
	here, err := s.o.Store.LastEvent(r.Context())
	var t store.Task
	if err == nil {
		t, err = s.o.Store.Get(r.Context(), id)
	}
	var rest []store.Event
	sure := false
	if err == nil && given && ended(t) {
		rest, sure, err = s.rest(r.Context(), id, after)
	}
	switch {
	case err != nil && !errors.Is(err, store.ErrEventsGone):
		s.fail(w, r, err)
		return
	case err == nil && sure && len(rest) == 0:
		w.WriteHeader(http.StatusNoContent) // do not come back
		return
	}
	s.finishStream(w, r, s.withStream(w, r, func(ctx context.Context, st *stream) error {
		switch {
		case err != nil:
			return st.resync(ctx)
		case sure:
			return st.sendEvents(rest)
		case given:
			return st.followTask(ctx, id, after)
		}
		return st.beginTask(ctx, t, here)
	}))
}

// restIn is how long events that are there, but cannot be shown yet, are waited
// for before anything is sent.
const restIn = 2 * time.Second

// rest are the events of a task that has ended, after one; and whether those are
// all, also of transactions that others have held up.
func (s *Server) rest(ctx context.Context, id store.ID, after int64) (events []store.Event, sure bool, err error) {
	newest, err := s.o.Store.NewestEvent(ctx)
	if err != nil {
		return nil, false, err
	}
	enough := time.NewTimer(restIn)
	defer enough.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		here, err := s.o.Store.LastEvent(ctx)
		if err != nil {
			return nil, false, err
		}
		if here >= newest {
			events, err := s.missed(ctx, id, after)
			return events, true, err
		}
		select {
		case <-tick.C:
		case <-enough.C:
			return nil, false, nil
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

// missed are all events of a task after one that can be shown.
func (s *Server) missed(ctx context.Context, id store.ID, after int64) ([]store.Event, error) {
	var all []store.Event
	for {
		page, err := s.o.Store.Events(ctx, store.EventQuery{After: after, Task: id, Limit: pageMost})
		all = append(all, page...)
		if err != nil || len(page) < pageMost {
			return all, err
		}
		after = page[len(page)-1].ID
	}
}

// beginTask shows a task, and follows it from there.
func (st *stream) beginTask(ctx context.Context, t store.Task, here int64) error {
	if err := st.put(here, "task", visible(ctx, t)); err != nil {
		return err
	}
	if ended(t) {
		return st.sendEnd(ctx, t, here)
	}
	return st.followTask(ctx, t.ID, here)
}

// sendEnd sends the event by which a task ended before the stream began. It is made
// of how the task is: the one that was told then may be deleted.
func (st *stream) sendEnd(ctx context.Context, t store.Task, here int64) error {
	e := store.Event{ID: here, At: t.CreatedAt, Type: endOf(t), Task: t.ID}
	history, err := st.s.o.Store.History(ctx, t.ID)
	if err != nil {
		return err
	}
	for _, a := range history {
		if a.FinishedAt.After(e.At) {
			e.At = a.FinishedAt
		}
	}
	if err := st.put(e.ID, string(e.Type), e); err != nil { // it is no event of the outbox
		return err
	}
	return st.send()
}

// endOf is the event by which a task came to its end.
func endOf(t store.Task) store.EventType {
	switch t.Status {
	case store.StatusDead:
		return store.DeadLetter
	case store.StatusCancelled:
		return store.TaskCancelled
	}
	return store.TaskDone
}

// followTask sends what happens to a task until it has come to an end.
func (st *stream) followTask(ctx context.Context, id store.ID, after int64) error {
	sub := st.s.o.Subscribe(after, func(e store.Event) bool { return e.Task == id })
	defer sub.Close()
	if err := st.send(); err != nil { // the headers, so that the client knows
		return err
	}
	over := false
	return st.follow(ctx, sub, func(ctx context.Context, events []store.Event) (bool, error) {
		for _, e := range events {
			over = ends(e, over)
		}
		if !over {
			return false, nil
		}
		// It may have been taken up again since, and ended again: then that is told,
		// too, before this is the end.
		t, err := st.s.o.Store.Get(ctx, id)
		if errors.Is(err, store.ErrNotFound) {
			return true, nil
		}
		if err != nil || !ended(t) {
			return false, err
		}
		more, err := st.s.missed(ctx, id, events[len(events)-1].ID)
		return len(more) == 0, err
	})
}

// ends reports whether a task is over after an event. What happens to other stages
// beside one that died does not change that; that somebody has it done again does.
func ends(e store.Event, over bool) bool {
	if e.Type == store.StageRetry {
		var asked struct{ Stages []string }
		return over && (json.Unmarshal(e.Data, &asked) != nil || len(asked.Stages) == 0)
	}
	return over || e.Type.Terminal() || e.Type == store.TaskOverridden || e.Type == store.TaskDeleted
}
