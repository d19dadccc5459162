package engine

import (
	"context"
	"time"
)

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
	err = e.db.QueryRow(ctx, e.sql.pruneEvents, keep.Seconds(), pruneBatch, e.graph.Name()).Scan(&deleted)
	return deleted, deleted == pruneBatch, e.explain("prune events", err)
}
