package scenario

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/result"
)

// drain submits tasks, waits until they are done, and returns how long that took from the
// first work to the last completion. It returns an error unless every stage of every task ran
// once. A system that is no Preloader starts when the first tasks are committed.
func (t *Trial) drain(ctx context.Context, tasks int, o harness.Options) (took time.Duration, err error) {
	preloader, preloads := t.System.(Preloader)
	if preloads {
		if err := preloader.Preload(ctx, t.URL, 0, tasks); err != nil {
			return 0, fmt.Errorf("submit %d tasks: %w", tasks, err)
		}
	}
	counter := newStageCounter(tasks)
	observe := o.Observe
	o.Observe = func(m harness.Observation) {
		counter.observe(m)
		if observe != nil {
			observe(m)
		}
	}
	workers, err := t.System.Start(ctx, t.URL, o)
	if err != nil {
		return 0, err
	}
	if !preloads {
		err = workers.SubmitAll(ctx, 0, tasks)
	}
	if err == nil {
		err = counter.wait(ctx)
	}
	t.Stop(ctx, &err, workers)
	if err == nil {
		err = counter.check()
	}
	return counter.took(), err
}

// recordThroughput records the tasks per second.
func (t *Trial) recordThroughput(scenario, of string, tasks int, took time.Duration) {
	t.Record(scenario, of, "tasks/s", result.FromValue(float64(tasks)/took.Seconds()))
}

// Drain measures the throughput of one process with many waiting tasks: "drain".
type Drain struct {
	Tasks int
	Slots int // per stage
}

// Names returns the names of its figures.
func (Drain) Names() []string { return []string{"drain"} }

// Measure drains the tasks.
func (d Drain) Measure(ctx context.Context, t *Trial) error {
	took, err := t.drain(ctx, d.Tasks, harness.Options{Slots: d.Slots})
	if err == nil {
		t.recordThroughput("drain", fmt.Sprintf("tasks=%d", d.Tasks), d.Tasks, took)
	}
	return err
}

// WorkShare measures throughput with stages that take some time: the share of the ideal
// throughput, with all slots always busy.
type WorkShare struct {
	Tasks int
	Slots int // per stage
	Work  time.Duration
}

// Names returns the names of its figures.
func (w WorkShare) Names() []string { return []string{w.name()} }

func (w WorkShare) name() string { return fmt.Sprintf("work%v", w.Work) }

// Measure drains the tasks.
func (w WorkShare) Measure(ctx context.Context, t *Trial) error {
	took, err := t.drain(ctx, w.Tasks, harness.Options{Slots: w.Slots, WorkTime: w.Work})
	if err == nil {
		share := w.ideal().Seconds() / took.Seconds()
		t.Record(w.name(), fmt.Sprintf("slots=%d", w.Slots), "share", result.FromValue(share))
	}
	return err
}

// ideal is the time if all slots of all stages are always busy.
func (w WorkShare) ideal() time.Duration {
	return time.Duration(w.Tasks) * w.Work / time.Duration(w.Slots)
}

// Order measures how well the order of equal tasks is kept, with one slot in one stage and
// many in the others: the largest number of later tasks that started that stage before an
// earlier one.
type Order struct {
	Tasks int
	Slots int // per stage, except for the single slot
}

// singleSlotStage gets all of its tasks from other stages.
const singleSlotStage = harness.Assemble

// Names returns the names of its figures.
func (Order) Names() []string { return []string{"order"} }

// Measure drains the tasks.
func (s Order) Measure(ctx context.Context, t *Trial) error {
	var mu sync.Mutex
	var started []int64
	_, err := t.drain(ctx, s.Tasks, harness.Options{
		Slots: s.Slots, SingleSlot: []harness.Stage{singleSlotStage},
		Observe: func(o harness.Observation) {
			if o.Stage == singleSlotStage && o.Kind == harness.Started {
				mu.Lock()
				defer mu.Unlock()
				started = append(started, o.Task)
			}
		},
	})
	if err == nil {
		t.Record("order", fmt.Sprintf("tasks=%d", s.Tasks), "tasks", result.FromValue(float64(maxDisplacement(started))))
	}
	return err
}

// maxDisplacement returns the largest number of higher tasks before one.
func maxDisplacement(started []int64) (most int) {
	var before []int64 // sorted
	for _, task := range started {
		i, _ := slices.BinarySearch(before, task)
		most = max(most, len(before)-i)
		before = slices.Insert(before, i, task)
	}
	return most
}

// Processes measures the throughput of several processes. They run before all tasks are
// submitted at once, so that none starts earlier.
type Processes struct {
	Processes int
	Tasks     int
	Slots     int // per stage, in each
}

// Names returns the names of its figures.
func (Processes) Names() []string { return []string{"processes"} }

// Measure drains the tasks.
func (p Processes) Measure(ctx context.Context, t *Trial) (err error) {
	if t.StartSubprocess == nil {
		return errNoSubprocesses
	}
	counter := newStageCounter(p.Tasks)
	var all []harness.Workers
	for range p.Processes {
		workers, startErr := t.StartSubprocess(ctx, t.System, t.URL,
			harness.Options{Slots: p.Slots, Observe: counter.observe})
		if err = startErr; err != nil {
			break
		}
		all = append(all, workers)
	}
	if err == nil {
		err = all[0].SubmitAll(ctx, 0, p.Tasks)
	}
	if err == nil {
		err = counter.wait(ctx)
	}
	t.Stop(ctx, &err, all...)
	if err == nil {
		err = counter.check()
	}
	if err == nil {
		t.recordThroughput("processes", fmt.Sprintf("processes=%d", p.Processes), p.Tasks, counter.took())
	}
	return err
}

var errNoSubprocesses = fmt.Errorf("%w: this session cannot start processes", errNotMeasured)
