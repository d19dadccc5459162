// Package peer has what several peers need of a database.
package peer

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

// ArrivalsTable creates the table that joins transcode and metadata: each sets its bit in
// the task's row, and the second one starts assemble. That update finds room on the page.
const ArrivalsTable = `create table arrivals (task bigint primary key, done int not null) with (fillfactor = 80)`

// SQLSubmitter implements Submit and SubmitAll of harness.Workers with SQL.
type SQLSubmitter struct {
	Pool         *pgxpool.Pool
	SubmitSQL    string // submits the task $1
	SubmitAllSQL string // submits $2 tasks from number $1 on
}

// Submit submits a task.
func (s SQLSubmitter) Submit(ctx context.Context, task int64) error {
	if _, err := s.Pool.Exec(ctx, s.SubmitSQL, task); err != nil {
		return fmt.Errorf("submit task: %w", err)
	}
	return nil
}

// SubmitAll submits tasks with one statement.
func (s SQLSubmitter) SubmitAll(ctx context.Context, first int64, n int) error {
	if _, err := s.Pool.Exec(ctx, s.SubmitAllSQL, first, n); err != nil {
		return fmt.Errorf("submit tasks: %w", err)
	}
	return nil
}
