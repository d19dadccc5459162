package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/result"
)

// Drain lets one crew do many tasks that wait for it: tasks/s from the first
// work to the last completion. A contestant that can only submit while it works
// begins when the first of them are committed.
type Drain struct {
	Tasks int
	Slots int // per stage
}

// Names are those of its figures.
func (Drain) Names() []string { return []string{"drain"} }

// Measure measures it.
func (d Drain) Measure(ctx context.Context, t *Trial) error {
	l := load{tasks: d.Tasks, options: harness.Options{Slots: d.Slots}}
	took, err := l.drain(ctx, t)
	if err == nil {
		t.Record("drain", fmt.Sprintf("tasks=%d", d.Tasks), "tasks/s", perSecond(d.Tasks, took))
	}
	return err
}

func perSecond(tasks int, took time.Duration) result.Round {
	return result.FromValue(float64(tasks) / took.Seconds())
}

// load is a number of tasks for one crew.
type load struct {
	tasks   int
	first   int64 // the first one's number
	options harness.Options
	watch   func(harness.Observation) // is told what happens, too; nil for nobody
}

// drain submits the tasks, has them done, makes sure that each stage of each was
// done once, and returns how long that took.
func (l load) drain(ctx context.Context, t *Trial) (took time.Duration, err error) {
	filler, fills := t.System.(Preloader)
	if fills {
		if err := filler.Preload(ctx, t.URL, l.first, l.tasks); err != nil {
			return 0, fmt.Errorf("submit %d tasks: %w", l.tasks, err)
		}
	}
	tally := newStageCounter(l.tasks)
	l.options.Observe = func(m harness.Observation) {
		m.Task -= l.first
		tally.observe(m)
		if l.watch != nil {
			l.watch(m)
		}
	}
	crew, err := t.System.Start(ctx, t.URL, l.options)
	if err != nil {
		return 0, err
	}
	if !fills {
		err = crew.SubmitAll(ctx, l.first, l.tasks)
	}
	if err == nil {
		err = tally.wait(ctx)
	}
	t.Stop(ctx, &err, crew)
	if err == nil {
		err = tally.check()
	}
	return tally.took(), err
}

// WorkShare is throughput where the stages take some time: the share of what
// would be done if all slots were busy all the time, which for n tasks of five
// stages of w with s slots each takes n*5*w/(5*s).
type WorkShare struct {
	Tasks int
	Slots int // per stage
	Work  time.Duration
}

// Names are those of its figures.
func (w WorkShare) Names() []string { return []string{w.name()} }

func (w WorkShare) name() string { return fmt.Sprintf("work%v", w.Work) }

// Measure measures it.
func (w WorkShare) Measure(ctx context.Context, t *Trial) error {
	l := load{tasks: w.Tasks, options: harness.Options{Slots: w.Slots, WorkTime: w.Work}}
	took, err := l.drain(ctx, t)
	if err == nil {
		t.Record(w.name(), fmt.Sprintf("slots=%d", w.Slots), "share", result.FromValue(w.ideal().Seconds()/took.Seconds()))
	}
	return err
}

func (w WorkShare) ideal() time.Duration {
	return time.Duration(w.Tasks) * w.Work / time.Duration(w.Slots)
}
