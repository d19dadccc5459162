package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/eventfeed"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/store"
)

// newEventFeed is a feed of the pipeline's events. The wakes are those of a listener
// on eventChannels.
func newEventFeed(st *store.Store, wakes *notify.Wakes, trouble func(error)) *eventfeed.Feed {
	return eventfeed.New(eventfeed.Options{Reader: st, Wake: wakes, OnError: trouble})
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
func (c *cli) watchEvents(ctx context.Context, db *dbconn.Database, after int64, args []string) error {
	follow := func(ctx context.Context, f *eventfeed.Feed) error { return c.printEvents(ctx, f, after) }
	if len(args) > 0 {
		id, err := db.Store.Find(ctx, strings.ToLower(args[0]))
		if err != nil {
			return err
		}
		w := &taskEvents{c: c, st: db.Store, id: id, after: max(after, 0)}
		if over, err := w.past(ctx); over || err != nil {
			return err
		}
		follow = w.follow
	} else if after == eventfeed.Now {
		var err error
		if after, err = db.Store.EventWatermark(ctx); err != nil {
			return err
		}
	}
	listener := notify.New(db.Pool, notify.Options{Channels: eventChannels(db.Store.Graph()), ConnConfig: db.NotifyConfig})
	f := newEventFeed(db.Store, listener.Wakes, nil)
	g, running := errgroup.WithContext(ctx)
	inner, stop := context.WithCancel(running)
	g.Go(func() error { return listener.Run(inner) })
	g.Go(func() error { return f.Run(inner) })
	g.Go(func() error {
		defer stop()
		return follow(inner, f)
	})
	err := g.Wait()
	if _, ok := received(ctx); ok && len(args) == 0 {
		return nil // there is no other way to end it
	}
	return err
}

func eventsGone(err error) error {
	if !errors.Is(err, store.ErrEventsGone) {
		return err
	}
	return &usererr.Error{Kind: usererr.NotFound, Text: "the events after the one given are deleted, or it was never there", Hint: "--after 0 begins with the oldest that are kept"}
}

// printEvents prints what happens after an event.
func (c *cli) printEvents(ctx context.Context, f *eventfeed.Feed, after int64) error {
	return insist(ctx, func() error {
		sub := f.Subscribe(after, nil)
		defer sub.Close()
		for {
			events, err := sub.Next(ctx)
			if err != nil {
				return err
			}
			for _, e := range events {
				if err := c.printEvent(e); err != nil {
					return err
				}
				after = e.ID
			}
		}
	})
}

// insist reads on where the output is taken more slowly than things happen: read
// begins where it was.
func insist(ctx context.Context, read func() error) error {
	for {
		err := read()
		switch {
		case errors.Is(err, eventfeed.ErrClosed):
			return ctx.Err()
		case !errors.Is(err, eventfeed.ErrSlow):
			return eventsGone(err)
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
		words = append(words, usererr.Printable(more))
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
	case store.RetryScheduled:
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
