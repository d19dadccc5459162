package river

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/peers/internal/work"
)

// connections is the size of the pool.
const connections = 20

type crew struct {
	*worker
	trouble work.ErrorList
}

// Start starts a client of River with workers for all stages.
func (c *system) Start(ctx context.Context, url string, o harness.Options) (harness.Workers, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("start River: %w", err)
	}
	config.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("start River: %w", err)
	}
	crew := &crew{worker: &worker{Options: o, tx: c.tx, pool: pool}}
	if err := crew.start(ctx, c); err != nil {
		pool.Close()
		return nil, fmt.Errorf("start River: %w", errors.Join(err, crew.trouble.Err()))
	}
	return crew, nil
}

func (c *crew) start(ctx context.Context, how *system) (err error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, c.worker)
	queues := make(map[string]river.QueueConfig)
	for s := range harness.Stage(harness.StageCount) {
		queues[s.String()] = river.QueueConfig{MaxWorkers: max(1, c.Slots)}
	}
	c.client, err = river.NewClient(riverpgxv5.New(c.pool), &river.Config{
		FetchCooldown:     how.cooldown,
		FetchPollInterval: how.poll,
		Logger:            c.trouble.Logger(),
		Queues:            queues,
		Workers:           workers,
	})
	if err != nil {
		return err
	}
	// What is given to Start ends all work when it is done.
	if err := c.client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if err := c.listens(ctx); err != nil {
		return errors.Join(err, c.client.StopAndCancel(context.WithoutCancel(ctx)))
	}
	return nil
}

// listens waits until River hears of new jobs, which it begins to do after its
// Start.
func (c *crew) listens(ctx context.Context) error {
	const listening = `select exists (select from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and query ilike 'listen %' and state = 'idle')`
	for heard := false; ; time.Sleep(5 * time.Millisecond) {
		if err := c.pool.QueryRow(ctx, listening).Scan(&heard); err != nil || heard {
			return err
		}
	}
}

// Submit inserts the job for the first stage of a task.
func (c *crew) Submit(ctx context.Context, task int64) error {
	if _, err := c.client.InsertMany(ctx, jobs(task, harness.Ingest)); err != nil {
		return fmt.Errorf("insert job: %w", err)
	}
	return nil
}

// SubmitAll does it for many, with COPY.
func (c *crew) SubmitAll(ctx context.Context, first int64, n int) error {
	return insertAll(ctx, c.client, first, n)
}

// Stop waits for what is being worked on. When ctx is done before that, it ends
// it.
func (c *crew) Stop(ctx context.Context) error {
	err := c.client.Stop(ctx)
	if err != nil {
		// Nothing waits any more, so it takes no time.
		err = errors.Join(err, c.client.StopAndCancel(context.WithoutCancel(ctx)))
	}
	c.pool.Close()
	return errors.Join(err, c.trouble.Err())
}
