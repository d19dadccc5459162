package cuelight

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/bench/system"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// workers are one Runner.
type workers struct {
	system.Options
	numbers sync.Map // of running tasks, by id: a stages.Event has only the id
	errs    system.FirstError

	pool, submitPool *pgxpool.Pool
	store            *store.Store // on submitPool

	ready chan struct{} // has a value once the Runner is registered, and one once the listener is connected
	stop  context.CancelFunc
	done  chan struct{} // closed when err is set
	err   error
}

func startLocal(ctx context.Context, url string, o system.Options) (system.Workers, error) {
	w, err := startWorkers(ctx, url, o, func(ctx context.Context, w *workers, p *stages.Pipeline) error {
		listener := notify.New(w.pool, notify.Options{Channels: p.Channels(), OnChange: w.onListenerChange})
		return stages.Runner{Pool: w.pool, Pipeline: p, Wakes: listener, Observe: w.onEvent}.Run(ctx)
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// startWorkers calls run, until Stop, in a goroutine, and returns when the Runner is registered and
// a listener is connected.
func startWorkers(
	ctx context.Context, url string, o system.Options, run func(context.Context, *workers, *stages.Pipeline) error,
) (*workers, error) {
	w := &workers{Options: o, ready: make(chan struct{}, 2), done: make(chan struct{})}
	p, err := w.pipeline()
	if err != nil {
		return nil, err
	}
	if w.pool, err = system.OpenPool(ctx, url, 0); err != nil {
		return nil, err
	}
	if w.submitPool, err = system.OpenPool(ctx, url, submitConnections); err != nil {
		w.pool.Close()
		return nil, err
	}
	w.store = store.New(w.submitPool, graph())
	runCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stop = stop
	go func() {
		defer close(w.done)
		w.err = run(runCtx, w, p)
	}()
	for range cap(w.ready) {
		select {
		case <-w.ready:
		case <-w.done:
			return nil, errors.Join(errors.New("the Runner stopped at once"), w.Stop(ctx))
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), w.Stop(context.WithoutCancel(ctx)))
		}
	}
	return w, nil
}

func (w *workers) onListenerChange(connected bool, err error) {
	if !connected {
		w.errs.Add(fmt.Errorf("the listener is disconnected: %w", err))
		return
	}
	w.signal()
}

// signal does not block: the listener may connect again.
func (w *workers) signal() {
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// onEvent reports completed stages. An event that the daemon would log as a warning or worse
// is an error: nothing may fail in a measurement.
func (w *workers) onEvent(e stages.Event) {
	switch e.Kind {
	case stages.StageCompleted:
		w.onCompleted(e)
	case stages.WorkerStarted:
		w.signal()
	case stages.AttemptFailed:
		if !errors.Is(e.Err, system.ErrPlanned) {
			w.errs.Add(fmt.Errorf("%s failed: %w", e.Stage, e.Err))
		}
	case stages.StageDead, stages.ClaimRevoked, stages.DatabaseUnavailable, stages.WorkerLost,
		stages.AttemptsExpired, stages.WakeMissed:
		w.errs.Add(fmt.Errorf("the Runner reports %s: stage %q, count %d, error: %v", e.Kind, e.Stage, e.Count, e.Err))
	}
}

func (w *workers) onCompleted(e stages.Event) {
	s := system.StageByName(e.Stage)
	task, ok := w.numbers.Load(e.Task)
	if !ok {
		w.errs.Add(fmt.Errorf("%s of task %s was completed before it started", e.Stage, e.Task))
		return
	}
	w.ReportCompleted(task.(int64), s)
	if s == system.Publish {
		w.numbers.Delete(e.Task)
	}
}

// Submit submits one task.
func (w *workers) Submit(ctx context.Context, task int64) error {
	_, err := w.store.Submit(ctx, submission(task, w.Users))
	return err
}

// SubmitAll submits tasks with one statement.
func (w *workers) SubmitAll(ctx context.Context, first int64, n int) error {
	return submitAll(ctx, w.store, first, n, w.Users)
}

// Stop drains the Runner.
func (w *workers) Stop(ctx context.Context) error {
	w.stop()
	select {
	case <-w.done:
	case <-ctx.Done():
		return fmt.Errorf("stop: %w", context.Cause(ctx))
	}
	w.submitPool.Close()
	w.pool.Close()
	return errors.Join(w.err, w.errs.Err())
}
