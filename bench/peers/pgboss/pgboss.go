package pgboss

import (
	"context"
	"embed"
	"errors"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/peers/internal/node"
)

//go:embed package.json package-lock.json worker.mjs
var files embed.FS

var app = node.App{Name: "pgboss", Files: files, Script: "worker.mjs"}

// System is pg-boss.
type System struct{}

// Name returns its name in results.
func (System) Name() string { return "pgboss" }

// Settings describes the configuration.
func (System) Settings() string {
	return "pg-boss 12.30.0 on Node 22: a batch of each stage inserts the next jobs, a crash can repeat it; " +
		"useListenNotify, a batch of up to as many as there are slots, burstWhenBatchFull, a partition per queue, " +
		"polls every 0.5 s, 20 connections"
}

// Setup installs it and creates its tables.
func (System) Setup(ctx context.Context, url string) error { return app.Setup(ctx, url) }

// Preload inserts jobs while no worker runs.
func (System) Preload(ctx context.Context, url string, first int64, n int) error {
	process, err := app.StartSubmitter(ctx, url)
	if err != nil {
		return err
	}
	return errors.Join(process.SubmitAll(ctx, first, n), process.Stop(ctx))
}

// Start starts a process of Node with a worker for each stage. That process also inserts
// the jobs: pg-boss has an interface for Node only.
func (System) Start(ctx context.Context, url string, o harness.Options) (harness.Workers, error) {
	return app.Start(ctx, url, o)
}
