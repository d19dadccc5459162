package cuelight

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// crew is one Runner.
type crew struct {
	observe func(harness.Observation)
	numbers *numbers

	pool, submit *pgxpool.Pool
	store        *store.Store // that submits

	registered chan struct{}
	hears      chan struct{}
	end        context.CancelFunc
	ended      chan struct{} // closed when err is there
	err        error

	mu      sync.Mutex
	trouble []error
}

// Start begins to work, and returns when the Runner is known to the database and
// its listener hears.
func (System) Start(ctx context.Context, url string, o harness.Options) (harness.Workers, error) {
	c := &crew{
		observe: o.Observe, numbers: newNumbers(),
		registered: make(chan struct{}, 1), hears: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	if err := c.connect(ctx, url); err != nil {
		return nil, err
	}
	p, err := pipeline(o, c.numbers)
	if err != nil {
		c.close()
		return nil, err
	}
	c.run(context.WithoutCancel(ctx), p)
	for _, ready := range []chan struct{}{c.registered, c.hears} {
		select {
		case <-ready:
		case <-c.ended:
			return nil, errors.Join(errStopped, c.Stop(ctx))
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), c.Stop(context.WithoutCancel(ctx)))
		}
	}
	return c, nil
}

func (c *crew) connect(ctx context.Context, url string) error {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	if c.pool, err = pgxpool.NewWithConfig(ctx, config.Copy()); err != nil {
		return err
	}
	config.MaxConns = submitters
	if c.submit, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		c.pool.Close()
		return err
	}
	c.store = store.New(c.submit, store.Video())
	return nil
}

func (c *crew) close() {
	c.submit.Close()
	c.pool.Close()
}

// run runs the Runner until Stop.
func (c *crew) run(ctx context.Context, p *stages.Pipeline) {
	ctx, c.end = context.WithCancel(ctx)
	listener := notify.New(c.pool, notify.Options{Channels: p.Channels(), OnChange: c.changed})
	runner := stages.Runner{Pool: c.pool, Pipeline: p, Wakes: listener, Observe: c.tell}
	go func() {
		defer close(c.ended)
		c.err = runner.Run(ctx)
	}()
}

// changed is told whether the listener hears.
func (c *crew) changed(connected bool, err error) {
	if !connected {
		c.wrong(fmt.Errorf("it hears no notifications: %w", err))
		return
	}
	signal(c.hears)
}

// signal does not wait: one is enough.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// tell is told what the Runner does. What the daemon would log as a warning or
// worse is trouble: nothing of it belongs into a run in which nothing fails.
func (c *crew) tell(e stages.Event) {
	switch e.Kind {
	case stages.StageCompleted:
		if c.observe != nil {
			c.completed(e)
		}
	case stages.WorkerStarted:
		signal(c.registered)
	case stages.AttemptFailed, stages.StageDead, stages.ClaimRevoked, stages.DatabaseLost, stages.WorkerLost, stages.AttemptsExpired, stages.WakeMissed:
		c.wrong(fmt.Errorf("the Runner says %s: stage %q, count %d, error: %v", e.Kind, e.Stage, e.Count, e.Err))
	}
}

func (c *crew) completed(e stages.Event) {
	s, ok := stageNamed(e.Stage)
	if !ok {
		return
	}
	at := time.Now()
	task, ok := c.numbers.get(e.Task)
	if !ok {
		c.wrong(fmt.Errorf("%s of task %s was completed before it began", e.Stage, e.Task))
		return
	}
	if s == harness.Publish {
		c.numbers.drop(e.Task)
	}
	c.observe(harness.Observation{Task: task, Stage: s, Kind: harness.Completed, At: at})
}

func stageNamed(name string) (harness.Stage, bool) {
	for s := harness.Ingest; s < harness.Stage(harness.StageCount); s++ {
		if s.String() == name {
			return s, true
		}
	}
	return 0, false
}

// keeps is how many errors are kept.
const keeps = 5

func (c *crew) wrong(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.trouble) < keeps {
		c.trouble = append(c.trouble, err)
	}
}

// Submit submits one task.
func (c *crew) Submit(ctx context.Context, task int64) error {
	_, err := c.store.Submit(ctx, submission(task))
	return err
}

// SubmitAll submits tasks in one transaction, many in one statement.
func (c *crew) SubmitAll(ctx context.Context, first int64, n int) error {
	return submitAll(ctx, c.submit, first, n)
}

// Stop drains the Runner.
func (c *crew) Stop(ctx context.Context) error {
	c.end()
	select {
	case <-c.ended:
	case <-ctx.Done():
		return fmt.Errorf("stop: %w", context.Cause(ctx))
	}
	c.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.err, errors.Join(c.trouble...))
}
