package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	eventfeed "github.com/cuelight/cuelight/internal/feed"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/store"
)

// newEventFeed is a feed of the pipeline's events. The wakes are those of a listener
// on eventChannels.
func newEventFeed(st *store.Store, wakes *notify.Wakes, trouble func(error)) *eventfeed.Feed {
	return eventfeed.New(eventfeed.Options{Source: st, Wakes: wakes, Trouble: trouble})
}

// eventChannels are all channels on which something is told that leaves an event.
func eventChannels(g store.Graph) []string {
	channels := []string{g.RecallChannel(), g.EventsChannel()}
	for _, stage := range g.Stages() {
		channels = append(channels, g.Channel(stage))
	}
	return channels
}

// watchEvents prints events as they happen, from after one; of one task until it
// has come to its end.
func (c *cli) watchEvents(ctx context.Context, db *database, after int64, args []string) error {
	var only store.ID
	if len(args) > 0 {
		var err error
		if only, err = db.store.Find(ctx, strings.ToLower(args[0])); err != nil {
			return err
		}
	}
	if !only.IsZero() {
		var err error
		var over bool
		if after, over, err = c.printPast(ctx, db.store, max(after, 0), only); over || err != nil {
			return err
		}
	}
	if after == eventfeed.Now {
		var err error
		if after, err = db.store.LastEvent(ctx); err != nil {
			return err
		}
	}
	listener := notify.New(db.pool, notify.Options{Channels: eventChannels(db.store.Graph()), ConnConfig: db.notify})
	f := newEventFeed(db.store, listener.Wakes, nil)
	g, running := errgroup.WithContext(ctx)
	inner, stop := context.WithCancel(running)
	g.Go(func() error { return listener.Run(inner) })
	g.Go(func() error { return f.Run(inner) })
	g.Go(func() error {
		defer stop()
		return c.printEvents(inner, f, after, only)
	})
	err := g.Wait()
	if _, ok := received(ctx); ok && only.IsZero() {
		return nil // there is no other way to end it
	}
	return err
}

// printPast prints what has happened to a task, and returns after which event to go
// on, or that it is over.
func (c *cli) printPast(ctx context.Context, st *store.Store, after int64, only store.ID) (next int64, over bool, err error) {
	if next, err = st.LastEvent(ctx); err != nil {
		return 0, false, err
	}
	var last store.Event
	for {
		events, err := st.Events(ctx, store.EventQuery{After: after, Task: only})
		if err != nil {
			return 0, false, eventsGone(err)
		}
		for _, e := range events {
			if e.ID > next {
				break
			}
			if err := c.printEvent(e); err != nil {
				return 0, false, err
			}
			after, last = e.ID, e
		}
		if len(events) == 0 || events[len(events)-1].ID > next {
			break
		}
	}
	// A task that came to an end may have been begun again.
	over, err = ended(last)
	return next, over, err
}

// ended reports whether an event is the end of its task, and how that is to be told.
func ended(e store.Event) (bool, error) {
	switch {
	case !e.Type.Terminal():
		return false, nil
	case e.Type == store.TaskDone:
		return true, nil
	}
	return true, quiet(exitFailure)
}

func eventsGone(err error) error {
	if !errors.Is(err, store.ErrEventsGone) {
		return err
	}
	return &problem{code: exitNotFound, text: "the events after the one given are deleted", hint: "--after 0 begins with the oldest that are kept"}
}

// printEvents prints what happens after an event, until the one task has come to its
// end, if only that is to be told of. Where the output is taken more slowly than
// things happen, it goes on from where it was.
func (c *cli) printEvents(ctx context.Context, f *eventfeed.Feed, after int64, only store.ID) error {
	for {
		err := c.printSome(ctx, f, &after, only)
		if !errors.Is(err, eventfeed.ErrSlow) {
			return err
		}
	}
}

// printSome moves after on.
func (c *cli) printSome(ctx context.Context, f *eventfeed.Feed, after *int64, only store.ID) error {
	sub := f.Subscribe(*after, func(e store.Event) bool { return only.IsZero() || e.Task == only })
	defer sub.Close()
	for {
		events, err := sub.Next(ctx)
		switch {
		case errors.Is(err, eventfeed.ErrClosed):
			return ctx.Err()
		case err != nil:
			return eventsGone(err)
		}
		for _, e := range events {
			if err := c.printEvent(e); err != nil {
				return err
			}
			*after = e.ID
			if only.IsZero() {
				continue
			}
			if over, err := ended(e); over {
				return err
			}
		}
	}
}

func (c *cli) printEvent(e store.Event) error {
	if c.json {
		return c.writeJSON(e)
	}
	words := []string{e.At.Local().Format(time.TimeOnly), fmt.Sprintf("%-15s", e.Type)}
	if !e.Task.IsZero() {
		words = append(words, shortID(e.Task))
	}
	if e.Stage != "" {
		words = append(words, e.Stage)
	}
	if e.Attempt > 1 {
		words = append(words, fmt.Sprintf("attempt %d", e.Attempt))
	}
	if more := eventWords(e); more != "" {
		words = append(words, printable(more))
	}
	_, err := fmt.Fprintln(c.out, strings.Join(words, "  "))
	return err
}

// eventWords is what an event says beside what it is.
func eventWords(e store.Event) string {
	var d struct {
		store.Running
		Error string    `json:"error"`
		RunAt time.Time `json:"run_at"`
		By    store.ID  `json:"overridden_by"`
		Host  string    `json:"host"`
		PID   int       `json:"pid"`
	}
	if len(e.Data) == 0 || json.Unmarshal(e.Data, &d) != nil {
		return ""
	}
	switch e.Type {
	case store.StageProgress:
		return runningRow(d.Running, "").words()
	case store.StageRetry:
		if wait := d.RunAt.Sub(e.At); wait > time.Second {
			return "in " + span(wait)
		}
		return ""
	case store.TaskOverridden:
		return "by " + shortID(d.By)
	case store.WorkerStarted, store.WorkerStopped, store.WorkerLost:
		return fmt.Sprintf("process %d on %s", d.PID, d.Host)
	}
	line, _, _ := strings.Cut(d.Error, "\n")
	return line
}
