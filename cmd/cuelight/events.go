package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/eventfeed"
	"github.com/cuelight/cuelight/internal/ops"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

// watchEvents prints events as they happen, from after a position. With the id of a task
// it prints that task's, and ends with the task.
func (c *cli) watchEvents(ctx context.Context, db *dbconn.Database, after int64, args []string) error {
	follow := func(ctx context.Context, f *eventfeed.Feed) error {
		return ops.FollowEvents(ctx, f, after, c.printEvent)
	}
	if len(args) > 0 {
		id, err := db.Store.Find(ctx, strings.ToLower(args[0]))
		if err != nil {
			return err
		}
		f := ops.TaskFollower{
			Store: db.Store, Task: id, After: max(after, 0), Handle: c.printEvents, Delayed: c.delayWarning(),
		}
		follow = f.Run
	} else if after == eventfeed.Now {
		var err error
		if after, err = db.Store.EventWatermark(ctx); err != nil {
			return err
		}
	}
	err := ops.WithFeed(ctx, db.Store, db.Pool, db.NotifyConfig, follow)
	if _, ok := daemon.SignalOf(ctx); ok && len(args) == 0 {
		return nil // only a signal ends it
	}
	return eventsError(err)
}

// delayWarning returns a function that warns once.
func (c *cli) delayWarning() func() error {
	return sync.OnceValue(func() error {
		const text = "cuelight: an open transaction of another client delays the last events; see docs/events.md"
		_, err := fmt.Fprintln(c.err, text)
		return err
	})
}

func (c *cli) printEvents(events []store.Event) error {
	for _, e := range events {
		if err := c.printEvent(e); err != nil {
			return err
		}
	}
	return nil
}

// eventsError explains that events were pruned.
func eventsError(err error) error {
	if errors.Is(err, store.ErrEventsGone) {
		return &usererr.Error{
			Kind: usererr.NotFound, Text: "the events after the given id were pruned, or there never was such an event",
			Hint: "--after 0 begins with the oldest events",
		}
	}
	return err
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
		words = append(words, stageText(e.Stage, e.Part, 0))
	}
	if e.Attempt > 1 {
		words = append(words, fmt.Sprintf("attempt %d", e.Attempt))
	}
	if more := eventDetail(e); more != "" {
		words = append(words, usererr.Printable(more))
	}
	_, err := fmt.Fprintln(c.out, strings.Join(words, "  "))
	return err
}

// eventDetail returns what an event says besides its type.
func eventDetail(e store.Event) string {
	var d struct {
		store.Running
		Error string    `json:"error"`
		RunAt time.Time `json:"run_at"`
		By    store.ID  `json:"overridden_by"`
		Name  string    `json:"name"`
		Host  string    `json:"host"`
		PID   int       `json:"pid"`
		Parts int       `json:"parts"`
		Kept  int       `json:"kept"`
	}
	if len(e.Data) == 0 || json.Unmarshal(e.Data, &d) != nil {
		return ""
	}
	switch e.Type {
	case store.StageProgress:
		return progressRow(d.Running, "").String()
	case store.RetryScheduled:
		if wait := d.RunAt.Sub(e.At); wait > time.Second {
			return "in " + console.Duration(wait)
		}
		return ""
	case store.StageDivided:
		return partsText(d.Parts, d.Kept, d.Error)
	case store.TaskOverridden:
		return "by " + shortID(d.By)
	case store.WorkerStarted, store.WorkerStopped, store.WorkerLost:
		return workerText(d.Name, d.Host, d.PID)
	}
	line, _, _ := strings.Cut(d.Error, "\n")
	return line
}

// partsText says into how many parts a stage was divided, how many of them it had before, and why.
func partsText(parts, kept int, why string) string {
	text := "into " + console.Plural(parts, "part")
	if kept > 0 {
		text += fmt.Sprintf(", of which %d stay", kept)
	}
	if why != "" {
		text += ": " + usererr.FirstLine(why)
	}
	return text
}
