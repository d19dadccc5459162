package river

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/peers/internal/work"
)

// worker does the jobs of all stages.
type worker struct {
	river.WorkerDefaults[args]
	harness.Options
	tx     bool
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

func (w *worker) Work(ctx context.Context, job *river.Job[args]) error {
	task, stage := job.Args.Task, job.Args.Stage
	if err := work.Work(ctx, w.Options, task, stage); err != nil {
		return err
	}
	follow := w.follow
	if w.tx {
		follow = w.completeAndFollow
	}
	if err := follow(ctx, job); err != nil {
		return err
	}
	work.Completed(w.Options, task, stage)
	return nil
}

// completeAndFollow completes the job and inserts what follows: both or none.
func (w *worker) completeAndFollow(ctx context.Context, job *river.Job[args]) error {
	return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
		if _, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job); err != nil {
			return err
		}
		next, err := following(ctx, tx, job.Args)
		if err != nil || len(next) == 0 {
			return err
		}
		_, err = w.client.InsertManyTx(ctx, tx, jobs(job.Args.Task, next...))
		return err
	})
}

// follow inserts what follows, and leaves the completion to River.
func (w *worker) follow(ctx context.Context, job *river.Job[args]) error {
	next, err := following(ctx, w.pool, job.Args)
	if err != nil || len(next) == 0 {
		return err
	}
	_, err = w.client.InsertMany(ctx, jobs(job.Args.Task, next...))
	return err
}

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// following are the stages that can begin once this one is completed.
func following(ctx context.Context, db querier, a args) ([]harness.Stage, error) {
	if !work.Joins(a.Stage) {
		return work.After(a.Stage), nil
	}
	var done int
	if err := db.QueryRow(ctx, arrive, a.Task, 1<<a.Stage).Scan(&done); err != nil || done != everybody {
		return nil, err
	}
	return []harness.Stage{harness.Assemble}, nil
}
