package cuelight

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/store"
)

// grow adds to the database: finished tasks with their history; rows of the history, of a thousand finished
// tasks; tasks that wait for their scheduled time; readers of all events; or further pipelines, which share
// the tasks. Those "pruned" are finished tasks that are deleted in batches during the drain. For "stages" the
// tasks are those of a chain of n, for "users" those of n users.
func grow(ctx context.Context, url, kind string, n int) (harness.Grown, error) {
	switch kind {
	case "finished":
		return harness.Grown{}, addFinishedTasks(ctx, url, n)
	case "pruned":
		return startPruning(ctx, url, n)
	case "users":
		return newSystems(ctx, url, []shape{{name: builtIn.name, users: n}})
	case "history":
		return harness.Grown{}, addHistory(ctx, url, n)
	case "scheduled":
		return harness.Grown{}, addScheduledTasks(ctx, url, n)
	case "readers":
		return startReaders(ctx, url, n)
	case "pipelines":
		return addPipelines(ctx, url, n)
	case "stages":
		return newSystems(ctx, url, []shape{{name: "chain", chain: n}})
	}
	return harness.Grown{}, fmt.Errorf("a database does not grow by %q", kind)
}

const historySQL = `
insert into attempts (task_id, token, stage, attempt, worker_id, started_at, finished_at, outcome, error, retry_at)
select tasks.id, gen_random_uuid(), 'transcode', n, workers.id,
       tasks.created_at + n * interval '1 s', tasks.created_at + n * interval '1 s', 'failed', 'an error as it is usual',
       tasks.created_at + (n + 1) * interval '1 s'
  from (select id, created_at from tasks limit 1000) as tasks
 cross join (select id from workers limit 1) as workers
 cross join generate_series(1, $1::int4 / 1000) as n`

// addHistory adds failed attempts to the history.
func addHistory(ctx context.Context, url string, rows int) error {
	if err := addFinishedTasks(ctx, url, 1000); err != nil {
		return err
	}
	return harness.WithConn(ctx, url, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, historySQL, rows)
		if err == nil {
			_, err = conn.Exec(ctx, "vacuum analyze attempts")
		}
		return err
	})
}

// addScheduledTasks submits tasks for tomorrow.
func addScheduledTasks(ctx context.Context, url string, n int) error {
	return harness.WithConn(ctx, url, func(conn *pgx.Conn) error {
		s := store.New(conn, builtIn.graph())
		tomorrow := time.Now().Add(24 * time.Hour)
		const batch = 10_000
		for first := 0; first < n; first += batch {
			subs := make([]store.Submission, min(batch, n-first))
			for i := range subs {
				subs[i] = submission(int64(first + i))
				subs[i].NotBefore = tomorrow.Add(time.Duration(first+i) * time.Millisecond)
			}
			if _, err := s.SubmitAll(ctx, subs); err != nil {
				return err
			}
		}
		_, err := conn.Exec(ctx, "vacuum analyze tasks, steps")
		return err
	})
}

// addPipelines returns n pipelines of the same shape.
func addPipelines(ctx context.Context, url string, n int) (harness.Grown, error) {
	shapes := []shape{builtIn}
	for i := 1; i < n; i++ {
		shapes = append(shapes, shape{name: fmt.Sprintf("video%d", i)})
	}
	return newSystems(ctx, url, shapes)
}

// newSystems creates the tables of pipelines.
func newSystems(ctx context.Context, url string, shapes []shape) (g harness.Grown, err error) {
	for _, s := range shapes {
		if err := s.setUp(ctx, url); err != nil {
			return g, err
		}
		g.Systems = append(g.Systems, harness.System{Name: systemName, Start: s.start, Preload: s.preload})
	}
	return g, nil
}

// startPruning adds finished tasks, and deletes them as a Runner with Retention does.
func startPruning(ctx context.Context, url string, n int) (harness.Grown, error) {
	if err := addFinishedTasks(ctx, url, n); err != nil {
		return harness.Grown{}, err
	}
	pruning, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() {
		var r store.PruneResult
		err := harness.WithConn(pruning, url, func(conn *pgx.Conn) (err error) {
			r, err = store.New(conn, builtIn.graph()).Prune(pruning, store.PruneOptions{Finished: 30 * time.Second})
			return err
		})
		if pruning.Err() != nil {
			err = nil
		} else if err == nil && n > 0 {
			err = fmt.Errorf("all %d tasks were deleted before the end", r.Finished)
		}
		ended <- err
	}()
	return harness.Grown{Stop: func() error {
		stop()
		return <-ended
	}}, nil
}

// startReaders starts readers that have a connection each, and read all new events when they are notified.
func startReaders(ctx context.Context, url string, n int) (harness.Grown, error) {
	reading, stop := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	var errs harness.ErrorList
	started := make(chan struct{}, n)
	for range n {
		all.Go(func() {
			defer signal(started)
			err := harness.WithConn(reading, url, func(conn *pgx.Conn) error {
				return readEvents(reading, conn, func() { started <- struct{}{} })
			})
			if reading.Err() == nil {
				errs.Add(err)
			}
		})
	}
	for range n {
		<-started
	}
	return harness.Grown{Stop: func() error {
		stop()
		all.Wait()
		return errs.Err()
	}}, errs.Err()
}

// readEvents reads events until ctx is done.
func readEvents(ctx context.Context, conn *pgx.Conn, listening func()) error {
	s := store.New(conn, builtIn.graph())
	after, err := s.EventWatermark(ctx)
	if err == nil {
		_, err = conn.Exec(ctx, "listen "+pgx.Identifier{builtIn.graph().EventsChannel()}.Sanitize())
	}
	if err != nil {
		return err
	}
	listening()
	for {
		events, err := s.Events(ctx, store.EventQuery{After: after})
		if err != nil {
			return err
		}
		if len(events) > 0 {
			after = events[len(events)-1].ID
			continue
		}
		waiting, cancel := context.WithTimeout(ctx, time.Second)
		_, err = conn.WaitForNotification(waiting)
		cancel()
		if err != nil && !errors.Is(waiting.Err(), context.DeadlineExceeded) {
			return err
		}
	}
}
