package scenario

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
)

// stuckTimeout is how long a workload waits without progress.
const stuckTimeout = 30 * time.Second

// timelines keep all observations of tasks, for latencies.
type timelines struct {
	tasks []timeline
	mu    sync.Mutex
	first error
}

// timeline is the observations of one task.
type timeline struct {
	mu    sync.Mutex
	at    [harness.StageCount][harness.Completed + 1]time.Time
	count int
	done  chan struct{} // closed when nothing is missing
}

func newTimelines(n int) *timelines {
	l := &timelines{tasks: make([]timeline, n)}
	for i := range l.tasks {
		l.tasks[i].done = make(chan struct{})
	}
	return l
}

// observe is for harness.Options. Observations of several processes may arrive in any order.
func (l *timelines) observe(o harness.Observation) {
	if o.Task < 0 || o.Task >= int64(len(l.tasks)) {
		l.fail(fmt.Errorf("%v of unknown task %d", o.Stage, o.Task))
		return
	}
	t := &l.tasks[o.Task]
	t.mu.Lock()
	defer t.mu.Unlock()
	at := &t.at[o.Stage][o.Kind]
	if !at.IsZero() {
		l.fail(fmt.Errorf("%v of task %d %v twice", o.Stage, o.Task, o.Kind))
		return
	}
	*at = o.At
	if t.count++; t.count == harness.StageCount*int(harness.Completed+1) {
		close(t.done)
	}
}

func (l *timelines) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		l.first = err
	}
}

// err returns the first invalid observation.
func (l *timelines) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}

// wait waits until a task is done.
func (l *timelines) wait(ctx context.Context, task int, timeout time.Duration) error {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-l.tasks[task].done:
		return l.err()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return fmt.Errorf("task %d is stuck: %s", task, l.tasks[task].missing())
	}
}

// missing says what has not been observed.
func (t *timeline) missing() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	for stage := range t.at {
		for kind, at := range t.at[stage] {
			if at.IsZero() {
				return fmt.Sprintf("not observed: %v %v", harness.Stage(stage), harness.Kind(kind))
			}
		}
	}
	return "nothing is missing"
}

// completed returns when the task was completed; zero if it is not.
func (t *timeline) completed() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.at[harness.Publish][harness.Completed]
}

// hops returns, for each stage with dependencies, the time from the last observation of that
// kind of a dependency until the stage started. The task must be done.
func (t *timeline) hops(from harness.Kind) []time.Duration {
	var hops []time.Duration
	for s := range harness.Stage(harness.StageCount) {
		var ready time.Time
		for _, need := range s.Needs() {
			if at := t.at[need][from]; at.After(ready) {
				ready = at
			}
		}
		if !ready.IsZero() {
			hops = append(hops, t.at[s][harness.Started].Sub(ready))
		}
	}
	return hops
}
