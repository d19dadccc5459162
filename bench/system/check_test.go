package system_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/bench/system"
	"github.com/cuelight/cuelight/bench/system/cuelight"
	"github.com/cuelight/cuelight/bench/system/poller"
	"github.com/cuelight/cuelight/bench/system/river"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
)

func TestMain(m *testing.M) {
	system.RunIfChild([]system.System{fake{}})
	goleak.VerifyTestMain(m)
}

// Every system must pass these checks before its figures mean anything.
func TestSystems_RunEveryStageOnceAndInOrder(t *testing.T) {
	t.Parallel()
	for _, s := range allSystems {
		t.Run(s.Name(), func(t *testing.T) {
			t.Parallel()
			checkPipeline(t, s)
		})
	}
}

func TestSystems_StopDuringWork(t *testing.T) {
	t.Parallel()
	for _, s := range allSystems {
		t.Run(s.Name(), func(t *testing.T) {
			t.Parallel()
			checkStop(t, s)
		})
	}
}

var allSystems = []system.System{
	cuelight.Local, cuelight.Remote, river.Tx, river.Fast, river.Default, poller.Every(20 * time.Millisecond),
}

// checkedTasks is the number of tasks: one call submits the first half, the others follow one
// by one.
const checkedTasks = 20

const stepTimeout = time.Minute

// checkPipeline lets a system take 20 tasks through the five stages on a server of its own.
// Every stage must run once and in order, and stopping the workers must leave nothing.
func checkPipeline(t *testing.T, s system.System) {
	t.Helper()
	pool := setUp(t, s)
	recorder := system.NewRecorder(checkedTasks)
	workers := start(t, s, pool, system.Options{Slots: 4, Observe: recorder.Observe})
	worked := t.Run("works", func(t *testing.T) {
		step(t, "submit half of the tasks", func(ctx context.Context) error {
			return workers.SubmitAll(ctx, 0, checkedTasks/2)
		})
		for task := int64(checkedTasks / 2); task < checkedTasks; task++ {
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

// checkStop stops a system's workers while they work on many tasks. Stopping must only wait
// for the work that has started, and must leave nothing. The error of Stop is ignored.
func checkStop(t *testing.T, s system.System) {
	t.Helper()
	pool := setUp(t, s)
	started := make(chan struct{})
	var once sync.Once
	workers := start(t, s, pool, system.Options{
		Slots: 2, WorkTime: 20 * time.Millisecond,
		Observe: func(system.Observation) { once.Do(func() { close(started) }) },
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
func checkOrder(r *system.Recorder) (err error) {
	for task := range checkedTasks {
		for _, s := range system.Stages {
			started, ended := r.At(task, s, system.Started), r.At(task, s, system.Ended)
			if ended.Before(started) || r.At(task, s, system.Completed).Before(ended) {
				err = errors.Join(err, fmt.Errorf("%v of task %d ended before it started, or was completed before it ended",
					s, task))
			}
			for _, need := range s.Needs() {
				if started.Before(r.At(task, need, system.Ended)) {
					err = errors.Join(err, fmt.Errorf("%v of task %d started before %v had ended", s, task, need))
				}
			}
		}
	}
	return err
}

// setUp creates a database with the system's tables, on a server of its own.
func setUp(t *testing.T, s system.System) *pgxpool.Pool {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server of its own, and some seconds")
	}
	pool := pgtest.NewServer(t, pgtest.ServerOptions{}).New(pgtest.Schema{})
	step(t, "set up", func(ctx context.Context) error { return s.SetUp(ctx, pool.Config().ConnString()) })
	return pool
}

func start(t *testing.T, s system.System, pool *pgxpool.Pool, o system.Options) (workers system.Workers) {
	t.Helper()
	step(t, "start", func(ctx context.Context) (err error) {
		workers, err = s.Start(ctx, pool.Config().ConnString(), o)
		return err
	})
	return workers
}

// step calls a function with a timeout.
func step(t *testing.T, name string, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stepTimeout)
	defer cancel()
	err := do(ctx)
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
