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
select id, at, type, task_id, coalesce(stage, ''), coalesce(part, 0), coalesce(attempt, 0), worker_id, data, user_context
  from {{.Function "events"}}($1, $2, $3)`

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
	rows, err := s.db.Query(ctx, s.sql.events, q.After, q.Limit, q.Task)
	if err != nil {
		return nil, s.explain("read events", err)
	}
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Event, err error) {
		err = row.Scan(&e.ID, &e.At, &e.Type, &e.Task, &e.Stage, &e.Part, &e.Attempt, &e.Worker, &e.Data, &e.UserContext)
		return e, err
	})
	return events, s.explain("read events", err)
}

const eventWatermarkSQL = `
/* read event watermark */
select cuelight_event_watermark(to_regclass($1)) << 16 | 65535`

// EventWatermark returns the id up to which all events are visible, to read future events
// from with [Store.Events].
func (s *Store) EventWatermark(ctx context.Context) (int64, error) {
	var id int64
	err := s.db.QueryRow(ctx, eventWatermarkSQL, s.graph.prefix+"outbox_id").Scan(&id)
	return id, s.explain("read event watermark", err)
}

const lastAllocatedEventSQL = `
/* read last allocated event */
select coalesce(pg_sequence_last_value(to_regclass($1)), 0) << 16 | 65535`

// LastAllocatedEvent returns an id that no event of a committed transaction exceeds. Some of
// them may not be visible yet, because an earlier transaction is open. When
// [Store.EventWatermark] has reached the id, all can be read.
func (s *Store) LastAllocatedEvent(ctx context.Context) (int64, error) {
	var id int64
	err := s.db.QueryRow(ctx, lastAllocatedEventSQL, s.graph.prefix+"outbox_id").Scan(&id)
	return id, s.explain("read last allocated event", err)
}
