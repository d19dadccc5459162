package pgboss

import (
	"context"
	"embed"
	"errors"
	"fmt"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/peers/internal/node"
	"github.com/cuelight/cuelight/bench/peers/internal/work"
)

//go:embed package.json package-lock.json worker.mjs
var files embed.FS

// PgBoss is pg-boss.
type System struct{}

// New is pg-boss.
func New() System { return System{} }

// Name is its word in results.
func (System) Name() string { return "pgboss" }

// Settings says how it was set up.
func (System) Settings() string {
	return "pg-boss 12.30.0 on Node 22: a batch of each stage inserts the next jobs, a crash can repeat it; " +
		"useListenNotify, a batch of up to as many as there are slots, burstWhenBatchFull, a partition per queue, polls every 0.5 s, 20 connections"
}

func app() node.App { return node.App{Name: "pgboss", Files: files, Script: "worker.mjs"} }

// Setup installs it, and makes its tables and that for the siblings.
func (System) Setup(ctx context.Context, url string) error { return app().Setup(ctx, url) }

// Fill inserts jobs while nobody works.
func (System) Preload(ctx context.Context, url string, first int64, n int) error {
	c := &crew{}
	var err error
	if c.process, err = app().Idle(ctx, url, &c.trouble); err != nil {
		return errors.Join(err, c.trouble.Err())
	}
	err = c.SubmitAll(ctx, first, n)
	return errors.Join(err, c.Stop(ctx))
}

// Start starts a process of Node with a worker for each stage.
func (System) Start(ctx context.Context, url string, o harness.Options) (harness.Workers, error) {
	c := &crew{}
	var err error
	if c.process, err = app().Start(ctx, url, o, &c.trouble); err != nil {
		return nil, errors.Join(err, c.trouble.Err())
	}
	return c, nil
}

type crew struct {
	process *node.Process
	trouble work.ErrorList
}

// Submit has the process insert a job: pg-boss has no interface but that for
// Node.
func (c *crew) Submit(ctx context.Context, task int64) error { return c.SubmitAll(ctx, task, 1) }

// SubmitAll has it insert many, with one statement.
func (c *crew) SubmitAll(ctx context.Context, first int64, n int) error {
	if err := c.process.Submit(ctx, first, n); err != nil {
		return fmt.Errorf("insert jobs: %w", err)
	}
	return nil
}

// Stop lets the process finish, and waits for it.
func (c *crew) Stop(ctx context.Context) error {
	return errors.Join(c.process.Stop(ctx), c.trouble.Err())
}
