// Package harnesstest has the tests that every system must pass before its figures mean
// anything:
//
//	func TestMain(m *testing.M) { harnesstest.Main(m) }
//
//	func TestSystem(t *testing.T) { harnesstest.Check(t, river.Tx()) }
package harnesstest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
)

// Main runs a package's tests and reports goroutines that are left.
func Main(m *testing.M) { goleak.VerifyTestMain(m) }

// Check runs both checks as parallel subtests. They skip in short mode, and where the
// database server or the system is not available.
func Check(t *testing.T, s harness.System) {
	t.Run("runs every stage once and in order", func(t *testing.T) {
		t.Parallel()
		CheckPipeline(t, s)
	})
	t.Run("stops during work", func(t *testing.T) {
		t.Parallel()
		CheckStop(t, s)
	})
}

// taskCount is the number of tasks: one call submits the first half, the others follow one
// by one.
const taskCount = 20

const stepTimeout = time.Minute

// CheckPipeline lets a system take 20 tasks through the five stages on a server of its own.
// Every stage must run once and in order, and stopping the workers must leave nothing.
func CheckPipeline(t *testing.T, s harness.System) {
	t.Helper()
	pool := setUp(t, s)
	recorder := harness.NewRecorder(taskCount)
	workers := start(t, s, pool, harness.Options{Slots: 4, Observe: recorder.Observe})
	worked := t.Run("works", func(t *testing.T) {
		step(t, "submit half of the tasks", func(ctx context.Context) error {
			return workers.SubmitAll(ctx, 0, taskCount/2)
		})
		for task := int64(taskCount / 2); task < taskCount; task++ {
			step(t, "submit a task", func(ctx context.Context) error { return workers.Submit(ctx, task) })
		}
		step(t, "wait for the tasks", func(ctx context.Context) error { return recorder.WaitAll(ctx, stepTimeout) })
	})
	step(t, "stop", workers.Stop)
	if worked {
		if err := errors.Join(recorder.Check(), checkOrder(recorder)); err != nil {
			t.Error(err)
		}
	}
	expectNoConnections(t, pool)
}

// CheckStop stops a system's workers while they work on many tasks. Stopping must only wait
// for the work that has started, and must leave nothing. The error of Stop is ignored.
func CheckStop(t *testing.T, s harness.System) {
	t.Helper()
	pool := setUp(t, s)
	started := make(chan struct{})
	var once sync.Once
	workers := start(t, s, pool, harness.Options{
		Slots: 2, WorkTime: 20 * time.Millisecond,
		Observe: func(harness.Observation) { once.Do(func() { close(started) }) },
	})
	t.Run("works", func(t *testing.T) {
		step(t, "submit many tasks", func(ctx context.Context) error { return workers.SubmitAll(ctx, 0, 300) })
		step(t, "wait for the first", func(ctx context.Context) error {
			select {
			case <-started:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	})
	step(t, "stop", func(ctx context.Context) error {
		_ = workers.Stop(ctx)
		return context.Cause(ctx)
	})
	expectNoConnections(t, pool)
}

// checkOrder returns an error for each stage that ended before it started, was completed before
// it ended, or started before a stage that it needs had ended.
func checkOrder(r *harness.Recorder) (err error) {
	for task := range taskCount {
		for s := range harness.Stage(harness.StageCount) {
			started, ended := r.At(task, s, harness.Started), r.At(task, s, harness.Ended)
			if ended.Before(started) || r.At(task, s, harness.Completed).Before(ended) {
				err = errors.Join(err, fmt.Errorf("%v of task %d ended before it started, or was completed before it ended",
					s, task))
			}
			for _, need := range s.Needs() {
				if started.Before(r.At(task, need, harness.Ended)) {
					err = errors.Join(err, fmt.Errorf("%v of task %d started before %v had ended", s, task, need))
				}
			}
		}
	}
	return err
}

// setUp creates a database with the system's tables, on a server of its own.
func setUp(t *testing.T, s harness.System) *pgxpool.Pool {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server of its own, and some seconds")
	}
	pool := pgtest.NewServer(t, pgtest.ServerOptions{}).New(pgtest.Schema{})
	step(t, "set up", func(ctx context.Context) error { return s.Setup(ctx, pool.Config().ConnString()) })
	return pool
}

func start(t *testing.T, s harness.System, pool *pgxpool.Pool, o harness.Options) (workers harness.Workers) {
	t.Helper()
	step(t, "start", func(ctx context.Context) (err error) {
		workers, err = s.Start(ctx, pool.Config().ConnString(), o)
		return err
	})
	return workers
}

// step calls a function with a timeout. It skips the test if the system is not available.
func step(t *testing.T, name string, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
	defer cancel()
	err := do(ctx)
	if errors.Is(err, harness.ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// expectNoConnections waits until no other connection is left. The server may need a moment
// to notice that clients have disconnected.
func expectNoConnections(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	const countSQL = `select count(*) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'`
	waittest.Until(t, "the workers have disconnected", func() bool {
		n := -1
		if err := pool.QueryRow(t.Context(), countSQL).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
}
