package main

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/eventfeed"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// watchInterval is how often watch reads. Workers report progress about once a second.
const watchInterval = 500 * time.Millisecond

// maxIdleReads is for how many reads a task is followed that no worker works on. Between
// two stages that is so for a moment.
const maxIdleReads = 10

const watchHelp = `Watch shows what the workers on all hosts are doing, until Ctrl-C. With an id it
shows that task alone, and exits when the task ends: with 0 if it was completed, and
1 if not.

With --json every line is a running stage whose progress has changed; with an id the
last line is a report on the task, as cuelight run writes it.

With --events it prints every event as it happens. --after begins after an event that
was seen before; 0 begins with the oldest that is kept. Each event is printed exactly
once.`

func (c *cli) watchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch [ID]",
		Short: "Watch running tasks, one task, or all events",
		Long:  watchHelp,
		Args:  atMostOne("ID"),
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
			return invalidFlag("after", *after, "the id of an event, or 0")
		case !cmd.Flags().Changed("after"):
			*after = eventfeed.Now
		}
		return c.withExistingDatabase(cmd.Context(), func(db *dbconn.Database) error {
			if *events {
				return c.watchEvents(cmd.Context(), db, *after, args)
			}
			var task []awaited
			if len(args) > 0 {
				id, err := db.Store.Find(cmd.Context(), strings.ToLower(args[0]))
				if err != nil {
					return err
				}
				task = []awaited{{task: id}}
			}
			return c.watch(cmd.Context(), db, task, true)
		})
	}
	return cmd
}

// awaited is a task whose end a command waits for.
type awaited struct {
	task   store.ID
	source string // as it was given; "" for that of the task
}

// watcher shows the work of all processes, or that on the awaited tasks.
type watcher struct {
	c         *cli
	db        *dbconn.Database
	awaited   []awaited // those whose end was not reported
	completed int       // those that were completed
	onlyThese bool      // there were awaited tasks
	showsWork bool      // otherwise only the reports
	progress  *progress
	tasks     map[store.ID]store.Task // those being worked on, as last read
	idleReads map[store.ID]int        // for how many reads no worker has worked on a task
	running   map[daemon.StageKey]store.Running
	workers   []store.Worker         // as last read
	divided   []report.PartsProgress // of the tasks
}

// watch shows the work of all processes until a signal. With awaited tasks it shows only
// these, if at all, reports on each when it ends, and returns when all have ended.
func (c *cli) watch(ctx context.Context, db *dbconn.Database, tasks []awaited, showsWork bool) error {
	w := &watcher{
		c: c, db: db, awaited: tasks, onlyThese: len(tasks) > 0, showsWork: showsWork,
		tasks: make(map[store.ID]store.Task), idleReads: make(map[store.ID]int),
		running: make(map[daemon.StageKey]store.Running),
	}
	w.progress = newProgress(c.err, c.json || !showsWork, w.label)
	defer w.progress.clear()
	for {
		err := w.read(ctx)
		if err == nil && w.onlyThese && len(w.awaited) == 0 {
			return exitStatusFor(w.completed, len(tasks))
		}
		if err == nil {
			err = ctxsleep.For(ctx, watchInterval)
		}
		if _, ok := daemon.SignalOf(ctx); ok && !w.onlyThese {
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

// read shows what has changed since the last time, and reports on tasks that have ended.
func (w *watcher) read(ctx context.Context) error {
	follow := make(map[store.ID]bool)
	for id := range w.tasks {
		follow[id] = true
	}
	for _, a := range w.awaited {
		follow[a.task] = true
	}
	current, err := w.readRunning(ctx, follow)
	if err != nil {
		return err
	}
	for id := range follow {
		if err := w.followTask(ctx, id, current); err != nil {
			return err
		}
	}
	if w.divided, err = w.readParts(ctx); err != nil {
		return err
	}
	if err := w.show(current); err != nil {
		return err
	}
	return w.reportEnds(ctx)
}

// readRunning returns what workers run, and adds its tasks to follow unless these are
// given.
func (w *watcher) readRunning(
	ctx context.Context, follow map[store.ID]bool,
) (map[daemon.StageKey]store.Running, error) {
	current := make(map[daemon.StageKey]store.Running)
	if !w.showsWork {
		return current, nil
	}
	var err error
	w.workers, err = w.db.Store.Workers(ctx, false)
	for _, worker := range w.workers {
		for _, r := range worker.Running {
			if !w.onlyThese || follow[r.Task] {
				current[daemon.StageKey{Task: r.Task, Stage: r.Stage, Part: r.Part}] = r
				follow[r.Task] = true
			}
		}
	}
	return current, err
}

// readParts returns the progress of divided stages.
func (w *watcher) readParts(ctx context.Context) ([]report.PartsProgress, error) {
	if !w.showsWork || w.c.json {
		return nil, nil
	}
	tasks := slices.Collect(maps.Values(w.tasks))
	return report.New(w.db.Store.DB(), w.db.Store.Graph()).PartsProgress(ctx, tasks, report.ListedWorkers(w.workers))
}

// followTask prints how a task's stages have changed, and forgets a task that no worker
// has worked on for a while.
func (w *watcher) followTask(ctx context.Context, id store.ID, current map[daemon.StageKey]store.Running) error {
	t, err := w.db.Store.Get(ctx, id)
	if errors.Is(err, store.ErrNotFound) && !w.onlyThese {
		w.forget(id)
		return nil
	}
	if err != nil {
		return err
	}
	before, known := w.tasks[id]
	w.tasks[id] = t
	active := w.onlyThese
	for i, s := range t.Stages {
		// A worker's report is up to a second old.
		maps.DeleteFunc(current, func(k daemon.StageKey, r store.Running) bool {
			isOld := k.Part == 0 && r.Token != s.Token || k.Part > 0 && s.Status != store.StatusDivided
			return k.Task == id && k.Stage == s.Name && isOld
		})
		active = active || s.Status == store.StatusInProgress || s.Status == store.StatusDivided
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
	return nil
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
		if w.showsWork && !w.c.json {
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
	for _, r := range current {
		a := daemon.Activity{Running: r}
		for _, s := range w.tasks[r.Task].Stages {
			if s.Name == r.Stage && s.LockedAt != nil {
				a.Since = *s.LockedAt
			}
		}
		all = append(all, a)
	}
	w.progress.showRunning(all, w.divided)
	return nil
}

// reportEnds reports on the awaited tasks that have ended.
func (w *watcher) reportEnds(ctx context.Context) (err error) {
	w.awaited = slices.DeleteFunc(w.awaited, func(a awaited) bool {
		t := w.tasks[a.task]
		if err != nil || !t.IsFinished(w.db.Store.Graph()) {
			return false
		}
		w.progress.clear()
		w.forget(a.task)
		var r taskReport
		if r, err = w.c.reportOn(ctx, w.db.Store, t, cmp.Or(a.source, t.Source)); err == nil {
			err = w.c.printReport(r)
		}
		if r.Published != nil {
			w.completed++
		}
		return true
	})
	return err
}
