package harnesstest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
)

// record keeps all observations of a test.
type record struct {
	mu      sync.Mutex
	times   map[observationKey][]time.Time
	missing int // completions
	done    chan struct{}
}

// observationKey is one of the three observations of each stage of each task.
type observationKey struct {
	task  int64
	stage harness.Stage
	kind  harness.Kind
}

func newRecord(tasks int) *record {
	return &record{
		times: make(map[observationKey][]time.Time), missing: tasks * harness.StageCount, done: make(chan struct{}),
	}
}

func (r *record) observe(o harness.Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := observationKey{o.Task, o.Stage, o.Kind}
	r.times[e] = append(r.times[e], o.At)
	if o.Kind == harness.Completed && len(r.times[e]) == 1 {
		if r.missing--; r.missing == 0 {
			close(r.done)
		}
	}
}

// wait returns when every stage of every task has been completed.
func (r *record) wait(ctx context.Context) error {
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		r.mu.Lock()
		defer r.mu.Unlock()
		return fmt.Errorf("%d stages were not completed: %w", r.missing, context.Cause(ctx))
	}
}

// check fails the test for each fault.
func (r *record) check(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, fault := range r.faults() {
		t.Error(fault)
	}
}

// faults lists stages that did not run exactly once, or ran before those that they need.
func (r *record) faults() (faults []string) {
	for e := range r.times {
		if e.task < 0 || e.task >= taskCount {
			faults = append(faults, fmt.Sprintf("%v of unknown task %d", e.stage, e.task))
		}
	}
	for task := range int64(taskCount) {
		for s := range harness.Stage(harness.StageCount) {
			faults = append(faults, r.stageFaults(task, s)...)
		}
	}
	return faults
}

func (r *record) stageFaults(task int64, s harness.Stage) (faults []string) {
	first := func(s harness.Stage, k harness.Kind) (at time.Time) {
		if times := r.times[observationKey{task, s, k}]; len(times) > 0 {
			at = times[0]
		}
		return at
	}
	for kind := harness.Started; kind <= harness.Completed; kind++ {
		if n := len(r.times[observationKey{task, s, kind}]); n != 1 {
			faults = append(faults, fmt.Sprintf("%v of task %d %v %d times", s, task, kind, n))
		}
	}
	started, ended := first(s, harness.Started), first(s, harness.Ended)
	if ended.Before(started) || first(s, harness.Completed).Before(ended) {
		faults = append(faults,
			fmt.Sprintf("%v of task %d ended before it started, or was completed before it ended", s, task))
	}
	for _, need := range s.Needs() {
		if started.Before(first(need, harness.Ended)) {
			faults = append(faults, fmt.Sprintf("%v of task %d started before %v had ended", s, task, need))
		}
	}
	return faults
}
