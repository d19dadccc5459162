package dbos

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"golang.org/x/sync/errgroup"

	"github.com/cuelight/cuelight/bench/harness"
)

// System is DBOS Transact.
var System = harness.System{
	Name: "dbos",
	Settings: "DBOS Transact for Go v1.1.0: a workflow of five steps, run in the submitting process without a queue; " +
		"20 connections, its default",
	Setup: setUp, Start: start,
}

// setUp creates its tables.
func setUp(ctx context.Context, url string) error {
	var errs harness.ErrorList
	app, err := dbos.NewContext(ctx, config(url, &errs))
	if err == nil {
		err = dbos.Shutdown(app, shutdownTimeout)
	}
	if err := errors.Join(err, errs.Err()); err != nil {
		return fmt.Errorf("create tables of DBOS: %w", err)
	}
	return nil
}

func config(url string, errs *harness.ErrorList) dbos.Config {
	return dbos.Config{
		AppName: "cuelight-bench", DatabaseURL: url, Logger: errs.Logger(),
		ApplicationVersion: "1", // without it, DBOS hashes this program
	}
}

// shutdownTimeout applies where the context has no deadline.
const shutdownTimeout = time.Minute

// start starts DBOS in this process.
func start(ctx context.Context, url string, o harness.Options) (harness.Workers, error) {
	w := &workers{Options: o}
	for s := range w.slots {
		w.slots[s] = make(chan struct{}, max(1, o.Slots))
	}
	var err error
	if w.app, err = dbos.NewContext(context.WithoutCancel(ctx), config(url, &w.errs)); err != nil {
		return nil, fmt.Errorf("start DBOS: %w", errors.Join(err, w.errs.Err()))
	}
	dbos.RegisterWorkflow(w.app, w.workflow, dbos.WithWorkflowName("video"))
	if err := dbos.Launch(w.app); err != nil {
		return nil, fmt.Errorf("start DBOS: %w", errors.Join(err, dbos.Shutdown(w.app, shutdownTimeout)))
	}
	return w, nil
}

type workers struct {
	harness.Options
	app     dbos.Context
	slots   [harness.StageCount]chan struct{} // one value for each busy slot
	results sync.WaitGroup
	errs    harness.ErrorList
}

// workflow is the pipeline. DBOS stores its result.
func (w *workers) workflow(ctx dbos.Context, task int64) (string, error) {
	for _, stages := range [][]harness.Stage{
		{harness.Ingest}, {harness.Transcode, harness.Metadata}, {harness.Assemble}, {harness.Publish},
	} {
		if err := w.steps(ctx, task, stages); err != nil {
			return "", err
		}
	}
	return "", nil
}

// steps performs a stage, or two at once, and returns when the results are recorded.
func (w *workers) steps(ctx dbos.Context, task int64, stages []harness.Stage) error {
	if len(stages) == 1 {
		s := stages[0]
		_, err := dbos.RunAsStep(ctx, w.step(task, s), dbos.WithStepName(s.String()))
		if err == nil {
			w.ReportCompleted(task, s)
		}
		return err
	}
	var outcomes [2]<-chan dbos.StepOutcome[string]
	for i, s := range stages {
		var err error
		if outcomes[i], err = dbos.Go(ctx, w.step(task, s), dbos.WithStepName(s.String())); err != nil {
			return err
		}
	}
	var both errgroup.Group
	for i, s := range stages {
		both.Go(func() error {
			outcome := <-outcomes[i]
			if outcome.Err == nil {
				w.ReportCompleted(task, s)
			}
			return outcome.Err
		})
	}
	return both.Wait()
}

// step does the work of a stage in one of its slots.
func (w *workers) step(task int64, s harness.Stage) dbos.Step[string] {
	return func(ctx context.Context) (string, error) {
		select {
		case w.slots[s] <- struct{}{}:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		defer func() { <-w.slots[s] }()
		return "", w.DoWork(ctx, task, s)
	}
}

// Submit starts a workflow and returns when DBOS has recorded it.
func (w *workers) Submit(_ context.Context, task int64) error {
	handle, err := dbos.RunWorkflow(w.app, w.workflow, task, dbos.WithWorkflowID(strconv.FormatInt(task, 10)))
	if err != nil {
		return fmt.Errorf("run workflow: %w", err)
	}
	w.results.Go(func() {
		_, err := handle.GetResult()
		w.errs.Add(err)
	})
	return nil
}

// SubmitAll starts many workflows at once. They queue for connections.
func (w *workers) SubmitAll(ctx context.Context, first int64, n int) error {
	var group errgroup.Group
	for task := first; task < first+int64(n); task++ {
		group.Go(func() error { return w.Submit(ctx, task) })
	}
	return group.Wait()
}

// Stop lets running workflows finish for some seconds, at most until ctx is done, and then
// cancels them.
func (w *workers) Stop(ctx context.Context) error {
	all := make(chan struct{})
	go func() {
		w.results.Wait()
		close(all)
	}()
	grace, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	select {
	case <-all:
	case <-grace.Done():
	}
	timeout := shutdownTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = time.Until(deadline)
	}
	if err := dbos.Shutdown(w.app, max(time.Second, timeout)); err != nil {
		return errors.Join(err, w.errs.Err())
	}
	<-all
	return w.errs.Err()
}
