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

// System is pg-boss. The process of Node also inserts the jobs: pg-boss has an interface for Node
// only.
var System = harness.System{
	Name: "pgboss",
	Settings: "pg-boss 12.30.0 on Node 22: a batch of each stage inserts the next jobs, a crash can repeat it; " +
		"useListenNotify, a batch of up to as many as there are slots, burstWhenBatchFull, a partition per queue, " +
		"polls every 0.5 s, 20 connections",
	Setup: app.Setup,
	Start: func(ctx context.Context, url string, o harness.Options) (harness.Workers, error) {
		return app.Start(ctx, url, o)
	},
	Preload: preload,
}

// preload inserts jobs while no worker runs.
func preload(ctx context.Context, url string, first int64, n int) error {
	process, err := app.StartSubmitter(ctx, url)
	if err != nil {
		return err
	}
	return errors.Join(process.SubmitAll(ctx, first, n), process.Stop(ctx))
}
