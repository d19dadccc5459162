package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// EventType says what an [Event] tells.
type EventType string

// What is told in the outbox. A task has come to an end with done, dead or
// cancelled, see [EventType.Terminal], until somebody has it done again, which
// retry says. Everything else is on the way: a failed attempt is followed by retry
// or by dead.
const (
	TaskSubmitted  EventType = "submitted"
	StageStarted   EventType = "started"         // a stage was claimed
	StageProgress  EventType = "progress"        // Data: percent, speed, eta_s and note, as in [Running]
	StageCompleted EventType = "stage_completed" //
	AttemptFailed  EventType = "attempt_failed"  // Data: error, error_class
	AttemptExpired EventType = "attempt_expired" // the worker of an attempt went away. Data: error, error_class
	ClaimReleased  EventType = "released"        // a claim was given back, and is not counted as an attempt. Data: error, error_class
	RetryScheduled EventType = "retry_scheduled" // to be done again. Data: run_at; and error, error_class, or where somebody asked for it, stages
	StageDead      EventType = "dead"            // attempts are used up. Data: error, error_class
	TaskCancelled  EventType = "cancelled"       // Data: stages
	TaskOverridden EventType = "overridden"      // Data: overridden_by
	TaskCompleted  EventType = "completed"       // all stages are completed
	TaskDeleted    EventType = "deleted"
	WorkerStarted  EventType = "worker_started" // Data: host, pid, version
	WorkerStopped  EventType = "worker_stopped" // Data: host, pid
	WorkerLost     EventType = "worker_lost"    // Data: host, pid
	AlertRaised    EventType = "alert"          // a process has found something wrong. Data: what
)

// EventTypes are all of them.
func EventTypes() []EventType {
	return []EventType{
		TaskSubmitted, StageStarted, StageProgress, StageCompleted, AttemptFailed, AttemptExpired, ClaimReleased, RetryScheduled,
		StageDead, TaskCancelled, TaskOverridden, TaskCompleted, TaskDeleted, WorkerStarted, WorkerStopped, WorkerLost, AlertRaised,
	}
}

// Terminal reports whether nothing more will happen to the event's task by itself.
// (Stages beside one that died may still be at work.)
func (t EventType) Terminal() bool {
	return t == TaskCompleted || t == StageDead || t == TaskCancelled
}

// Event is one change, told in the transaction that made it, whoever did.
type Event struct {
	ID      int64           `json:"id"` // grows; gaps mean nothing
	At      time.Time       `json:"at"`
	Type    EventType       `json:"type"`
	Task    ID              `json:"task_id,omitzero"`
	Stage   string          `json:"stage,omitempty"`
	Attempt int             `json:"attempt,omitempty"`
	Worker  ID              `json:"worker_id,omitzero"`
	Data    json.RawMessage `json:"data,omitempty"` // an object
}

// EventQuery chooses events. Its zero value chooses the oldest that are kept.
type EventQuery struct {
	After int64 // the last one that was seen
	Task  ID    // only those of one task
	Limit int   // at most so many; default 1000
}

const eventsSQL = `
/* read events */
select id, at, type, task_id, coalesce(stage, ''), coalesce(attempt, 0), worker_id, data
  from {{.Function "events"}}($1, $2, $3)`

// Events reads on from an event that was seen. Whoever goes on after the last one
// read misses none and gets none twice: an event is not shown before everything
// that can come in ahead of it is there, and so waits for transactions that wrote
// theirs earlier and are still open. Submissions in a caller's transaction are
// among these, so such a transaction should not stay open for long.
//
// Those of one task are looked for from its beginning on, and to the end of what is
// kept.
//
// It returns [ErrEventsGone] where events after After were deleted, and where After
// is a place that was never reached: it is from before the database was restored, or
// from another. It cannot be used in a transaction of an isolation level above read committed.
func (s *Store) Events(ctx context.Context, q EventQuery) ([]Event, error) {
	if q.Limit <= 0 {
		q.Limit = 1000
	}
	rows, err := s.db.Query(ctx, s.sql.events, q.After, q.Limit, q.Task)
	if err != nil {
		return nil, s.explain("read events", err)
	}
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Event, err error) {
		err = row.Scan(&e.ID, &e.At, &e.Type, &e.Task, &e.Stage, &e.Attempt, &e.Worker, &e.Data)
		return e, err
	})
	return events, s.explain("read events", err)
}

const eventWatermarkSQL = `
/* find last event */
select cuelight_event_watermark(to_regclass($1)) << 16 | 65535`

// LastEvent is a place after all that has happened until now, to read on from with
// [Store.Events].
func (s *Store) EventWatermark(ctx context.Context) (int64, error) {
	var id int64
	err := s.db.QueryRow(ctx, eventWatermarkSQL, s.graph.prefix+"outbox_id").Scan(&id)
	return id, s.explain("find last event", err)
}

const newestEventSQL = `
/* find newest event */
select coalesce(pg_sequence_last_value(to_regclass($1)), 0) << 16 | 65535`

// NewestEvent is a place after every event of a transaction that has committed by
// now, also those that cannot be shown yet because one that began earlier is still
// open. Once [Store.LastEvent] has come that far, all of them can be read.
func (s *Store) LastAllocatedEvent(ctx context.Context) (int64, error) {
	var id int64
	err := s.db.QueryRow(ctx, newestEventSQL, s.graph.prefix+"outbox_id").Scan(&id)
	return id, s.explain("find newest event", err)
}
