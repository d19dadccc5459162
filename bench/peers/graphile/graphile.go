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
type System struct{}

// Name returns its name in results.
func (System) Name() string { return "graphile" }

// Settings describes the configuration.
func (System) Settings() string {
	return "Graphile Worker 0.18.0 on Node 22: a task for each stage adds the next, a crash can repeat a stage; " +
		"localQueue 500, completion in batches, 25 connections"
}

// Setup installs it and creates its tables.
func (System) Setup(ctx context.Context, url string) error {
	if err := app.Setup(ctx, url); err != nil {
		return err
	}
	return peer.Exec(ctx, url, peer.ArrivalsTable)
}

const (
	addJobSQL  = `select from graphile_worker.add_job('ingest', json_build_object('task', $1::bigint))`
	addJobsSQL = `select count(*) from graphile_worker.add_jobs(array(
	select ('ingest', json_build_object('task', task), null, null, null, null, null, null)::graphile_worker.job_spec
	from generate_series($1::bigint, $1::bigint + $2::bigint - 1) task
))`
)

// Preload adds jobs while no worker runs.
func (System) Preload(ctx context.Context, url string, first int64, n int) error {
	return peer.Exec(ctx, url, addJobsSQL, first, n)
}

type workers struct {
	peer.SQLSubmitter
	process *node.Process
}

// Start starts a process of Node with a pool of workers.
func (System) Start(ctx context.Context, url string, o harness.Options) (harness.Workers, error) {
	pool, err := peer.OpenPool(ctx, url, 0)
	if err != nil {
		return nil, fmt.Errorf("start Graphile Worker: %w", err)
	}
	process, err := app.Start(ctx, url, o)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &workers{peer.SQLSubmitter{Pool: pool, One: addJobSQL, Many: addJobsSQL}, process}, nil
}

// Stop lets the process finish and waits for it.
func (w *workers) Stop(ctx context.Context) error {
	defer w.Pool.Close()
	return w.process.Stop(ctx)
}
