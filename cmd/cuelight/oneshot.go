package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

const (
	// lookEvery is how often tasks are looked at that somebody else may be
	// working on; of its own work a run hears at once.
	lookEvery = time.Second
	// lookAtMost is how many of them are looked at each time.
	lookAtMost = 50
	// askWithin bounds one such look.
	askWithin = 10 * time.Second
	// awayAtMost is how long a run waits for a database that went away.
	awayAtMost = time.Minute
)

// oneShot works until some tasks are settled. All of its state belongs to the
// goroutine that called run.
type oneShot struct {
	c          *cli
	db         *dbconn.Database
	given      map[store.ID]*given
	publishDir string
	feed       *feed
	progress   *progress

	open    int               // tasks that are not settled yet
	unsure  map[store.ID]bool // of them, those that may be by now
	done    int               // arguments that were published
	failed  int               // arguments that were not
	watched string            // the first published path

	lostAt   time.Time // the database is away since then
	stopping bool
	abort    chan struct{}
	err      error
}

func newOneShot(c *cli, db *dbconn.Database, all []*given, publishDir string, quietly bool) *oneShot {
	j := &oneShot{
		c: c, db: db, publishDir: publishDir, feed: newFeed(),
		given: make(map[store.ID]*given), unsure: make(map[store.ID]bool),
		open: len(all), abort: make(chan struct{}),
	}
	for _, g := range all {
		j.given[g.task] = g
	}
	j.progress = newProgress(c.err, quietly, j.label)
	j.setFooter()
	return j
}

func (j *oneShot) label(task store.ID) string {
	if g := j.given[task]; g != nil {
		return g.label
	}
	return shortID(task)
}

// run works with the engine until all is settled, or a signal or an error ends
// it before.
func (j *oneShot) run(ctx context.Context, e *engine) error {
	work, stop := context.WithCancel(ctx)
	e.abort, e.observe = j.abort, j.feed.observe
	ended := make(chan error, 1)
	var all sync.WaitGroup
	all.Go(func() { ended <- e.run(work) })
	keeping, unkeep := context.WithCancel(context.WithoutCancel(ctx))
	all.Go(func() { j.db.KeepServer(keeping, func(error) {}) }) // the engine tells of it
	j.loop(stop, ended)
	unkeep()
	stop()
	all.Wait()
	j.progress.aside()
	return j.result(ctx)
}

// loop ends when the engine has.
func (j *oneShot) loop(stop func(), ended <-chan error) {
	redraw := time.NewTicker(redrawEvery)
	defer redraw.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	second := j.c.sig.abort
	for {
		select {
		case err := <-ended:
			j.events()
			j.check()
			j.fail(err)
			return
		case <-j.feed.wake:
			j.events()
			j.check()
		case <-look.C:
			j.events()
			j.doubtSome()
			j.check()
			j.waitNoLonger()
		case <-redraw.C:
			j.events()
			j.progress.goingOn(j.feed.activities())
		case <-second:
			second = nil
			j.progress.say("stopping at once")
			j.halt(stop)
		}
		if j.open == 0 || j.err != nil {
			j.halt(stop)
		}
	}
}

// halt stops at once. What is being worked on is given back.
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

func (j *oneShot) events() {
	for _, e := range j.feed.take() {
		switch e.Kind {
		case stages.DatabaseLost:
			if dbconn.ExplainSchema(e.Err) != nil {
				j.fail(e.Err) // waiting does not mend the tables
				continue
			}
			j.lostAt = time.Now()
		case stages.DatabaseBack:
			j.lostAt = time.Time{}
		case stages.StageCompleted, stages.StageDead, stages.ClaimRevoked:
			if g := j.given[e.Task]; g != nil && !g.done {
				j.unsure[e.Task] = true
				g.told = g.told || e.Kind == stages.StageDead
			}
		case stages.WorkerDraining:
			if j.stopping {
				continue // nobody is waited for
			}
		}
		if j.stopping && e.Kind == stages.ClaimReleased {
			continue
		}
		j.progress.event(e)
	}
}

// doubtSome has open tasks looked at, some of them each time.
func (j *oneShot) doubtSome() {
	for id, g := range j.given {
		if !g.done {
			j.unsure[id] = true
		}
		if len(j.unsure) >= lookAtMost {
			return
		}
	}
}

// check looks whether tasks are settled. While the database is away they stay
// in doubt.
func (j *oneShot) check() {
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	for id := range j.unsure {
		if !j.lostAt.IsZero() || j.err != nil {
			return
		}
		t, err := j.db.Store.Get(ctx, id)
		switch {
		case errors.Is(err, store.ErrNotFound):
			err = j.end(j.given[id], taskReport{TaskID: id, Status: store.StatusCancelled})
		case err == nil && t.IsFinished(j.db.Store.Graph()):
			var r taskReport
			if r, err = reportOn(ctx, j.db.Store, t, "", j.publishDir); err == nil {
				err = j.end(j.given[id], r)
			}
		}
		if err != nil && dbconn.Explain(err).Kind != usererr.Unreachable {
			j.fail(err)
		}
		if err != nil {
			return // the engine tells of a database that is away
		}
		delete(j.unsure, id)
	}
}

// waitNoLonger gives up on a database that has been away for too long.
func (j *oneShot) waitNoLonger() {
	if !j.lostAt.IsZero() && time.Since(j.lostAt) > awayAtMost {
		j.fail(&usererr.Error{
			Kind: usererr.Unreachable,
			Text: fmt.Sprintf("the database has not answered for %s", span(awayAtMost)),
			Hint: "the tasks are kept; cuelight serve, or the next run, goes on with them",
		})
	}
}
