package harnesstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
)

// record keeps what happened.
type record struct {
	mu      sync.Mutex
	moments map[event][]time.Time
	left    int // completions that have not been heard of
	done    chan struct{}
}

type event struct {
	task  int64
	stage harness.Stage
	what  harness.Kind
}

func newRecord(tasks int) *record {
	return &record{moments: make(map[event][]time.Time), left: tasks * harness.StageCount, done: make(chan struct{})}
}

func (r *record) observe(m harness.Observation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := event{m.Task, m.Stage, m.Kind}
	r.moments[e] = append(r.moments[e], m.At)
	if m.Kind == harness.Completed && len(r.moments[e]) == 1 {
		if r.left--; r.left == 0 {
			close(r.done)
		}
	}
}

// wait returns when everything was completed.
func (r *record) wait(ctx context.Context) error {
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		r.mu.Lock()
		defer r.mu.Unlock()
		return fmt.Errorf("%d stages were not completed: %w", r.left, context.Cause(ctx))
	}
}

// check expects that each stage of each task was done once, and none before
// those it needs.
func (r *record) check(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, err := range r.faults() {
		t.Error(err)
	}
}

func (r *record) faults() (all []error) {
	for e := range r.moments {
		if e.task < 0 || e.task >= tasks {
			all = append(all, fmt.Errorf("%v of task %d, which nobody submitted", e.stage, e.task))
		}
	}
	for task := range int64(tasks) {
		for s := range harness.Stage(harness.StageCount) {
			all = append(all, r.fault(task, s))
		}
	}
	return slices.DeleteFunc(all, func(err error) bool { return err == nil })
}

// fault is what is wrong with one stage of a task.
func (r *record) fault(task int64, s harness.Stage) error {
	at := func(s harness.Stage, w harness.Kind) time.Time {
		if times := r.moments[event{task, s, w}]; len(times) > 0 {
			return times[0]
		}
		return time.Time{}
	}
	var errs []error
	for what, word := range []string{"began", "ended", "was completed"} {
		if n := len(r.moments[event{task, s, harness.Kind(what)}]); n != 1 {
			errs = append(errs, fmt.Errorf("%v of task %d %s %d times", s, task, word, n))
		}
	}
	began := at(s, harness.Started)
	if at(s, harness.Ended).Before(began) || at(s, harness.Completed).Before(at(s, harness.Ended)) {
		errs = append(errs, fmt.Errorf("%v of task %d ended before it began, or was completed before it ended", s, task))
	}
	for _, need := range s.Needs() {
		if began.Before(at(need, harness.Ended)) {
			errs = append(errs, fmt.Errorf("%v of task %d began before %v had ended", s, task, need))
		}
	}
	return errors.Join(errs...)
}
