package system

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Recorder keeps the time of every observation of tasks that are numbered from 0. It allocates
// its memory at first and takes no lock, so that it costs little under full load.
type Recorder struct {
	base    time.Time
	tasks   []taskRecord
	missing atomic.Int64 // observations
	done    chan struct{}
	invalid FirstError
}

// taskRecord has the times of one task since base; 0 for what was not observed.
type taskRecord struct {
	at    [len(Stages)][kindCount]atomic.Int64
	count atomic.Int32
	done  chan struct{} // closed when nothing of the task is missing
}

const kindCount = int(Completed) + 1

// NewRecorder returns a recorder of so many tasks.
func NewRecorder(tasks int) *Recorder {
	r := &Recorder{base: time.Now(), tasks: make([]taskRecord, tasks), done: make(chan struct{})}
	for i := range r.tasks {
		r.tasks[i].done = make(chan struct{})
	}
	r.missing.Store(int64(tasks * len(Stages) * kindCount))
	return r
}

// Observe is for Options. Observations of several processes may arrive in any order.
func (r *Recorder) Observe(o Observation) {
	if o.Task < 0 || o.Task >= int64(len(r.tasks)) {
		r.invalid.Add(fmt.Errorf("%v of unknown task %d", o.Stage, o.Task))
		return
	}
	t := &r.tasks[o.Task]
	if !t.at[o.Stage][o.Kind].CompareAndSwap(0, cmp.Or(int64(o.At.Sub(r.base)), 1)) {
		r.invalid.Add(fmt.Errorf("%v of task %d %v twice", o.Stage, o.Task, o.Kind))
		return
	}
	if t.count.Add(1) == int32(len(Stages)*kindCount) {
		close(t.done)
	}
	if r.missing.Add(-1) == 0 {
		close(r.done)
	}
}

// Err returns the first invalid observation: one that was repeated, or of an unknown task.
func (r *Recorder) Err() error { return r.invalid.Err() }

// Check returns an error unless everything was observed once.
func (r *Recorder) Check() error {
	err := r.Err()
	for task := range r.tasks {
		err = cmp.Or(err, r.missingOf(task))
	}
	return err
}

// missingOf returns an error if an observation of a task is missing.
func (r *Recorder) missingOf(task int) error {
	for _, s := range Stages {
		for k := range Kind(kindCount) {
			if r.At(task, s, k).IsZero() {
				return fmt.Errorf("not observed: %v of task %d %v", s, task, k)
			}
		}
	}
	return nil
}

// At returns the time of an observation; the zero time if it is missing.
func (r *Recorder) At(task int, s Stage, k Kind) (at time.Time) {
	if since := r.tasks[task].at[s][k].Load(); since != 0 {
		at = r.base.Add(time.Duration(since))
	}
	return at
}

// Wait returns when everything of a task was observed, with Err. If ctx is done first, it
// returns the cause, with an observation that is missing.
func (r *Recorder) Wait(ctx context.Context, task int) error {
	select {
	case <-r.tasks[task].done:
		return r.Err()
	case <-ctx.Done():
		return cmp.Or(r.Err(), errors.Join(context.Cause(ctx), r.missingOf(task)))
	}
}

// WaitAll returns when everything of all tasks was observed, or an error if nothing is observed
// for as long as the timeout.
func (r *Recorder) WaitAll(ctx context.Context, timeout time.Duration) error {
	ticker := time.NewTicker(min(timeout, time.Second))
	defer ticker.Stop()
	before, since := r.missing.Load(), time.Now()
	for {
		select {
		case <-r.done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
		if now := r.missing.Load(); now != before {
			before, since = now, time.Now()
		} else if time.Since(since) >= timeout {
			return cmp.Or(r.Err(), fmt.Errorf("stuck: %d of %d observations are missing, and none came in the last %v",
				now, len(r.tasks)*len(Stages)*kindCount, timeout))
		}
	}
}

// Duration returns the time from the first start of a stage to the last completion, after everything was observed.
func (r *Recorder) Duration() time.Duration {
	first, last := r.At(0, Ingest, Started), r.At(0, Publish, Completed)
	for task := range r.tasks {
		if at := r.At(task, Ingest, Started); at.Before(first) {
			first = at
		}
		if at := r.At(task, Publish, Completed); at.After(last) {
			last = at
		}
	}
	return last.Sub(first)
}

// Hops returns, for each stage of a task that needs others, the time from the last observation
// of that kind of a stage that it needs until it started. The task must be done.
func (r *Recorder) Hops(task int, from Kind) []time.Duration {
	var hops []time.Duration
	for _, s := range Stages[1:] {
		var ready time.Time
		for _, need := range s.Needs() {
			if at := r.At(task, need, from); at.After(ready) {
				ready = at
			}
		}
		hops = append(hops, r.At(task, s, Started).Sub(ready))
	}
	return hops
}
