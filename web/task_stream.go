package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"github.com/cuelight/cuelight/internal/eventfeed"
	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/store"
)

// streamTask follows one task until it ends. A new client first gets the task as it is, a client that reconnects
// the events since then.
func (s *Server) streamTask(w http.ResponseWriter, r *http.Request) {
	p := parseQuery(r, "after")
	after, hasAfter := streamStart(r, &p)
	id, err := parsePathID(r)
	if p.err != nil || err != nil {
		s.writeError(w, r, errors.Join(p.err, err))
		return
	}
	if !hasAfter {
		after = eventfeed.Now
	}
	start, err := s.startFollowing(r.Context(), id, after)
	isPruned := errors.Is(err, store.ErrEventsGone)
	switch {
	case err != nil && !isPruned:
		s.writeError(w, r, err)
		return
	case start.ended && hasAfter && len(start.missed) == 0:
		w.WriteHeader(http.StatusNoContent) // tells a browser not to reconnect
		return
	}
	s.serveStream(w, r, func(st *stream) error {
		if isPruned {
			return st.resync()
		}
		return st.sendTask(start, hasAfter)
	})
}

// taskStreamStart is the state in which a stream of a task starts.
type taskStreamStart struct {
	follower *ops.TaskFollower
	missed   []store.Event // by the client
	ended    bool          // missed has the last events of the task
}

// errDelayed says that an open transaction hides the last events of a task.
var errDelayed = errors.New("the last events of the task are not visible yet")

// startFollowing reads a task and the events that a client missed. It returns [store.ErrEventsGone] if the database
// cannot tell which these are.
func (s *Server) startFollowing(ctx context.Context, id store.ID, after int64) (start taskStreamStart, err error) {
	ctx, cancel := context.WithTimeout(ctx, handlerTimeout)
	defer cancel()
	if after != eventfeed.Now {
		if pruned, err := s.arePruned(ctx, after); pruned || err != nil {
			return start, cmp.Or(err, store.ErrEventsGone)
		}
	}
	start.follower = &ops.TaskFollower{
		Store: s.opts.Store, Task: id, After: after,
		Handle: func(events []store.Event) error {
			start.missed = append(start.missed, events...)
			return nil
		},
		Delayed: func() error { return errDelayed },
	}
	start.ended, err = start.follower.Start(ctx)
	if errors.Is(err, errDelayed) { // a new client needs a state that is not older than the events found
		start.follower.State, err = s.opts.Store.Get(ctx, id)
	}
	if err == nil && start.follower.State.ID.IsZero() {
		err = store.ErrNotFound
	}
	return start, err
}

// sendTask sends the state of the task, or the events that the client missed, and lets the stream follow the task.
func (st *stream) sendTask(start taskStreamStart, hasAfter bool) error {
	f, sent := start.follower, start.missed
	if !hasAfter {
		sent = nil // State shows them
		found, err := st.addresses.Find(st.ctx, st.server.opts.Reads, f.State)
		if err != nil {
			return err
		}
		if err := st.Add(f.After, "task", taskBody{visibleTask(st.ctx, f.State), found[f.Task]}); err != nil {
			return err
		}
	}
	if err := st.sendEvents(sent); err != nil {
		return err
	}
	hasEnd := finishesTask(sent)
	end := func() error {
		if hasEnd || f.State.ID.IsZero() {
			return nil
		}
		return st.sendEnd(f.State, f.After)
	}
	if start.ended {
		return end()
	}
	if err := st.Send(); err != nil { // the headers, so that the client knows that the stream is open
		return err
	}
	f.Handle = func(events []store.Event) error {
		hasEnd = finishesTask(events)
		return st.sendEvents(events)
	}
	f.Delayed = st.Ping
	st.subscribe(f.After, func(e store.Event) bool { return e.Task == f.Task })
	st.follow(func(events []store.Event) (bool, error) {
		ended, err := f.HandleNew(st.ctx, events)
		if ended && err == nil {
			err = end()
		}
		return ended, err
	})
	return nil
}

// finishesTask reports whether the last of some events ends a task.
func finishesTask(events []store.Event) bool {
	if len(events) == 0 {
		return false
	}
	t := events[len(events)-1].Type
	return t.FinishesTask() || t == store.TaskOverridden || t == store.TaskDeleted
}

// sendEnd sends the event that ended a task, if another one was the last: the recorded event may be deleted, or
// another stage of a dead task was completed later. It is derived from the state of the task.
func (st *stream) sendEnd(t store.Task, last int64) error {
	e := store.Event{ID: last, At: t.CreatedAt, Type: finalEventType(t), Task: t.ID, UserContext: t.UserContext}
	history, err := st.server.opts.Store.History(st.ctx, t.ID)
	if err != nil {
		return err
	}
	for _, a := range history {
		if a.FinishedAt.After(e.At) {
			e.At = a.FinishedAt
		}
	}
	events, err := st.addresses.DescribeEvents(st.ctx, st.server.opts.Store, []store.Event{e})
	if err != nil {
		return err
	}
	if err := st.Add(e.ID, string(e.Type), events[0]); err != nil { // not cached: another event may have this id
		return err
	}
	return st.Send()
}

// finalEventType is the type of the event that ended a task.
func finalEventType(t store.Task) store.EventType {
	switch t.Status {
	case store.StatusDead:
		return store.StageDead
	case store.StatusCancelled:
		return store.TaskCancelled
	}
	return store.TaskCompleted
}
