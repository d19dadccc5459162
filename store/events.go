package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// EventType is the kind of an [Event].
type EventType string

// The event types. A failed or expired attempt is followed by retry_scheduled or dead. A
// task ends with completed, dead or cancelled, see [EventType.FinishesTask], unless somebody
// retries it, which is a retry_scheduled again.
const (
	TaskSubmitted  EventType = "submitted"
	StageStarted   EventType = "started"  // a stage was claimed
	StageProgress  EventType = "progress" // Data: percent, speed, eta_s and note, as in [Running]
	StageDivided   EventType = "divided"  // into parts. Data: parts, and of a further division kept, error, error_class
	PartCompleted  EventType = "part_completed"
	StageCompleted EventType = "stage_completed"
	AttemptFailed  EventType = "attempt_failed"  // Data: error, error_class
	AttemptExpired EventType = "attempt_expired" // the worker of an attempt was lost. Data: error, error_class
	ClaimReleased  EventType = "released"        // a claim was released; not counted as an attempt. Data: error, error_class
	RetryScheduled EventType = "retry_scheduled" // Data: run_at, and error, error_class; or of a manual retry, stages
	StageDead      EventType = "dead"            // a stage used up its attempts. Data: error, error_class
	TaskCancelled  EventType = "cancelled"       // Data: stages
	TaskOverridden EventType = "overridden"      // Data: overridden_by
	TaskCompleted  EventType = "completed"       // all stages are completed
	TaskDeleted    EventType = "deleted"         // Data: keep_published, deleted_by, purge_at; none if its row was deleted
	TaskUndeleted  EventType = "undeleted"
	TaskPurged     EventType = "purged"         // the rest of a deleted task was removed
	WorkerStarted  EventType = "worker_started" // Data: name, host, pid, version
	WorkerStopped  EventType = "worker_stopped" // Data: name, host, pid
	WorkerLost     EventType = "worker_lost"    // Data: name, host, pid
	AlertRaised    EventType = "alert"          // a process reports a problem. Data: name
)

// EventTypes lists all event types.
func EventTypes() []EventType {
	return []EventType{
		TaskSubmitted, StageStarted, StageProgress, StageDivided, PartCompleted, StageCompleted, AttemptFailed,
		AttemptExpired, ClaimReleased, RetryScheduled,
		StageDead, TaskCancelled, TaskOverridden, TaskCompleted, TaskDeleted, TaskUndeleted, TaskPurged, WorkerStarted, WorkerStopped,
		WorkerLost, AlertRaised,
	}
}

// FinishesTask reports whether the event's task is finished, unless somebody retries it.
// Stages parallel to a dead one may still be running.
func (t EventType) FinishesTask() bool {
	return t == TaskCompleted || t == StageDead || t == TaskCancelled
}

// Event is one change, recorded in the transaction that made it.
type Event struct {
	ID      int64           `json:"id"` // increases, with gaps
	At      time.Time       `json:"at"`
	Type    EventType       `json:"type"`
	Task    ID              `json:"task_id,omitzero"`
	Stage   string          `json:"stage,omitempty"`
	Part    int             `json:"part,omitempty"` // of a divided stage, counted from 1
	Attempt int             `json:"attempt,omitempty"`
	Worker  ID              `json:"worker_id,omitzero"`
	Data    json.RawMessage `json:"data,omitempty"` // an object
	// UserContext is that of the task; nil for none, and for a task that was purged or whose row was deleted.
	UserContext json.RawMessage `json:"user_context,omitempty"`
}

// EventQuery selects events. Its zero value selects the oldest.
type EventQuery struct {
	After int64 // the id of the last event that was read
	Task  ID    // only events of this task
	Limit int   // default 1000
}

const eventsSQL = `
/* read events */
select id, at, type, task_id, coalesce(stage, ''), coalesce(part, 0), coalesce(attempt, 0), worker_id, data,
       user_context
  from cuelight_{name}_events($1, $2, $3)`

// Events reads the events after an id, in order. A reader that continues after the last
// event it read misses none and gets none twice: an event is shown only when all events
// before it are visible. So it waits for open transactions that wrote earlier events, such
// as submissions in a caller's transaction, which should therefore be short.
//
// It returns [ErrEventsGone] where events after After were deleted, or After does not exist
// in this database, for example after a restore. It needs a transaction of isolation level
// read committed.
func (s *Store) Events(ctx context.Context, q EventQuery) ([]Event, error) {
	if q.Limit <= 0 {
		q.Limit = 1000
	}
	return query(ctx, s, "read events", eventsSQL, func(row pgx.CollectableRow) (e Event, err error) {
		err = row.Scan(&e.ID, &e.At, &e.Type, &e.Task, &e.Stage, &e.Part, &e.Attempt, &e.Worker, &e.Data, &e.UserContext)
		return e, err
	}, q.After, q.Limit, q.Task)
}

const eventWatermarkSQL = `
/* read event watermark */
select cuelight_{name}_event_watermark() << 16 | 65535`

// EventWatermark returns the id up to which all events are visible, to read future events
// from with [Store.Events].
func (s *Store) EventWatermark(ctx context.Context) (int64, error) {
	var id int64
	err := s.queryRow(ctx, eventWatermarkSQL).Scan(&id)
	return id, s.explain("read event watermark", err)
}

const lastAllocatedEventSQL = `
/* read last allocated event */
select coalesce(pg_sequence_last_value('{outbox_id}'), 0) << 16 | 65535`

// LastAllocatedEvent returns an id that no event of a committed transaction exceeds. Some of
// them may not be visible yet, because an earlier transaction is open. When
// [Store.EventWatermark] has reached the id, all can be read.
func (s *Store) LastAllocatedEvent(ctx context.Context) (int64, error) {
	var id int64
	err := s.queryRow(ctx, lastAllocatedEventSQL).Scan(&id)
	return id, s.explain("read last allocated event", err)
}

const notifyEventsSQL = `
/* notify readers of events */
select pg_notify($1, '') where pg_notification_queue_usage() < 0.9`

// NotifyEvents notifies the readers of events, on [Graph.EventsChannel].
func (s *Store) NotifyEvents(ctx context.Context) error {
	_, err := s.db.Exec(ctx, notifyEventsSQL, s.graph.EventsChannel())
	return s.explain("notify readers of events", err)
}

// pruneEventsSQL deletes the oldest events and records the last deleted id, for readers
// that ask for events after an earlier one. Those of attempts stay in the history, but are not read as events any more.
const pruneEventsSQL = `
/* prune events */
with pruned as (
  delete from {outbox}
   where id in (select id
                  from (select id, at from {outbox} order by id limit $2) as oldest
                 where at < now() - make_interval(secs => $1))
     and (select at from {outbox} order by id limit 1) < now() - make_interval(secs => $1)
  returning id << 16 | coalesce(cardinality(tasks), case type when 'progress' then jsonb_array_length(data) end, 1) - 1
            as last
), recorded as (
  update {pipeline} set pruned_to = greatest(pruned_to, (select max(last) from pruned))
   where exists (select from pruned)
)
select count(*) from pruned`

// pruneEventsBatch is how many rows of the outbox one transaction deletes.
const pruneEventsBatch = 5000

// PruneEvents deletes rows of the outbox older than keep, in one batch. It returns their number, and whether there may
// be more, so that it should be called again.
func (s *Store) PruneEvents(ctx context.Context, keep time.Duration) (deleted int, more bool, err error) {
	err = s.runBackground(ctx, pruneEventsSQL, []any{keep.Seconds(), pruneEventsBatch}, func(rows pgx.Rows) error {
		deleted, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
		return err
	})
	return deleted, deleted == pruneEventsBatch, s.explain("prune events", err)
}
