package system

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Recorder keeps the time of every observation of tasks that are numbered from 0. It allocates
// its memory at first and takes a lock only for the last observation of a task, so that it
// costs little under full load.
type Recorder struct {
	base    time.Time
	tasks   []taskRecord
	missing atomic.Int64 // observations
	done    chan struct{}

	mu      sync.Mutex
	waiting map[int]chan struct{} // closed when nothing of the task is missing
	invalid error
}

// taskRecord has the times of one task since base; 0 for what was not observed.
type taskRecord struct {
	at    [len(Stages)][kindCount]atomic.Int64
	count atomic.Int32
}

const kindCount = int(Completed) + 1

// NewRecorder returns a recorder of so many tasks.
func NewRecorder(tasks int) *Recorder {
	r := &Recorder{
		base: time.Now(), tasks: make([]taskRecord, tasks), done: make(chan struct{}), waiting: make(map[int]chan struct{}),
	}
	r.missing.Store(int64(tasks * len(Stages) * kindCount))
	return r
}

// Observe is for Options. Observations of several processes may arrive in any order.
func (r *Recorder) Observe(o Observation) {
	if o.Task < 0 || o.Task >= int64(len(r.tasks)) {
		r.fail(fmt.Errorf("%v of unknown task %d", o.Stage, o.Task))
		return
	}
	t := &r.tasks[o.Task]
	if !t.at[o.Stage][o.Kind].CompareAndSwap(0, cmp.Or(int64(o.At.Sub(r.base)), 1)) {
		r.fail(fmt.Errorf("%v of task %d %v twice", o.Stage, o.Task, o.Kind))
		return
	}
	if t.count.Add(1) == int32(len(Stages)*kindCount) {
		r.mu.Lock()
		if done := r.waiting[int(o.Task)]; done != nil {
			close(done)
			delete(r.waiting, int(o.Task))
		}
		r.mu.Unlock()
	}
	if r.missing.Add(-1) == 0 {
		close(r.done)
	}
}

func (r *Recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.invalid = cmp.Or(r.invalid, err)
}

// Err returns the first invalid observation: one that was repeated, or of an unknown task.
func (r *Recorder) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.invalid
}

// Check returns an error unless everything was observed once.
func (r *Recorder) Check() error {
	if err := r.Err(); err != nil {
		return err
	}
	for task := range r.tasks {
		if what := r.firstMissing(task); what != "" {
			return fmt.Errorf("not observed: %s", what)
		}
	}
	return nil
}

// firstMissing describes an observation of a task that is missing; "" if there is none.
func (r *Recorder) firstMissing(task int) string {
	for _, s := range Stages {
		for k := range Kind(kindCount) {
			if r.At(task, s, k).IsZero() {
				return fmt.Sprintf("%v of task %d %v", s, task, k)
			}
		}
	}
	return ""
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
	case <-r.taskDone(task):
		return r.Err()
	case <-ctx.Done():
		return cmp.Or(r.Err(), fmt.Errorf("%w: not observed: %s", context.Cause(ctx), r.firstMissing(task)))
	}
}

func (r *Recorder) taskDone(task int) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	done := r.waiting[task]
	if done == nil {
		done = make(chan struct{})
		if int(r.tasks[task].count.Load()) == len(Stages)*kindCount {
			close(done)
		} else {
			r.waiting[task] = done
		}
	}
	return done
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

// Duration returns the time from the first start of a stage to the last completion.
func (r *Recorder) Duration() time.Duration {
	var first, last time.Time
	for task := range r.tasks {
		for _, s := range Stages {
			if at := r.At(task, s, Started); first.IsZero() || at.Before(first) {
				first = at
			}
			if at := r.At(task, s, Completed); at.After(last) {
				last = at
			}
		}
	}
	return last.Sub(first)
}

// Hops returns, for each stage of a task that needs others, the time from the last observation
// of that kind of a stage that it needs until it started. The task must be done.
func (r *Recorder) Hops(task int, from Kind) []time.Duration {
	var hops []time.Duration
	for _, s := range Stages {
		var ready time.Time
		for _, need := range s.Needs() {
			if at := r.At(task, need, from); at.After(ready) {
				ready = at
			}
		}
		if !ready.IsZero() {
			hops = append(hops, r.At(task, s, Started).Sub(ready))
		}
	}
	return hops
}
