package main

import (
	"sync"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// feed takes what a Runner tells, which must not wait for a terminal, and
// hands it to the one goroutine that shows it.
type feed struct {
	wake chan struct{}

	mu      sync.Mutex
	events  []stages.Event
	running map[work]*activity
}

// work is a stage of a task.
type work struct {
	task  store.ID
	stage string
}

// activity is an attempt being worked on.
type activity struct {
	work
	attempt  int
	since    time.Time
	progress stages.Progress
}

func newFeed() *feed {
	return &feed{wake: make(chan struct{}, 1), running: make(map[work]*activity)}
}

// observe is for stages.Runner.
func (f *feed) observe(e stages.Event) {
	f.mu.Lock()
	key := work{e.Task, e.Stage}
	switch e.Kind {
	case stages.StageProgress:
		// Of progress, only the latest is worth anything.
		if a := f.running[key]; a != nil {
			a.progress = e.Progress
		}
		f.mu.Unlock()
		return
	case stages.StageStarted:
		f.running[key] = &activity{work: key, attempt: e.Attempt, since: time.Now(), progress: stages.Progress{Percent: -1}}
	case stages.StageCompleted, stages.AttemptFailed, stages.StageDead, stages.ClaimReleased, stages.ClaimRevoked:
		if a := f.running[key]; a != nil && a.attempt == e.Attempt {
			delete(f.running, key)
		}
	}
	f.events = append(f.events, e)
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// take returns what happened since the last call.
func (f *feed) take() []stages.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	events := f.events
	f.events = nil
	return events
}

// activities returns what is being worked on, in no order.
func (f *feed) activities() []activity {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]activity, 0, len(f.running))
	for _, a := range f.running {
		all = append(all, *a)
	}
	return all
}
