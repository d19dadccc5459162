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
	"github.com/riverqueue/river/rivermigrate"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/peers/internal/work"
)

type system struct {
	name     string
	tx       bool
	cooldown time.Duration // 0: River's default
	poll     time.Duration // 0: River's default
	settings string
}

func (c *system) Name() string     { return c.name }
func (c *system) Settings() string { return c.settings }

// arrivals is where the siblings meet that Assemble waits for. The second one
// updates the first one's row, which has room for that on its page.
const arrivals = `create table arrivals (task bigint primary key, done int not null) with (fillfactor = 80)`

// arrive says which siblings of a task have arrived, this one included. It may
// come twice.
const arrive = `insert into arrivals as a (task, done) values ($1, $2)
on conflict (task) do update set done = a.done | excluded.done
returning done`

const everybody = 1<<harness.Transcode | 1<<harness.Metadata

// Setup makes River's tables, and the one for the siblings.
func (c *system) Setup(ctx context.Context, url string) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return fmt.Errorf("connect for River: %w", err)
	}
	defer pool.Close()
	var trouble work.ErrorList
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: trouble.Logger()})
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err == nil {
		_, err = pool.Exec(ctx, arrivals)
	}
	if err := errors.Join(err, trouble.Err()); err != nil {
		return fmt.Errorf("make River's tables: %w", err)
	}
	return nil
}

// Fill inserts tasks while nobody works.
func (c *system) Preload(ctx context.Context, url string, first int64, n int) error {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return fmt.Errorf("connect for River: %w", err)
	}
	defer pool.Close()
	var trouble work.ErrorList
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: trouble.Logger()})
	if err == nil {
		err = insertAll(ctx, client, first, n)
	}
	return errors.Join(err, trouble.Err())
}

// insertAll inserts the first jobs of tasks in one transaction.
func insertAll(ctx context.Context, client *river.Client[pgx.Tx], first int64, n int) error {
	params := make([]river.InsertManyParams, 0, n)
	for i := range n {
		params = append(params, jobs(first+int64(i), harness.Ingest)...)
	}
	if _, err := client.InsertManyFast(ctx, params); err != nil {
		return fmt.Errorf("insert jobs: %w", err)
	}
	return nil
}

// args are what a job of River is about.
type args struct {
	Task  int64         `json:"task"`
	Stage harness.Stage `json:"stage"`
}

func (args) Kind() string { return "stage" }

// jobs are a job for each of the stages.
func jobs(task int64, stages ...harness.Stage) []river.InsertManyParams {
	params := make([]river.InsertManyParams, len(stages))
	for i, s := range stages {
		params[i] = river.InsertManyParams{
			Args: args{Task: task, Stage: s}, InsertOpts: &river.InsertOpts{Queue: s.String()},
		}
	}
	return params
}
