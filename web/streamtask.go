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
	v, err := s.visit(r.Context(), id, after, given)
	switch {
	case err != nil:
		s.fail(w, r, err)
		return
	case v.sure && len(v.rest) == 0:
		w.WriteHeader(http.StatusNoContent) // do not come back
		return
	}
	s.finishStream(w, r, s.withStream(w, r, func(ctx context.Context, st *stream) error {
		switch {
		case v.lost:
			return st.resync(ctx)
		case v.sure:
			return st.sendEvents(v.rest)
		case given:
			return st.followTask(ctx, id, after, ended(v.task))
		}
		return st.beginTask(ctx, v.task, v.here)
	}))
}

// visit is how things are for a client that wants to follow a task.
type visit struct {
	task store.Task
	here int64
	lost bool          // nobody can tell what it has missed
	rest []store.Event // where sure: what is left to tell of a task that has ended
	sure bool
}

func (s *Server) visit(ctx context.Context, id store.ID, after int64, given bool) (v visit, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerIn)
	defer cancel()
	// The place is read before the task: what happens in between is told twice,
	// by the state and by an event, rather than not at all.
	if v.here, err = s.o.Store.EventWatermark(ctx); err != nil {
		return v, err
	}
	if v.task, err = s.o.Store.Get(ctx, id); err != nil || !given {
		return v, err
	}
	if v.lost, err = s.lost(ctx, after); err != nil || v.lost {
		return v, err
	}
	if ended(v.task) && v.task.IsFinished(s.o.Store.Graph()) {
		v.rest, v.sure, err = s.rest(ctx, id, after)
	}
	if errors.Is(err, store.ErrEventsGone) {
		v.lost, v.sure, err = true, false, nil
	}
	return v, err
}

// restIn is how long events that are there, but cannot be shown yet, are waited
// for before anything is sent.
const restIn = 2 * time.Second

// rest are the events of a task that has ended, after one; and whether those are
// all, also of transactions that others have held up.
func (s *Server) rest(ctx context.Context, id store.ID, after int64) (events []store.Event, sure bool, err error) {
	newest, err := s.o.Store.LastAllocatedEvent(ctx)
	if err != nil {
		return nil, false, err
	}
	enough := time.NewTimer(restIn)
	defer enough.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		here, err := s.o.Store.EventWatermark(ctx)
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
	return st.followTask(ctx, t.ID, here, false)
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
		return store.StageDead
	case store.StatusCancelled:
		return store.TaskCancelled
	}
	return store.TaskCompleted
}

// followTask sends what happens to a task until it has come to an end. Again says
// that it had one, and that more may come all the same.
func (st *stream) followTask(ctx context.Context, id store.ID, after int64, again bool) error {
	if err := st.send(); err != nil { // the headers, so that the client knows
		return err
	}
	sub := st.s.o.Subscribe(after, func(e store.Event) bool { return e.Task == id })
	defer sub.Close()
	f := following{st: st, id: id, again: again}
	if again {
		if over, err := f.over(ctx, after); over || err != nil {
			return err
		}
	}
	return st.follow(ctx, sub, f.heard)
}

// following is what the client of a task has been told.
type following struct {
	st *stream
	id store.ID
	// end: the last that counts was an end. again: one that had ended is being done
	// again in part, which may end without another event that says so.
	end, again bool
}

// heard reports whether some events were the last.
func (f *following) heard(ctx context.Context, events []store.Event) (bool, error) {
	news := false
	for _, e := range events {
		news = news || e.Type != store.StageProgress
		f.hear(e)
	}
	if !news || !f.end && !f.again {
		return false, nil
	}
	return f.over(ctx, events[len(events)-1].ID)
}

// hear takes an event. What happens to other stages beside one that died does not
// change that; that somebody has it done again does.
func (f *following) hear(e store.Event) {
	switch {
	case e.Type == store.RetryScheduled:
		var asked struct{ Stages []string }
		if json.Unmarshal(e.Data, &asked) == nil && len(asked.Stages) > 0 {
			f.end, f.again = false, f.end || f.again
		}
	case e.Type.Terminal(), e.Type == store.TaskOverridden, e.Type == store.TaskDeleted:
		f.end = true
	}
}

// over asks how the task is, which has the last word: it may have been taken up again
// since, and ended again; then that is told, too, before this is the end.
func (f *following) over(ctx context.Context, last int64) (bool, error) {
	t, err := f.st.s.o.Store.Get(ctx, f.id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return f.end, nil // if not yet told, that it was deleted is about to be
	case err != nil:
		return false, err
	case !ended(t):
		f.again = false // it will say how it ends
		return false, nil
	case !f.end && !t.IsFinished(f.st.s.o.Store.Graph()):
		return false, nil
	}
	more, err := f.st.s.missed(ctx, f.id, last)
	if err != nil || len(more) > 0 || f.end {
		return len(more) == 0, err
	}
	return true, f.st.sendEnd(ctx, t, last)
}
