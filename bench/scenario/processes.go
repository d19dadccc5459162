package scenario

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/result"
)

// Processes lets several processes do what Drain has one do. They are at work
// when all tasks are submitted at once, so that nobody is early.
type Processes struct {
	Processes int
	Tasks     int
	Slots     int // per stage, in each
}

// Names are those of its figures.
func (Processes) Names() []string { return []string{"processes"} }

// Measure measures it.
func (p Processes) Measure(ctx context.Context, t *Trial) (err error) {
	if t.StartSubprocess == nil {
		return fmt.Errorf("%w: no way to start processes", errNotHere)
	}
	tally := newStageCounter(p.Tasks)
	var crews []harness.Workers
	for range p.Processes {
		crew, startErr := t.StartSubprocess(ctx, t.System, t.URL, harness.Options{Slots: p.Slots, Observe: tally.observe})
		if err = startErr; err != nil {
			break
		}
		crews = append(crews, crew)
	}
	if err == nil {
		err = crews[0].SubmitAll(ctx, 0, p.Tasks)
	}
	if err == nil {
		err = tally.wait(ctx)
	}
	t.Stop(ctx, &err, crews...)
	if err == nil {
		err = tally.check()
	}
	if err == nil {
		t.Record("processes", fmt.Sprintf("processes=%d", p.Processes), "tasks/s", perSecond(p.Tasks, tally.took()))
	}
	return err
}

// HopOther is the time from when a stage was completed in one process until a
// stage that depends on it begins in another: "hop_other". Two processes share
// the stages so that every hop is one from the one to the other. Whoever commits
// hears of it last: the server has told the others by then, and on a machine that
// is busy they may have begun, which gives a time below 0. "hop_other_ended"
// cannot: it is from the end of the work, as "hop" is, and has the commit in it.
type HopOther struct {
	Samples int
	Slots   int // per stage, in each
}

// Names are those of its figures.
func (HopOther) Names() []string { return []string{"hop_other", "hop_other_ended"} }

// Measure measures it.
func (h HopOther) Measure(ctx context.Context, t *Trial) (err error) {
	if t.StartSubprocess == nil {
		return fmt.Errorf("%w: no way to start processes", errNotHere)
	}
	run := e2eRun{E2E: E2E{Samples: h.Samples}, stories: newTimelines(Warmup + h.Samples)}
	run.submitted = make([]span, len(run.stories.tasks))
	here := harness.Options{
		Slots: h.Slots, Observe: run.stories.observe, Stages: []harness.Stage{harness.Ingest, harness.Assemble},
	}
	there := here
	there.Stages = []harness.Stage{harness.Transcode, harness.Metadata, harness.Publish}
	if run.crew, err = t.System.Start(ctx, t.URL, here); err != nil {
		return err
	}
	crews := []harness.Workers{run.crew}
	other, err := t.StartSubprocess(ctx, t.System, t.URL, there)
	if err == nil {
		crews = append(crews, other)
		_, err = run.oneByOne(ctx)
	}
	t.Stop(ctx, &err, crews...)
	if err = cmp.Or(err, run.stories.err()); err != nil {
		return err
	}
	var commit, ended []time.Duration
	for i := range run.stories.tasks[Warmup:] {
		s := &run.stories.tasks[Warmup+i]
		commit = slices.Concat(commit, s.hops(harness.Completed))
		ended = slices.Concat(ended, s.hops(harness.Ended))
	}
	t.Record("hop_other", "", "ms", result.FromDurations(commit))
	t.Record("hop_other_ended", "", "ms", result.FromDurations(ended))
	return nil
}
