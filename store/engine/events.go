package engine

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/statement"
)

// runBackground runs a statement that must not wait long for a lock: while it waits, heartbeats may lack its connection.
func (e *Engine) runBackground(ctx context.Context, sql string, args []any, read func(pgx.Rows) error) error {
	var batch pgx.Batch
	batch.Queue(statement.LimitLockWaitSQL, statement.BackgroundLockWait)
	batch.Queue(sql, args...).Query(read)
	return e.db.SendBatch(ctx, &batch).Close()
}

// execBackground is runBackground for a statement without rows.
func (e *Engine) execBackground(ctx context.Context, act, sql string, args ...any) error {
	return e.explain(act, e.runBackground(ctx, e.graph.SQL(sql, nil), args, func(rows pgx.Rows) error {
		rows.Close()
		return rows.Err()
	}))
}

const notifyEventsSQL = `
/* notify readers of events */
select pg_notify($1, '') where pg_notification_queue_usage() < 0.9`

// NotifyEvents notifies the readers of events, on [store.Graph.EventsChannel].
func (e *Engine) NotifyEvents(ctx context.Context) error {
	_, err := e.db.Exec(ctx, notifyEventsSQL, e.graph.EventsChannel())
	return e.explain("notify readers of events", err)
}

// pruneEventsSQL deletes the oldest events and records the last deleted id, for readers
// that ask for events after an earlier one.
const pruneEventsSQL = `
/* prune events */
with pruned as (
  delete from {{.Outbox}}
   where id in (select id
                  from (select id, at from {{.Outbox}} order by id limit $2) as oldest
                 where at < now() - make_interval(secs => $1))
     and (select at from {{.Outbox}} order by id limit 1) < now() - make_interval(secs => $1)
  returning id
), recorded as (
  update cuelight_schema set pruned_to = greatest(pruned_to,
         (select max(e.id) from {{.Prefix}}events e where e.outbox_id = (select max(id) from pruned)))
   where pipeline = $3 and exists (select from pruned)
)
select count(*) from pruned`

// pruneBatch is how many rows of the outbox one transaction deletes.
const pruneBatch = 5000

// PruneEvents deletes rows of the outbox older than keep, in one batch. It returns their number, and whether there may
// be more, so that it should be called again.
func (e *Engine) PruneEvents(ctx context.Context, keep time.Duration) (deleted int, more bool, err error) {
	err = e.runBackground(ctx, e.sql.pruneEvents, []any{keep.Seconds(), pruneBatch, e.graph.Name()}, func(rows pgx.Rows) error {
		deleted, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
		return err
	})
	return deleted, deleted == pruneBatch, e.explain("prune events", err)
}
