package river

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/cuelight/cuelight/bench/system"
)

// workers are a client of River; they perform the jobs of all stages themselves.
type workers struct {
	river.WorkerDefaults[jobArgs]
	system.Options
	form   form
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
	errs   system.FirstError
}

// Start starts a client of River with workers for all stages.
func (f form) Start(ctx context.Context, url string, o system.Options) (system.Workers, error) {
	pool, err := system.OpenPool(ctx, url, connections)
	if err != nil {
		return nil, fmt.Errorf("start River: %w", err)
	}
	w := &workers{Options: o, form: f, pool: pool}
	if err := w.start(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("start River: %w", errors.Join(err, w.errs.Err()))
	}
	return w, nil
}

func (w *workers) start(ctx context.Context) (err error) {
	registry := river.NewWorkers()
	river.AddWorker(registry, w)
	queues := make(map[string]river.QueueConfig)
	for _, stage := range system.Stages {
		queues[stage.String()] = river.QueueConfig{MaxWorkers: max(1, w.Slots)}
	}
	w.client, err = river.NewClient(riverpgxv5.New(w.pool), &river.Config{
		FetchCooldown:     w.form.cooldown,
		FetchPollInterval: w.form.pollInterval,
		Logger:            w.errs.Logger(),
		Queues:            queues,
		Workers:           registry,
	})
	if err != nil {
		return err
	}
	// The context of River's Start cancels all work when it ends.
	if err := w.client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if err := w.waitForListener(ctx); err != nil {
		return errors.Join(err, w.client.StopAndCancel(context.WithoutCancel(ctx)))
	}
	return nil
}

// waitForListener waits until River listens for new jobs, which it starts to do after Start.
func (w *workers) waitForListener(ctx context.Context) error {
	const listeningSQL = `select exists (select from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and query ilike 'listen %' and state = 'idle')`
	for listening := false; ; time.Sleep(5 * time.Millisecond) {
		if err := w.pool.QueryRow(ctx, listeningSQL).Scan(&listening); err != nil || listening {
			return err
		}
	}
}

// Work performs a stage. River calls it for each job.
func (w *workers) Work(ctx context.Context, job *river.Job[jobArgs]) error {
	task, stage := job.Args.Task, job.Args.Stage
	if err := w.DoWork(ctx, task, stage, job.Attempt); err != nil {
		return err
	}
	advance := w.insertNext
	if w.form.tx {
		advance = w.completeAndInsertNext
	}
	if err := advance(ctx, job); err != nil {
		return err
	}
	w.ReportCompleted(task, stage)
	return nil
}

// completeAndInsertNext completes the job and inserts the next ones in one transaction.
func (w *workers) completeAndInsertNext(ctx context.Context, job *river.Job[jobArgs]) error {
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		if _, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job); err != nil {
			return err
		}
		next, err := nextStages(ctx, tx, job.Args)
		if err != nil || len(next) == 0 {
			return err
		}
		_, err = w.client.InsertManyTx(ctx, tx, jobs(job.Args.Task, next...))
		return err
	})
}

// insertNext inserts the next jobs; River completes this one later.
func (w *workers) insertNext(ctx context.Context, job *river.Job[jobArgs]) error {
	next, err := nextStages(ctx, w.pool, job.Args)
	if err != nil || len(next) == 0 {
		return err
	}
	_, err = w.client.InsertMany(ctx, jobs(job.Args.Task, next...))
	return err
}

// arriveSQL sets a stage's bit and returns all bits of the task. It can be repeated.
const arriveSQL = `insert into arrivals as a (task, done) values ($1, $2)
on conflict (task) do update set done = a.done | excluded.done
returning done`

// nextStages returns the stages that can start once this one is completed.
func nextStages(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, a jobArgs) ([]system.Stage, error) {
	switch a.Stage {
	case system.Ingest:
		return []system.Stage{system.Transcode, system.Metadata}, nil
	case system.Assemble:
		return []system.Stage{system.Publish}, nil
	case system.Publish:
		return nil, nil
	}
	const both = 1<<system.Transcode | 1<<system.Metadata
	var done int
	if err := db.QueryRow(ctx, arriveSQL, a.Task, 1<<a.Stage).Scan(&done); err != nil || done != both {
		return nil, err
	}
	return []system.Stage{system.Assemble}, nil
}

// Submit inserts the job for the first stage of a task.
func (w *workers) Submit(ctx context.Context, task int64) error {
	if _, err := w.client.InsertMany(ctx, jobs(task, system.Ingest)); err != nil {
		return fmt.Errorf("insert job: %w", err)
	}
	return nil
}

// SubmitAll inserts many jobs with COPY.
func (w *workers) SubmitAll(ctx context.Context, first int64, n int) error {
	return insertAll(ctx, w.client, first, n)
}

// Stop waits for running work and cancels it when ctx is done.
func (w *workers) Stop(ctx context.Context) error {
	err := w.client.Stop(ctx)
	if err != nil {
		err = errors.Join(err, w.client.StopAndCancel(context.WithoutCancel(ctx))) // returns at once
	}
	w.pool.Close()
	return errors.Join(err, w.errs.Err())
}
