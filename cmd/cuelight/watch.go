package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/eventfeed"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// watchInterval is how often watch reads. Workers report progress about once a second.
const watchInterval = 500 * time.Millisecond

// maxIdleReads is for how many reads a task is followed that no worker works on. Between
// two stages that is so for a moment.
const maxIdleReads = 10

func (c *cli) watchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch [ID]",
		Short: "Watch running tasks, one task, or all events",
		Long: `Watch shows what the workers on all hosts are doing, until Ctrl-C. With an id it
shows that task alone, and exits when the task ends: with 0 if it was completed, and
1 if not.

With --json every line is a running stage whose progress has changed; with an id the
last line is a report on the task, as cuelight run writes it.

With --events it prints every event as it happens. --after begins after an event that
was seen before; 0 begins with the oldest that is kept. Each event is printed exactly
once.`,
		Args: cobra.MaximumNArgs(1),
	}
	events := cmd.Flags().Bool("events", false, "print every event as it happens")
	after := cmd.Flags().Int64("after", 0,
		"with --events, begin after the event with this id (default: now, or with an ID the task's submission)")
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case cmd.Flags().Changed("after") && !*events:
			return usererr.Usagef("--after requires --events")
		case cmd.Flags().Changed("after") && *after < 0:
			return usererr.Usagef("--after %d: it must be the id of an event, or 0", *after)
		case !cmd.Flags().Changed("after"):
			*after = eventfeed.Now
		}
		return c.withTasks(cmd.Context(), func(db *dbconn.Database) error {
			if *events {
				return c.watchEvents(cmd.Context(), db, *after, args)
			}
			return c.watch(cmd.Context(), db, args)
		})
	}
	return cmd
}

// watcher shows the work of all processes.
type watcher struct {
	c         *cli
	db        *dbconn.Database
	only      store.ID // or zero
	progress  *progress
	tasks     map[store.ID]store.Task // those being worked on, as last read
	idleReads map[store.ID]int        // for how many reads no worker has worked on a task
	running   map[daemon.StageKey]store.Running
}

func (c *cli) watch(ctx context.Context, db *dbconn.Database, args []string) error {
	w := &watcher{
		c: c, db: db, tasks: make(map[store.ID]store.Task), idleReads: make(map[store.ID]int),
		running: make(map[daemon.StageKey]store.Running),
	}
	w.progress = newProgress(c.err, c.json, w.label)
	if len(args) > 0 {
		id, err := db.Store.Find(ctx, strings.ToLower(args[0]))
		if err != nil {
			return err
		}
		w.only = id
	}
	defer w.progress.clear()
	for {
		finished, err := w.read(ctx)
		if err == nil && finished {
			return w.reportEnd(ctx)
		}
		if err == nil {
			err = ctxsleep.For(ctx, watchInterval)
		}
		if _, ok := daemon.Received(ctx); ok && w.only.IsZero() {
			return nil // only a signal ends it
		}
		if err != nil {
			return err
		}
	}
}

func (w *watcher) label(id store.ID) string {
	if t, ok := w.tasks[id]; ok {
		if title := t.Title(); title != "" {
			return usererr.Printable(title)
		}
		return labelOf(t.Source)
	}
	return shortID(id)
}

// read shows what has changed since the last time, and reports whether the only task has
// finished.
func (w *watcher) read(ctx context.Context) (bool, error) {
	workers, err := w.db.Store.Workers(ctx, false)
	if err != nil {
		return false, err
	}
	current := make(map[daemon.StageKey]store.Running)
	follow := make(map[store.ID]bool)
	for id := range w.tasks {
		follow[id] = true
	}
	if !w.only.IsZero() {
		follow[w.only] = true
	}
	for _, worker := range workers {
		for _, r := range worker.Running {
			if w.only.IsZero() || r.Task == w.only {
				current[daemon.StageKey{Task: r.Task, Stage: r.Stage}] = r
				follow[r.Task] = true
			}
		}
	}
	finished := false
	for id := range follow {
		done, err := w.followTask(ctx, id, current)
		if err != nil {
			return false, err
		}
		finished = finished || done && id == w.only
	}
	return finished, w.show(current)
}

// followTask prints how a task's stages have changed, and forgets a task that no worker
// has worked on for a while.
func (w *watcher) followTask(
	ctx context.Context, id store.ID, current map[daemon.StageKey]store.Running,
) (finished bool, err error) {
	t, err := w.db.Store.Get(ctx, id)
	if errors.Is(err, store.ErrNotFound) && id != w.only {
		w.forget(id)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	before, known := w.tasks[id]
	w.tasks[id] = t
	active := id == w.only
	for i, s := range t.Stages {
		key := daemon.StageKey{Task: id, Stage: s.Name}
		if r, runs := current[key]; runs && r.Token != s.Token {
			delete(current, key) // the worker's report is up to a second old
		}
		active = active || s.Status == store.StatusInProgress
		if known && before.Stages[i].Status != s.Status {
			w.printChange(id, s)
		}
	}
	if w.idleReads[id]++; active {
		w.idleReads[id] = 0
	}
	if w.idleReads[id] > maxIdleReads {
		w.forget(id)
	}
	return t.IsFinished(w.db.Store.Graph()), nil
}

func (w *watcher) forget(id store.ID) {
	delete(w.tasks, id)
	delete(w.idleReads, id)
}

func (w *watcher) printChange(id store.ID, s store.StageState) {
	switch s.Status {
	case store.StatusInProgress:
		w.progress.event(stages.Event{Kind: stages.StageStarted, Task: id, Stage: s.Name, Attempt: s.Attempts})
	case store.StatusPending:
	default:
		if !w.c.json {
			status := w.c.err.Paint(statusColours[string(s.Status)], string(s.Status))
			w.progress.printf("%s: %s %s", w.label(id), s.Name, status)
		}
	}
}

// show shows the running stages.
func (w *watcher) show(current map[daemon.StageKey]store.Running) error {
	if w.c.json {
		for key, r := range current {
			if w.running[key] != r {
				if err := w.c.writeJSON(r); err != nil {
					return err
				}
			}
		}
		w.running = current
		return nil
	}
	var all []daemon.Activity
	for key, r := range current {
		a := daemon.Activity{StageKey: key, Attempt: r.Attempt, Progress: stages.Progress{
			Percent: r.Percent, Speed: r.Speed, ETA: time.Duration(r.ETA * float64(time.Second)), Note: r.Note,
		}}
		for _, s := range w.tasks[r.Task].Stages {
			if s.Name == r.Stage && s.LockedAt != nil {
				a.Since = *s.LockedAt
			}
		}
		all = append(all, a)
	}
	w.progress.showRunning(all)
	return nil
}

// reportEnd reports on the only task.
func (w *watcher) reportEnd(ctx context.Context) error {
	w.progress.clear()
	published, err := w.c.PublishPath()
	if err != nil {
		return err
	}
	t, err := w.db.Store.Get(ctx, w.only)
	if err != nil {
		return err
	}
	r, err := reportOn(ctx, w.db.Store, t, t.Source, published)
	if err == nil {
		err = w.c.printReport(r)
	}
	if err == nil && r.Published == nil {
		err = exitStatus(exitFailure)
	}
	return err
}
