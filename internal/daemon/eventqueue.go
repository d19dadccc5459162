package daemon

import (
	"sync"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// EventQueue takes the Runner's events, whose observer must not wait for a terminal or a
// log, and hands them to one goroutine.
type EventQueue struct {
	Wake chan struct{} // receives when Take has events

	mu        sync.Mutex
	events    []stages.Event
	running   map[StageKey]*Activity
	idleSince time.Time // since when no attempt runs; zero for not, and before the worker was registered
}

// StageKey identifies a stage of a task, or one of its parts.
type StageKey struct {
	Task  store.ID
	Stage string
	Part  int // 0: the stage itself
}

// Activity is a running attempt.
type Activity struct {
	store.Running
	Since time.Time
}

// NewEventQueue returns an empty queue.
func NewEventQueue() *EventQueue {
	return &EventQueue{Wake: make(chan struct{}, 1), running: make(map[StageKey]*Activity)}
}

// Observe adds an event. It is for stages.Runner.
func (q *EventQueue) Observe(e stages.Event) {
	q.mu.Lock()
	key := StageKey{e.Task, e.Stage, e.Part}
	switch e.Kind {
	case stages.WorkerStarted:
		if len(q.running) == 0 {
			q.idleSince = time.Now()
		}
	case stages.StageProgress:
		// Only the latest progress matters; it is not queued.
		if a := q.running[key]; a != nil {
			p := e.Progress
			a.Percent, a.Speed, a.ETA, a.Note = p.Percent, p.Speed, p.ETA.Seconds(), p.Note
		}
		q.mu.Unlock()
		return
	case stages.StageStarted:
		q.running[key] = &Activity{
			Running: store.Running{Task: e.Task, Stage: e.Stage, Part: e.Part, Parts: e.Parts, Attempt: e.Attempt, Percent: -1}, Since: time.Now(),
		}
		q.idleSince = time.Time{}
	case stages.StageDivided, stages.PartCompleted, stages.StageCompleted, stages.AttemptFailed, stages.StageDead,
		stages.ClaimReleased, stages.ClaimRevoked:
		if a := q.running[key]; a != nil && a.Attempt == e.Attempt {
			delete(q.running, key)
			if len(q.running) == 0 {
				q.idleSince = time.Now()
			}
		}
	}
	q.events = append(q.events, e)
	q.mu.Unlock()
	select {
	case q.Wake <- struct{}{}:
	default:
	}
}

// Take returns the events since the last call.
func (q *EventQueue) Take() []stages.Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	events := q.events
	q.events = nil
	return events
}

// Idle returns a channel that receives when no attempt has run for so long; nil while one runs, before the worker was
// registered, and for 0. It is to be called again after each event.
func (q *EventQueue) Idle(after time.Duration) <-chan time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	if after <= 0 || q.idleSince.IsZero() {
		return nil
	}
	return time.After(time.Until(q.idleSince.Add(after)))
}

// RestartIdle makes Idle wait as long again.
func (q *EventQueue) RestartIdle() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.idleSince.IsZero() {
		q.idleSince = time.Now()
	}
}

// Running returns the running attempts in no particular order.
func (q *EventQueue) Running() []Activity {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make([]Activity, 0, len(q.running))
	for _, a := range q.running {
		all = append(all, *a)
	}
	return all
}
