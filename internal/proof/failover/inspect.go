package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/internal/proof/invariant"
)

// settleWithin is how long the workers may take for what is left, once nothing
// more is submitted: a lost claim is taken up again after a lease and a sweep.
const settleWithin = 90 * time.Second

// These statements ask the tables themselves, and not through the package that
// is being tested.
const openSQL = `
select count(*) from failover_tasks
 where 'completed' <> any(array[ingest_status, transcode_status, metadata_status, assemble_status, publish_status])`

const completedSQL = `
select count(*) from failover_tasks
 where 'completed' = all(array[ingest_status, transcode_status, metadata_status, assemble_status, publish_status])`

const lostSQL = `
select count(*) from unnest($1::text[], $2::text[]) as acknowledged (request, task)
 where not exists (
   select from failover_tasks t
    where t.id = acknowledged.task::uuid and t.request_id = acknowledged.request
      and 'completed' = all(array[ingest_status, transcode_status, metadata_status, assemble_status, publish_status])
      and 5 = (select count(distinct stage) from failover_attempts a where a.task_id = t.id and a.outcome = 'completed'))`

const duplicatedSQL = `
select count(*) from (
  select from failover_attempts where outcome = 'completed' group by task_id, stage having count(*) > 1) as twice`

// settled waits until there is nothing left to do. That there is after a while
// is for inspect to say.
func settled(ctx context.Context, t *progresslog.Log, pool *pgxpool.Pool) error {
	for began := time.Now(); ; {
		var open int
		if err := pool.QueryRow(ctx, openSQL).Scan(&open); err != nil {
			return fmt.Errorf("count open tasks: %w", err)
		}
		switch {
		case open == 0:
			t.Logf("all tasks are completed, %.1f s after the last submission", time.Since(began).Seconds())
			return nil
		case time.Since(began) > settleWithin:
			t.Logf("%d tasks are still not completed, %.0f s after the last submission", open, settleWithin.Seconds())
			return nil
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// inspect counts what is there, and what should not be.
func inspect(ctx context.Context, t *progresslog.Log, pool *pgxpool.Pool, l *load, sum *summary) error {
	requests := slices.Sorted(maps.Keys(l.acknowledged))
	tasks := make([]string, len(requests))
	for i, r := range requests {
		tasks[i] = l.acknowledged[r].String()
	}
	for _, ask := range []struct {
		sql  string
		args []any
		into *int
	}{
		{completedSQL, nil, &sum.Completed},
		{lostSQL, []any{requests, tasks}, &sum.Lost},
		{duplicatedSQL, nil, &sum.Duplicated},
	} {
		if err := pool.QueryRow(ctx, ask.sql, ask.args...).Scan(ask.into); err != nil {
			return fmt.Errorf("inspect tables: %w", err)
		}
	}
	violations, err := invariant.Check(ctx, pool, graph(), invariant.Options{
		Settled: true, NoRetries: true, Committed: requests,
	})
	if err != nil {
		return err
	}
	for _, v := range violations {
		t.Logf("VIOLATION %s", v)
	}
	sum.Violations = len(violations)
	return nil
}
