package scenario

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
)

// stuckAfter is how long a benchmark waits without seeing any progress before
// it says that there is none.
const stuckAfter = 30 * time.Second

// stories keep everything that happens to each of some tasks, for latencies.
type timelines struct {
	tasks []timeline
	bad   error
	mu    sync.Mutex
}

// story is what happened to one task.
type timeline struct {
	mu   sync.Mutex
	at   [harness.StageCount][harness.Completed + 1]time.Time
	seen int
	done chan struct{} // closed when everything has happened
}

func newTimelines(n int) *timelines {
	s := &timelines{tasks: make([]timeline, n)}
	for i := range s.tasks {
		s.tasks[i].done = make(chan struct{})
	}
	return s
}

// observe is for harness.Options. What comes from several processes need not
// come in order, so a story is over when nothing of it is missing.
func (s *timelines) observe(m harness.Observation) {
	if m.Task < 0 || m.Task >= int64(len(s.tasks)) {
		s.wrong(fmt.Errorf("%v of a task %d, which nobody submitted", m.Stage, m.Task))
		return
	}
	t := &s.tasks[m.Task]
	t.mu.Lock()
	at := &t.at[m.Stage][m.Kind]
	twice := !at.IsZero()
	*at = m.At
	if !twice {
		t.seen++
		if t.seen == harness.StageCount*int(harness.Completed+1) {
			close(t.done)
		}
	}
	t.mu.Unlock()
	if twice {
		s.wrong(fmt.Errorf("%v of task %d %s twice", m.Stage, m.Task, verb(m.Kind)))
	}
}

func verb(w harness.Kind) string {
	return [...]string{"began", "ended", "was completed"}[w]
}

func (s *timelines) wrong(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bad == nil {
		s.bad = err
	}
}

func (s *timelines) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bad
}

// wait returns when everything has happened to a task, or the error that it
// has not, for that long.
func (s *timelines) wait(ctx context.Context, task int64, most time.Duration) error {
	late := time.NewTimer(most)
	defer late.Stop()
	select {
	case <-s.tasks[task].done:
		return s.err()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-late.C:
		return fmt.Errorf("task %d is stuck: %s", task, s.tasks[task].missing())
	}
}

// state says what is missing.
func (t *timeline) missing() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	for stage := harness.Ingest; stage < harness.Stage(harness.StageCount); stage++ {
		for what := harness.Started; what <= harness.Completed; what++ {
			if t.at[stage][what].IsZero() {
				return fmt.Sprintf("nobody has seen that %v %s", stage, verb(what))
			}
		}
	}
	return "everything has happened"
}

// when is the time at which something happened, in a story that is over.
func (t *timeline) when(s harness.Stage, w harness.Kind) time.Time { return t.at[s][w] }

// hops are the times from when the last of a stage's needs had come so far until
// the stage began, of each stage that has needs.
func (t *timeline) hops(from harness.Kind) []time.Duration {
	var hops []time.Duration
	for s := harness.Ingest; s < harness.Stage(harness.StageCount); s++ {
		var ready time.Time
		for _, need := range s.Needs() {
			if at := t.when(need, from); ready.IsZero() || at.After(ready) {
				ready = at
			}
		}
		if !ready.IsZero() {
			hops = append(hops, t.when(s, harness.Started).Sub(ready))
		}
	}
	return hops
}
