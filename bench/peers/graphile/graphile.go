package graphile

import (
	"context"
	"embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/peers/internal/node"
	"github.com/cuelight/cuelight/bench/peers/internal/work"
)

//go:embed package.json package-lock.json worker.mjs
var files embed.FS

// Graphile is Graphile Worker.
type System struct{}

// New is Graphile Worker.
func New() System { return System{} }

// Name is its word in results.
func (System) Name() string { return "graphile" }

// Settings says how it was set up.
func (System) Settings() string {
	return "Graphile Worker 0.18.0 on Node 22: a task for each stage adds the next, a crash can repeat a stage; " +
		"localQueue 500, completion in batches, 25 connections"
}

func app() node.App { return node.App{Name: "graphile", Files: files, Script: "worker.mjs"} }

// arrivals is where the siblings meet that assemble waits for.
const arrivals = `create table arrivals (task bigint primary key, done int not null) with (fillfactor = 80)`

// Setup installs it, and makes its tables and that for the siblings.
func (System) Setup(ctx context.Context, url string) error {
	if err := app().Setup(ctx, url); err != nil {
		return err
	}
	return exec(ctx, url, arrivals)
}

// Fill adds jobs while nobody works.
func (System) Preload(ctx context.Context, url string, first int64, n int) error {
	return exec(ctx, url, addAll, first, n)
}

func exec(ctx context.Context, url, sql string, args ...any) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect for Graphile Worker: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, sql, args...); err != nil {
		return fmt.Errorf("prepare for Graphile Worker: %w", err)
	}
	return nil
}

const (
	add    = `select from graphile_worker.add_job('ingest', json_build_object('task', $1::bigint))`
	addAll = `select count(*) from graphile_worker.add_jobs(array(
	select ('ingest', json_build_object('task', task), null, null, null, null, null, null)::graphile_worker.job_spec
	from generate_series($1::bigint, $1::bigint + $2::bigint - 1) task
))`
)

// Start starts a process of Node with a pool of workers.
func (System) Start(ctx context.Context, url string, o harness.Options) (harness.Workers, error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("connect for Graphile Worker: %w", err)
	}
	c := &crew{pool: pool}
	if c.process, err = app().Start(ctx, url, o, &c.trouble); err != nil {
		pool.Close()
		return nil, errors.Join(err, c.trouble.Err())
	}
	return c, nil
}

type crew struct {
	pool    *pgxpool.Pool
	process *node.Process
	trouble work.ErrorList
}

// Submit adds a job in SQL, which whoever has a connection can do.
func (c *crew) Submit(ctx context.Context, task int64) error {
	if _, err := c.pool.Exec(ctx, add, task); err != nil {
		return fmt.Errorf("add job: %w", err)
	}
	return nil
}

// SubmitAll adds many, with one call.
func (c *crew) SubmitAll(ctx context.Context, first int64, n int) error {
	if _, err := c.pool.Exec(ctx, addAll, first, n); err != nil {
		return fmt.Errorf("add jobs: %w", err)
	}
	return nil
}

// Stop lets the process finish, and waits for it.
func (c *crew) Stop(ctx context.Context) error {
	err := c.process.Stop(ctx)
	c.pool.Close()
	return errors.Join(err, c.trouble.Err())
}
