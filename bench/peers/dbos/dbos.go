package dbos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"golang.org/x/sync/errgroup"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/peers/internal/work"
)

// DBOS is DBOS Transact.
type System struct{}

// New is DBOS Transact.
func New() System { return System{} }

// Name is its word in results.
func (System) Name() string { return "dbos" }

// Settings says how it was set up.
func (System) Settings() string {
	return "DBOS Transact for Go v1.1.0: a workflow of five steps, run in the submitting process without a queue; 20 connections, its default"
}

// Setup makes its tables.
func (System) Setup(ctx context.Context, url string) error {
	var trouble work.ErrorList
	app, err := dbos.NewContext(ctx, config(url, &trouble))
	if err == nil {
		err = dbos.Shutdown(app, shutdownWithin)
	}
	if err := errors.Join(err, trouble.Err()); err != nil {
		return fmt.Errorf("make tables of DBOS: %w", err)
	}
	return nil
}

func config(url string, trouble *work.ErrorList) dbos.Config {
	return dbos.Config{
		AppName: "cuelight-bench", DatabaseURL: url, Logger: trouble.Logger(),
		ApplicationVersion: "1", // or else it hashes this program
	}
}

// shutdownWithin is how long it may take to stop where nobody says.
const shutdownWithin = time.Minute

// Start starts it in this process.
func (System) Start(ctx context.Context, url string, o harness.Options) (harness.Workers, error) {
	c := &crew{Options: o}
	for s := range c.slots {
		c.slots[s] = make(chan struct{}, max(1, o.Slots))
	}
	var err error
	if c.app, err = dbos.NewContext(context.WithoutCancel(ctx), config(url, &c.trouble)); err != nil {
		return nil, fmt.Errorf("start DBOS: %w", errors.Join(err, c.trouble.Err()))
	}
	dbos.RegisterWorkflow(c.app, c.workflow, dbos.WithWorkflowName("video"))
	if err := dbos.Launch(c.app); err != nil {
		return nil, fmt.Errorf("start DBOS: %w", errors.Join(err, dbos.Shutdown(c.app, shutdownWithin)))
	}
	return c, nil
}

type crew struct {
	harness.Options
	app     dbos.Context
	slots   [harness.StageCount]chan struct{} // has one for each that is busy
	results sync.WaitGroup
	trouble work.ErrorList
}

// workflow is the pipeline. What it returns is kept with it.
func (c *crew) workflow(ctx dbos.Context, task int64) (string, error) {
	if err := c.step(ctx, task, harness.Ingest); err != nil {
		return "", err
	}
	if err := c.both(ctx, task, harness.Transcode, harness.Metadata); err != nil {
		return "", err
	}
	if err := c.step(ctx, task, harness.Assemble); err != nil {
		return "", err
	}
	return "", c.step(ctx, task, harness.Publish)
}

// step does a stage, and returns when it is written down that it is done.
func (c *crew) step(ctx dbos.Context, task int64, s harness.Stage) error {
	if _, err := dbos.RunAsStep(ctx, c.do(task, s), dbos.WithStepName(s.String())); err != nil {
		return err
	}
	work.Completed(c.Options, task, s)
	return nil
}

// both does two stages at once.
func (c *crew) both(ctx dbos.Context, task int64, a, b harness.Stage) error {
	as, err := dbos.Go(ctx, c.do(task, a), dbos.WithStepName(a.String()))
	if err != nil {
		return err
	}
	bs, err := dbos.Go(ctx, c.do(task, b), dbos.WithStepName(b.String()))
	if err != nil {
		return err
	}
	for as != nil || bs != nil {
		var outcome dbos.StepOutcome[string]
		done := a
		select {
		case outcome = <-as:
			as = nil
		case outcome = <-bs:
			done, bs = b, nil
		}
		if outcome.Err != nil {
			return outcome.Err
		}
		work.Completed(c.Options, task, done)
	}
	return nil
}

// do is the work of a stage, in one of its slots.
func (c *crew) do(task int64, s harness.Stage) dbos.Step[string] {
	return func(ctx context.Context) (string, error) {
		select {
		case c.slots[s] <- struct{}{}:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		defer func() { <-c.slots[s] }()
		return "", work.Work(ctx, c.Options, task, s)
	}
}

// Submit begins a workflow: it returns when it is written down that it is to be
// done.
func (c *crew) Submit(_ context.Context, task int64) error {
	handle, err := dbos.RunWorkflow(c.app, c.workflow, task, dbos.WithWorkflowID(fmt.Sprint(task)))
	if err != nil {
		return fmt.Errorf("run workflow: %w", err)
	}
	c.results.Go(func() {
		_, err := handle.GetResult()
		c.trouble.Add(err)
	})
	return nil
}

// SubmitAll begins many workflows at once. They queue for connections, those
// that are to be begun before those that have begun.
func (c *crew) SubmitAll(ctx context.Context, first int64, n int) error {
	var group errgroup.Group
	for task := first; task < first+int64(n); task++ {
		group.Go(func() error { return c.Submit(ctx, task) })
	}
	return group.Wait()
}

// Stop lets what has begun come to its end for some seconds, but no longer than
// until ctx is done; then it is cancelled.
func (c *crew) Stop(ctx context.Context) error {
	all := make(chan struct{})
	go func() {
		c.results.Wait()
		close(all)
	}()
	grace := time.NewTimer(5 * time.Second)
	defer grace.Stop()
	select {
	case <-all:
	case <-grace.C:
	case <-ctx.Done():
	}
	within := shutdownWithin
	if deadline, ok := ctx.Deadline(); ok {
		within = time.Until(deadline)
	}
	if err := dbos.Shutdown(c.app, max(time.Second, within)); err != nil {
		return errors.Join(err, c.trouble.Err())
	}
	<-all
	return c.trouble.Err()
}
