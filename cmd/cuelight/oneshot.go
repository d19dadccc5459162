package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/internal/daemon"
	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

const (
	// pollInterval is how often tasks are read that another process may be working on.
	// Events report this process's own work at once.
	pollInterval = time.Second
	// maxPolled is how many of them are read each time.
	maxPolled = 50
	// queryTimeout bounds one poll.
	queryTimeout = 10 * time.Second
	// maxOutage is how long a run waits for a database that does not answer.
	maxOutage = time.Minute
)

// oneShot works until its tasks have ended. Only the goroutine that called run uses it.
type oneShot struct {
	c        *cli
	db       *dbconn.Database
	inputs   map[store.ID]*input
	events   *daemon.EventQueue
	progress *progress

	open      int                     // tasks that have not ended
	unchecked map[store.ID]bool       // of these, the ones that may have ended
	tasks     map[store.ID]store.Task // of these, as last read
	divided   []report.PartsProgress  // of these, on all hosts
	published int                     // arguments that were published
	failed    int                     // arguments that were not
	firstPath string                  // of a published video

	lostAt   time.Time // since when the database does not answer
	stopping bool
	abort    chan struct{}
	err      error
}

func newOneShot(c *cli, db *dbconn.Database, inputs []*input, quiet bool) *oneShot {
	j := &oneShot{
		c: c, db: db, events: daemon.NewEventQueue(),
		inputs: make(map[store.ID]*input), unchecked: make(map[store.ID]bool), tasks: make(map[store.ID]store.Task),
		open: len(inputs), abort: make(chan struct{}),
	}
	for _, in := range inputs {
		j.inputs[in.task] = in
	}
	j.progress = newProgress(c.err, quiet, j.label)
	j.setFooter()
	return j
}

func (j *oneShot) label(task store.ID) string {
	if in := j.inputs[task]; in != nil {
		return in.label
	}
	return shortID(task)
}

// run works with the engine until all tasks have ended, or a signal or an error stops it.
func (j *oneShot) run(ctx context.Context, e *daemon.Engine) error {
	work, stop := context.WithCancel(ctx)
	e.Abort, e.Observe = j.abort, j.events.Observe
	ended := make(chan error, 1)
	var all sync.WaitGroup
	all.Go(func() { ended <- e.Run(work) })
	server, stopServer := context.WithCancel(context.WithoutCancel(ctx))
	all.Go(func() { j.db.SuperviseServer(server, func(error) {}) }) // the engine reports the outage
	j.loop(stop, ended)
	stopServer()
	stop()
	all.Wait()
	j.progress.clear()
	return j.result(ctx)
}

// loop returns when the engine has ended.
func (j *oneShot) loop(stop func(), ended <-chan error) {
	redraw := time.NewTicker(redrawInterval)
	defer redraw.Stop()
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	secondSignal := j.c.sig.Abort
	for {
		select {
		case err := <-ended:
			j.handleEvents()
			j.checkTasks()
			j.fail(err)
			return
		case <-j.events.Wake:
			j.handleEvents()
			j.checkTasks()
		case <-poll.C:
			j.handleEvents()
			j.addUnchecked()
			j.checkTasks()
			j.readParts()
			j.checkOutage()
		case <-redraw.C:
			j.handleEvents()
			j.progress.showRunning(j.events.Running(), j.divided)
		case <-secondSignal:
			secondSignal = nil
			j.progress.printf("stopping at once")
			j.halt(stop)
		}
		if j.open == 0 || j.err != nil {
			j.halt(stop)
		}
	}
}

// halt stops at once. The running stages are released.
func (j *oneShot) halt(stop func()) {
	if !j.stopping {
		j.stopping = true
		stop()
		close(j.abort)
	}
}

func (j *oneShot) fail(err error) {
	if j.err == nil {
		j.err = err
	}
}

func (j *oneShot) handleEvents() {
	for _, e := range j.events.Take() {
		switch e.Kind {
		case stages.DatabaseUnavailable:
			if dbconn.ExplainSchema(e.Err) != nil {
				j.fail(e.Err) // waiting does not repair the tables
				continue
			}
			if j.lostAt.IsZero() {
				j.lostAt = time.Now()
			}
		case stages.DatabaseAvailable:
			j.lostAt = time.Time{}
		case stages.StageCompleted, stages.StageDead, stages.ClaimRevoked:
			if in := j.inputs[e.Task]; in != nil && !in.done {
				j.unchecked[e.Task] = true
				in.printed = in.printed || e.Kind == stages.StageDead
			}
		case stages.WorkerDraining:
			if j.stopping {
				continue // it does not wait for them
			}
		}
		if j.stopping && e.Kind == stages.ClaimReleased {
			continue
		}
		j.progress.event(e)
	}
}

// addUnchecked marks open tasks for a check, some at a time.
func (j *oneShot) addUnchecked() {
	for id, in := range j.inputs {
		if !in.done {
			j.unchecked[id] = true
		}
		if len(j.unchecked) >= maxPolled {
			return
		}
	}
}

// checkTasks reads unchecked tasks and reports those that have ended. While the database
// does not answer they stay unchecked.
func (j *oneShot) checkTasks() {
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	for id := range j.unchecked {
		if !j.lostAt.IsZero() || j.err != nil {
			return
		}
		t, err := j.db.Store.Get(ctx, id)
		if err == nil {
			j.tasks[id] = t
		}
		switch {
		case errors.Is(err, store.ErrNotFound):
			err = j.reportEnd(j.inputs[id], taskReport{TaskID: id, Status: store.StatusCancelled, Warnings: []string{}})
		case err == nil && t.IsFinished(j.db.Store.Graph()):
			var r taskReport
			if r, err = j.c.reportOn(ctx, j.db.Store, t, ""); err == nil {
				err = j.reportEnd(j.inputs[id], r)
			}
		}
		if err != nil && dbconn.Explain(err).Kind != usererr.Unreachable {
			j.fail(err)
		}
		if err != nil {
			return // the engine reports the outage
		}
		if delete(j.unchecked, id); j.inputs[id].done {
			delete(j.tasks, id)
		}
	}
}

// readParts reads the progress of divided stages, whose parts other processes may be working on, too. Without an answer
// the last one is shown: the engine reports the outage.
func (j *oneShot) readParts() {
	if !j.lostAt.IsZero() || j.err != nil || j.progress.quiet {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	st := j.db.Store
	divided, err := report.New(st.DB(), st.Graph()).PartsProgress(ctx, slices.Collect(maps.Values(j.tasks)), runningWorkers(j.db))
	if err == nil {
		j.divided = divided
	}
}

// checkOutage gives up on a database that has not answered for too long.
func (j *oneShot) checkOutage() {
	if !j.lostAt.IsZero() && time.Since(j.lostAt) > maxOutage {
		j.fail(&usererr.Error{
			Kind: usererr.Unreachable,
			Text: fmt.Sprintf("the database has not answered for %s", console.Duration(maxOutage)),
			Hint: "the tasks are kept: cuelight serve, or the next cuelight run, continues with them",
		})
	}
}
