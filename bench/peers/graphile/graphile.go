package graphile

import (
	"context"
	"embed"
	"fmt"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/peers/internal/node"
	"github.com/cuelight/cuelight/bench/peers/internal/peer"
)

//go:embed package.json package-lock.json worker.mjs
var files embed.FS

var app = node.App{Name: "graphile", Files: files, Script: "worker.mjs"}

// System is Graphile Worker.
var System = harness.System{
	Name: "graphile",
	Settings: "Graphile Worker 0.18.0 on Node 22: a task for each stage adds the next, a crash can repeat a stage; " +
		"localQueue 500, completion in batches, 25 connections",
	Setup: setUp, Start: start,
	Preload: func(ctx context.Context, url string, first int64, n int) error {
		return harness.Exec(ctx, url, addJobsSQL, first, n)
	},
}

// setUp installs it and creates its tables.
func setUp(ctx context.Context, url string) error {
	if err := app.Setup(ctx, url); err != nil {
		return err
	}
	return harness.Exec(ctx, url, peer.ArrivalsTable)
}

const (
	addJobSQL  = `select from graphile_worker.add_job('ingest', json_build_object('task', $1::bigint))`
	addJobsSQL = `select count(*) from graphile_worker.add_jobs(array(
	select ('ingest', json_build_object('task', task), null, null, null, null, null, null)::graphile_worker.job_spec
	from generate_series($1::bigint, $1::bigint + $2::bigint - 1) task
))`
)

type workers struct {
	peer.SQLSubmitter
	process *node.Process
}

// start starts a process of Node with a pool of workers.
func start(ctx context.Context, url string, o harness.Options) (harness.Workers, error) {
	pool, err := harness.OpenPool(ctx, url, 0)
	if err != nil {
		return nil, fmt.Errorf("start Graphile Worker: %w", err)
	}
	process, err := app.Start(ctx, url, o)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &workers{peer.SQLSubmitter{Pool: pool, SubmitSQL: addJobSQL, SubmitAllSQL: addJobsSQL}, process}, nil
}

// Stop lets the process finish and waits for it.
func (w *workers) Stop(ctx context.Context) error {
	defer w.Pool.Close()
	return w.process.Stop(ctx)
}
