package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cuelight/cuelight/internal/eventfeed"
	"github.com/cuelight/cuelight/store"
)

// taskEvents prints what happens to one task until nothing will any more.
type taskEvents struct {
	c     *cli
	st    *store.Store
	id    store.ID
	after int64 // what happened until there is printed
}

// past prints what has happened, and reports whether that is all.
func (w *taskEvents) past(ctx context.Context) (over bool, err error) {
	here, err := w.st.EventWatermark(ctx)
	if err == nil {
		err = w.until(ctx, here)
	}
	if err != nil {
		return false, err
	}
	return w.over(ctx)
}

// until prints what happened until a place that can be read up to.
func (w *taskEvents) until(ctx context.Context, place int64) error {
	for w.after < place {
		events, err := w.st.Events(ctx, store.EventQuery{After: w.after, Task: w.id})
		if err != nil {
			return eventsGone(err)
		}
		for _, e := range events {
			if e.ID > place {
				break
			}
			if err := w.c.printEvent(e); err != nil {
				return err
			}
			w.after = e.ID
		}
		if len(events) == 0 || events[len(events)-1].ID > place {
			w.after = place
		}
	}
	return nil
}

// more prints some that happened after those, and reports whether they are the last.
func (w *taskEvents) more(ctx context.Context, events []store.Event) (over bool, err error) {
	moved := true // nothing but how far it is
	for _, e := range events {
		if err := w.c.printEvent(e); err != nil {
			return false, err
		}
		w.after = e.ID
		moved = moved && e.Type == store.StageProgress
	}
	if moved {
		return false, nil
	}
	return w.over(ctx)
}

// over reports whether nothing will happen to the task by itself any more, and how
// that is to be told. It asks the task, and not its events: a stage may go on beside
// one that died, and the event of an end need not be the last one, or be kept still.
// What can be said of it then is printed.
func (w *taskEvents) over(ctx context.Context) (bool, error) {
	t, missing := w.st.Get(ctx, w.id)
	if missing != nil && !errors.Is(missing, store.ErrNotFound) {
		return false, missing
	}
	if missing == nil && !t.IsFinished(w.st.Graph()) && t.OverriddenBy.IsZero() {
		return false, nil
	}
	if err := w.rest(ctx); err != nil {
		return false, err
	}
	switch {
	case missing != nil:
		return true, missing
	case t.Status != store.StatusCompleted:
		return true, quiet(exitFailure)
	}
	return true, nil
}

// restWithin is how long the last events may be held up before that is said.
const restWithin = 2 * time.Second

// rest prints all that has happened by now, also what cannot be read before somebody
// else's transaction ends.
func (w *taskEvents) rest(ctx context.Context) error {
	newest, err := w.st.LastAllocatedEvent(ctx)
	if err != nil {
		return err
	}
	began, told := time.Now(), false
	for {
		here, err := w.st.EventWatermark(ctx)
		if err == nil {
			err = w.until(ctx, min(here, newest))
		}
		if err != nil || here >= newest {
			return err
		}
		if !told && time.Since(began) > restWithin {
			told = true
			fmt.Fprintln(w.c.err, "cuelight: the last events are held up by a transaction that is open; see docs/events.md")
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// follow prints what happens from now on.
func (w *taskEvents) follow(ctx context.Context, f *eventfeed.Feed) error {
	return insist(ctx, func() error {
		sub := f.Subscribe(w.after, func(e store.Event) bool { return e.Task == w.id })
		defer sub.Close()
		for {
			events, err := sub.Next(ctx)
			if err != nil {
				return err
			}
			if over, err := w.more(ctx, events); over || err != nil {
				return err
			}
		}
	})
}
