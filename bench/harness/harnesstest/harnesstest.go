// Package harnesstest has what every contestant must pass before its figures
// mean anything:
//
//	func TestMain(m *testing.M) { harnesstest.Main(m) }
//
//	func TestEveryStageOnceAndInOrder(t *testing.T) {
//		harnesstest.Run(t, river.Tx())
//	}
//
//	func TestStopsInTheMiddleOfWork(t *testing.T) {
//		harnesstest.RunStop(t, river.Tx())
//	}
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

// Main runs a package's tests, and expects no goroutine to be left.
func Main(m *testing.M) { goleak.VerifyTestMain(m) }

// tasks is how many there are: the first half is submitted at once, the others
// one by one.
const tasks = 20

// within is how long each part of the test may take.
const within = time.Minute

// Run lets a contestant take 20 tasks through the five stages on a server of
// its own, and expects every stage to be done once, in order, and nothing to be
// left when the crew has stopped. It skips in short mode, and where the server
// or the contestant is not to be had.
func CheckPipeline(t *testing.T, c harness.System) {
	t.Helper()
	url := setUp(t, c)
	seen := newRecord(tasks)
	crew := start(t, c, url, harness.Options{Slots: 4, Observe: seen.observe})
	stop := func(ctx context.Context) error { return crew.Stop(ctx) }
	worked := t.Run("works", func(t *testing.T) {
		step(t, "submit half of the tasks", func(ctx context.Context) error {
			return crew.SubmitAll(ctx, 0, tasks/2)
		})
		for task := int64(tasks / 2); task < tasks; task++ {
			step(t, "submit a task", func(ctx context.Context) error { return crew.Submit(ctx, task) })
		}
		step(t, "wait for the tasks", seen.wait)
	})
	step(t, "stop", stop)
	if worked {
		seen.check(t)
	}
	expectNobody(t, url)
}

// RunStop stops a contestant's crew while it works on many tasks, and expects
// that to take no longer than what it has begun, and nothing to be left. What
// the crew says of it is not looked at.
func CheckStop(t *testing.T, c harness.System) {
	t.Helper()
	url := setUp(t, c)
	begun := make(chan struct{})
	var once sync.Once
	crew := start(t, c, url, harness.Options{Slots: 2, WorkTime: 20 * time.Millisecond, Observe: func(m harness.Observation) {
		once.Do(func() { close(begun) })
	}})
	t.Run("works", func(t *testing.T) {
		step(t, "submit many tasks", func(ctx context.Context) error { return crew.SubmitAll(ctx, 0, 300) })
		step(t, "wait for the first", func(ctx context.Context) error {
			select {
			case <-begun:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	})
	step(t, "stop", func(ctx context.Context) error {
		_ = crew.Stop(ctx)
		return context.Cause(ctx)
	})
	expectNobody(t, url)
}

// setUp makes a database with the contestant's tables.
func setUp(t *testing.T, c harness.System) (url string) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a server of its own, and some seconds")
	}
	url = database(t)
	step(t, "set up", func(ctx context.Context) error { return c.Setup(ctx, url) })
	return url
}

func start(t *testing.T, c harness.System, url string, o harness.Options) (crew harness.Workers) {
	t.Helper()
	step(t, "start", func(ctx context.Context) (err error) {
		crew, err = c.Start(ctx, url, o)
		return err
	})
	return crew
}

// step does something within its time.
func step(t *testing.T, what string, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	err := do(ctx)
	if errors.Is(err, harness.ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// database is an empty one on a server of its own.
func database(t *testing.T) (url string) {
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
	if err := s.CreateDatabase(t.Context(), "contest"); err != nil {
		t.Fatal(err)
	}
	return s.URL("contest")
}

// expectNobody expects nobody else to be connected. The server may need a
// moment to see that they have left.
func expectNobody(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	const others = `select count(*) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'`
	n := -1
	for deadline := time.Now().Add(10 * time.Second); n != 0; time.Sleep(10 * time.Millisecond) {
		if err := conn.QueryRow(t.Context(), others).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 && time.Now().After(deadline) {
			t.Fatalf("%d connections are left of the crew", n)
		}
	}
}
