package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/eventfeed"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// peekEvery is how often watch looks. Progress comes about once a second.
const peekEvery = 500 * time.Millisecond

// patientLooks is for how many looks a task is followed on which nobody works.
const patientLooks = 10

func (c *cli) watchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch [ID]",
		Short: "Look on while tasks are worked on",
		Long: `Watch shows what the workers on all hosts are doing, until Ctrl-C. With an id it
shows that task alone and ends when that has: the exit code is 0 if it was
completed, and 1 if not.

With --json every line is a running stage that has moved; with an id the last
line is a report on the task, as cuelight run writes it.

With --events it prints every change as it happens: what was submitted, started,
completed, has failed, will be tried again. --after goes on after an event that was
seen; 0 is before the oldest that is kept. No event is missed and none comes twice.`,
		Args: cobra.MaximumNArgs(1),
	}
	events := cmd.Flags().Bool("events", false, "print every change as it happens")
	after := cmd.Flags().Int64("after", 0, "with --events, begin after the event with this number (default: from now on, or with an ID from its submission)")
	c.jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case cmd.Flags().Changed("after") && !*events:
			return usererr.Usagef("--after is for --events")
		case cmd.Flags().Changed("after") && *after < 0:
			return usererr.Usagef("--after %d: it is the number of an event, or 0", *after)
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

// onlooker watches other processes' work.
type onlooker struct {
	c        *cli
	db       *dbconn.Database
	only     store.ID // or zero
	progress *progress
	tasks    map[store.ID]store.Task // those being worked on, as they were
	idle     map[store.ID]int        // for how many looks nobody has
	running  map[work]store.Running
}

func (c *cli) watch(ctx context.Context, db *dbconn.Database, args []string) error {
	w := &onlooker{c: c, db: db, tasks: make(map[store.ID]store.Task), idle: make(map[store.ID]int), running: make(map[work]store.Running)}
	w.progress = newProgress(c.err, c.json, w.label)
	if len(args) > 0 {
		id, err := db.Store.Find(ctx, strings.ToLower(args[0]))
		if err != nil {
			return err
		}
		w.only = id
	}
	defer w.progress.aside()
	for {
		settled, err := w.look(ctx)
		if err == nil && settled {
			return w.end(ctx)
		}
		if err == nil {
			err = pause(ctx, peekEvery)
		}
		if _, ok := received(ctx); ok && w.only.IsZero() {
			return nil // there is no other way to end it
		}
		if err != nil {
			return err
		}
	}
}

func (w *onlooker) label(id store.ID) string {
	if t, ok := w.tasks[id]; ok {
		if title := t.Title(); title != "" {
			return usererr.Printable(title)
		}
		return labelOf(t.Source)
	}
	return shortID(id)
}

// look shows what has changed since the last time, and reports whether the one
// task is settled.
func (w *onlooker) look(ctx context.Context) (bool, error) {
	workers, err := w.db.Store.Workers(ctx, false)
	if err != nil {
		return false, err
	}
	current := make(map[work]store.Running)
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
				current[work{r.Task, r.Stage}] = r
				follow[r.Task] = true
			}
		}
	}
	settled := false
	for id := range follow {
		done, err := w.follow(ctx, id, current)
		if err != nil {
			return false, err
		}
		settled = settled || done && id == w.only
	}
	return settled, w.show(current)
}

// follow tells how a task's stages have changed, and forgets it when nobody has
// worked on it for a while.
func (w *onlooker) follow(ctx context.Context, id store.ID, current map[work]store.Running) (settled bool, err error) {
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
		key := work{id, s.Name}
		r, runs := current[key]
		if runs && r.Token != s.Token {
			delete(current, key) // what a worker says of itself is up to a second old
		}
		active = active || s.Status == store.StatusInProgress
		if known && before.Stages[i].Status != s.Status {
			w.changed(id, s)
		}
	}
	if w.idle[id]++; active {
		w.idle[id] = 0
	}
	// Between two stages nobody may be working on a task for a moment.
	if w.idle[id] > patientLooks {
		w.forget(id)
	}
	return t.IsFinished(w.db.Store.Graph()), nil
}

func (w *onlooker) forget(id store.ID) {
	delete(w.tasks, id)
	delete(w.idle, id)
}

func (w *onlooker) changed(id store.ID, s store.StageState) {
	switch s.Status {
	case store.StatusInProgress:
		w.progress.event(stages.Event{Kind: stages.StageStarted, Task: id, Stage: s.Name, Attempt: s.Attempts})
	case store.StatusPending:
	default:
		if !w.c.json {
			word := w.c.err.paint(statusColours[string(s.Status)], string(s.Status))
			w.progress.say("%s: %s %s", w.label(id), s.Name, word)
		}
	}
}

// show shows the running stages.
func (w *onlooker) show(current map[work]store.Running) error {
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
	var all []activity
	for key, r := range current {
		a := activity{work: key, attempt: r.Attempt, progress: stages.Progress{
			Percent: r.Percent, Speed: r.Speed, ETA: time.Duration(r.ETA * float64(time.Second)), Note: r.Note,
		}}
		for _, s := range w.tasks[r.Task].Stages {
			if s.Name == r.Stage && s.LockedAt != nil {
				a.since = *s.LockedAt
			}
		}
		all = append(all, a)
	}
	w.progress.goingOn(all)
	return nil
}

// end reports on the task that was watched.
func (w *onlooker) end(ctx context.Context) error {
	w.progress.aside()
	published, err := w.c.PublishPath()
	if err != nil {
		return err
	}
	t, err := w.db.Store.Get(ctx, w.only)
	if err != nil {
		return err
	}
	r, err := reportOn(ctx, w.db.Store, t, t.Source, published)
	if err != nil {
		return err
	}
	if err := w.c.writeEnded(r); err != nil {
		return err
	}
	if r.Published == nil {
		return quiet(exitFailure)
	}
	return nil
}
