package web

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/cuelight/cuelight/store"
)

// remainingTimeout is how long a new stream waits for events that exist but are not visible yet.
const remainingTimeout = 2 * time.Second

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
	start, err := s.readTaskStart(r.Context(), id, after, hasAfter)
	switch {
	case err != nil:
		s.writeError(w, r, err)
		return
	case start.isFinal && len(start.remaining) == 0:
		w.WriteHeader(http.StatusNoContent) // tells a browser not to reconnect
		return
	}
	s.serveStream(w, r, func(st *stream) error {
		switch {
		case start.pruned:
			return st.resync()
		case start.isFinal:
			return st.sendEvents(start.remaining)
		case hasAfter:
			return st.followTask(id, after, isTerminal(start.task))
		}
		return st.sendTaskAndFollow(start.task, start.watermark)
	})
}

// taskStreamStart is the state in which a stream of a task starts.
type taskStreamStart struct {
	task      store.Task
	watermark int64
	pruned    bool          // the database cannot tell which events the client missed
	isFinal   bool          // the task has ended, and remaining has all events that the client missed
	remaining []store.Event // if isFinal
}

func (s *Server) readTaskStart(
	ctx context.Context, id store.ID, after int64, hasAfter bool,
) (start taskStreamStart, err error) {
	ctx, cancel := context.WithTimeout(ctx, handlerTimeout)
	defer cancel()
	// The watermark is read before the task: a change in between is then sent twice, in the state and as an event,
	// rather than missed.
	if start.watermark, err = s.opts.Store.EventWatermark(ctx); err != nil {
		return start, err
	}
	if start.task, err = s.opts.Store.Get(ctx, id); err != nil || !hasAfter {
		return start, err
	}
	if start.pruned, err = s.arePruned(ctx, after); err != nil || start.pruned {
		return start, err
	}
	if isTerminal(start.task) && start.task.IsFinished(s.opts.Store.Graph()) {
		start.remaining, start.isFinal, err = s.remainingEvents(ctx, id, after)
	}
	if errors.Is(err, store.ErrEventsGone) {
		start.pruned, start.isFinal, err = true, false, nil
	}
	return start, err
}

// remainingEvents returns the events of a finished task after an id. isAll reports whether no transaction that is
// still open can add to them.
func (s *Server) remainingEvents(
	ctx context.Context, id store.ID, after int64,
) (events []store.Event, isAll bool, err error) {
	last, err := s.opts.Store.LastAllocatedEvent(ctx)
	if err != nil {
		return nil, false, err
	}
	timeout := time.NewTimer(remainingTimeout)
	defer timeout.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		watermark, err := s.opts.Store.EventWatermark(ctx)
		if err != nil {
			return nil, false, err
		}
		if watermark >= last {
			events, err := s.taskEventsAfter(ctx, id, after)
			return events, true, err
		}
		select {
		case <-tick.C:
		case <-timeout.C:
			return nil, false, nil
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
	}
}

func (s *Server) taskEventsAfter(ctx context.Context, id store.ID, after int64) (all []store.Event, err error) {
	for {
		page, err := s.opts.Store.Events(ctx, store.EventQuery{After: after, Task: id, Limit: maxPageSize})
		all = append(all, page...)
		if err != nil || len(page) < maxPageSize {
			return all, err
		}
		after = page[len(page)-1].ID
	}
}

func (st *stream) sendTaskAndFollow(t store.Task, watermark int64) error {
	if err := st.Add(watermark, "task", visibleTask(st.ctx, t)); err != nil {
		return err
	}
	if isTerminal(t) {
		return st.sendEnd(t, watermark)
	}
	return st.followTask(t.ID, watermark, false)
}

// sendEnd sends the event that ended a task before the stream started. It is derived from the state of the task,
// because the recorded event may be deleted.
func (st *stream) sendEnd(t store.Task, watermark int64) error {
	e := store.Event{ID: watermark, At: t.CreatedAt, Type: finalEventType(t), Task: t.ID}
	history, err := st.server.opts.Store.History(st.ctx, t.ID)
	if err != nil {
		return err
	}
	for _, a := range history {
		if a.FinishedAt.After(e.At) {
			e.At = a.FinishedAt
		}
	}
	if err := st.Add(e.ID, string(e.Type), e); err != nil { // not cached: another event may have this id
		return err
	}
	return st.Send()
}

// followTask sends the events of a task until it ends. hasEnded says that the task had ended before the stream
// started but may change once more.
func (st *stream) followTask(id store.ID, after int64, hasEnded bool) error {
	if err := st.Send(); err != nil { // the headers, so that the client knows that the stream is open
		return err
	}
	st.subscribe(after, func(e store.Event) bool { return e.Task == id })
	f := taskFollower{stream: st, id: id, mayEndAgain: hasEnded}
	if hasEnded {
		if done, err := f.checkEnd(after); done || err != nil {
			return err
		}
	}
	st.follow(f.handleEvents)
	return nil
}

// taskFollower knows what the client of a task's stream was sent.
type taskFollower struct {
	stream *stream
	id     store.ID
	// sawEnd: the last decisive event ended the task. mayEndAgain: the task had ended and some of its stages are
	// retried, which may end without another event that ends the task.
	sawEnd, mayEndAgain bool
}

// handleEvents reports whether the events were the last ones.
func (f *taskFollower) handleEvents(events []store.Event) (bool, error) {
	onlyProgress := true
	for _, e := range events {
		onlyProgress = onlyProgress && e.Type == store.StageProgress
		f.track(e)
	}
	if onlyProgress || !f.sawEnd && !f.mayEndAgain {
		return false, nil
	}
	return f.checkEnd(events[len(events)-1].ID)
}

// track notes whether an event ends the task. Events of other stages do not change that a stage is dead; a retry by
// an operator, which names its stages, does.
func (f *taskFollower) track(e store.Event) {
	switch {
	case e.Type == store.RetryScheduled:
		var data struct{ Stages []string }
		if json.Unmarshal(e.Data, &data) == nil && len(data.Stages) > 0 {
			f.sawEnd, f.mayEndAgain = false, f.sawEnd || f.mayEndAgain
		}
	case e.Type.Terminal(), e.Type == store.TaskOverridden, e.Type == store.TaskDeleted:
		f.sawEnd = true
	}
}

// checkEnd reads the task, whose state decides whether the stream is complete: the task may have been retried since
// the last event, and may have ended again. In that case the newer events are sent first.
func (f *taskFollower) checkEnd(last int64) (bool, error) {
	st := f.stream
	t, err := st.server.opts.Store.Get(st.ctx, f.id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return f.sawEnd, nil // otherwise the event "deleted" is still to come
	case err != nil:
		return false, err
	case !isTerminal(t):
		f.mayEndAgain = false // another event will end it
		return false, nil
	case !f.sawEnd && !t.IsFinished(st.server.opts.Store.Graph()):
		return false, nil
	}
	newer, err := st.server.taskEventsAfter(st.ctx, f.id, last)
	if err != nil || len(newer) > 0 || f.sawEnd {
		return len(newer) == 0, err
	}
	return true, st.sendEnd(t, last)
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

// isTerminal reports whether a task has ended: only an operator changes it now.
func isTerminal(t store.Task) bool {
	return t.Status == store.StatusCompleted || t.Status == store.StatusDead || t.Status == store.StatusCancelled
}
