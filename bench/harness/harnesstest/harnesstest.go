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
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/internal/postgres"
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
	url := setUp(t, s)
	seen := newRecord(taskCount)
	workers := start(t, s, url, harness.Options{Slots: 4, Observe: seen.observe})
	worked := t.Run("works", func(t *testing.T) {
		step(t, "submit half of the tasks", func(ctx context.Context) error {
			return workers.SubmitAll(ctx, 0, taskCount/2)
		})
		for task := int64(taskCount / 2); task < taskCount; task++ {
			step(t, "submit a task", func(ctx context.Context) error { return workers.Submit(ctx, task) })
		}
		step(t, "wait for the tasks", seen.wait)
	})
	step(t, "stop", workers.Stop)
	if worked {
		seen.check(t)
	}
	expectNoConnections(t, url)
}

// CheckStop stops a system's workers while they work on many tasks. Stopping must only wait
// for the work that has started, and must leave nothing. The error of Stop is ignored.
func CheckStop(t *testing.T, s harness.System) {
	t.Helper()
	url := setUp(t, s)
	started := make(chan struct{})
	var once sync.Once
	workers := start(t, s, url, harness.Options{
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
	expectNoConnections(t, url)
}

// setUp creates a database with the system's tables.
func setUp(t *testing.T, s harness.System) (url string) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server of its own, and some seconds")
	}
	url = newDatabase(t)
	step(t, "set up", func(ctx context.Context) error { return s.Setup(ctx, url) })
	return url
}

func start(t *testing.T, s harness.System, url string, o harness.Options) (workers harness.Workers) {
	t.Helper()
	step(t, "start", func(ctx context.Context) (err error) {
		workers, err = s.Start(ctx, url, o)
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

// newDatabase creates an empty database on a server of its own.
func newDatabase(t *testing.T) (url string) {
	t.Helper()
	s, err := postgres.StartEphemeral(t.Context(), postgres.EphemeralOptions{})
	if errors.Is(err, postgres.ErrNotInstalled) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.CreateDatabase(t.Context(), "harness"); err != nil {
		t.Fatal(err)
	}
	return s.URL("harness")
}

// expectNoConnections waits until no other connection is left. The server may need a moment
// to notice that clients have disconnected.
func expectNoConnections(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	const countSQL = `select count(*) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'`
	n := -1
	for deadline := time.Now().Add(10 * time.Second); n != 0; time.Sleep(10 * time.Millisecond) {
		if err := conn.QueryRow(t.Context(), countSQL).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 && time.Now().After(deadline) {
			t.Fatalf("%d connections of the workers are left", n)
		}
	}
}
