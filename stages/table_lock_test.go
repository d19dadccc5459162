package stages_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// lock takes a lock, as VACUUM FULL or ALTER TABLE would, until release is called.
func (b bundle) lock(sql string) (release func()) {
	b.t.Helper()
	tx, err := b.pool.Begin(context.Background())
	for err == nil {
		if _, err = tx.Exec(b.t.Context(), sql); !store.IsRetryable(err) {
			break
		}
		must(b.t, tx.Rollback(context.Background()))
		tx, err = b.pool.Begin(context.Background())
	}
	must(b.t, err)
	return func() {
		b.t.Helper()
		must(b.t, tx.Commit(context.Background()))
	}
}

// A table that is locked for longer than the lease costs no attempt and no work: the
// work continues, and is reported when the lock ends.
func TestWorker_KeepsItsClaimsWhileATableIsLocked(t *testing.T) {
	t.Parallel()
	const lease = 6 * time.Second // a heartbeat's timeout is a twelfth of it, enough for a busy machine
	for name, lock := range map[string]string{
		"attempts": "lock table test_attempts",
		"tasks":    "lock table test_tasks",
		"outbox":   "lock table test_outbox",
		"workers":  "lock table test_workers",
		"all": "lock table test_tasks, test_steps, test_attempts, test_outbox, test_workers, test_pauses, " +
			"test_event_epoch, test_pipeline",
		"row of the worker": "select from test_workers for update",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			finish := make(chan struct{})
			b := setup(t, stages.Stage{
				Name: "one", Slots: 4, MaxAttempts: 1, Work: func(ctx context.Context, job *stages.Job) (any, error) {
					// Many queries at once must leave the heartbeat a connection.
					var queries sync.WaitGroup
					defer queries.Wait()
					for range 12 {
						queries.Go(func() { queryUntil(ctx, job, finish) })
					}
					select {
					case <-finish:
						return nil, nil
					case <-ctx.Done():
						return nil, fmt.Errorf("stopped: %w", context.Cause(ctx))
					}
				},
			})
			id, own := b.submit(), b.withPool(func(c *pgxpool.Config) { c.MaxConns = 4 })
			worker := own.start(func(r *stages.Runner) {
				r.Wakes, r.SweepInterval, r.Lease = own.listening(), time.Second, lease
			})
			worker.wait(t, stages.StageStarted)
			stopChecking := b.checkNoneExpire()
			release := b.withPool(samePool).lock(lock)
			time.Sleep(lease + lease/2) // the lock, longer than the lease
			release()
			time.Sleep(lease / 2) // a claim that was lost by the lock would be noticed
			close(finish)
			if e := worker.wait(t, stages.StageCompleted); e.Task != id {
				t.Errorf("task %s was completed", e.Task)
			}
			stopChecking()
			for len(worker.events) > 0 {
				switch e := <-worker.events; e.Kind {
				case stages.ClaimRevoked, stages.AttemptFailed, stages.StageDead:
					t.Errorf("observed %s: %v", e.Kind, e.Err)
				}
			}
			if h := b.history(id); len(h) != 1 || h[0].Outcome != "completed" || h[0].Attempt != 1 {
				t.Errorf("history is %+v", h)
			}
		})
	}
}

// queryUntil repeats the queries that work may make until end is closed.
func queryUntil(ctx context.Context, job *stages.Job, end <-chan struct{}) {
	for {
		_, _ = job.Results(ctx, "one")
		_ = job.Confirm(ctx)
		select {
		case <-end:
			return
		case <-ctx.Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// checkNoneExpire sweeps without outage credit until stop is called, and fails the test
// if a worker or a claim expires.
func (b bundle) checkNoneExpire() (stop func()) {
	sweeper, stopping, ended := b.withPool(samePool), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stopping:
				return
			case <-time.After(20 * time.Millisecond):
			}
			out, err := sweeper.backend.Sweep(context.Background(), engine.SweepRequest{
				Credit: &engine.OutageCredit{}, MaxAttempts: []int{1},
			})
			if err != nil && !errors.Is(err, store.ErrLocked) && !store.IsRetryable(err) { // a sweep may deadlock with many locks
				b.t.Error(err)
			}
			if len(out.ExpiredWorkers) > 0 || out.ExpiredClaims > 0 {
				b.t.Errorf("workers %v and %d claims expired", out.ExpiredWorkers, out.ExpiredClaims)
			}
		}
	}()
	stop = sync.OnceFunc(func() { close(stopping); <-ended })
	b.t.Cleanup(stop)
	return stop
}
