// Package peer has the database helpers that several peers need.
package peer

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ArrivalsTable creates the table that joins transcode and metadata: each sets its bit in
// the task's row, and the second one starts assemble. That update finds room on the page.
const ArrivalsTable = `create table arrivals (task bigint primary key, done int not null) with (fillfactor = 80)`

// Exec executes a statement on a connection of its own.
func Exec(ctx context.Context, url, sql string, args ...any) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, sql, args...)
	return err
}

// OpenPool returns a pool that is connected. 0 connections is pgxpool's default.
func OpenPool(ctx context.Context, url string, connections int32) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	if connections > 0 {
		config.MaxConns = connections
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("connect: %w", err)
	}
	return pool, nil
}

// SQLSubmitter implements Submit and SubmitAll of harness.Workers with SQL.
type SQLSubmitter struct {
	Pool *pgxpool.Pool
	One  string // submits the task $1
	Many string // submits $2 tasks from number $1 on
}

// Submit submits a task.
func (s SQLSubmitter) Submit(ctx context.Context, task int64) error {
	if _, err := s.Pool.Exec(ctx, s.One, task); err != nil {
		return fmt.Errorf("submit task: %w", err)
	}
	return nil
}

// SubmitAll submits tasks with one statement.
func (s SQLSubmitter) SubmitAll(ctx context.Context, first int64, n int) error {
	if _, err := s.Pool.Exec(ctx, s.Many, first, n); err != nil {
		return fmt.Errorf("submit tasks: %w", err)
	}
	return nil
}
