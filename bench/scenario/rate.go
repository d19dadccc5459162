package scenario

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/result"
)

// Rate submits tasks at random times, so many a second on average, whether the
// system keeps up or not: an open loop. "rate" is the time from when a task was
// to come, which was fixed beforehand, until it was completed, in ms; a system
// that is late with a Submit does not get that time for nothing. "rate_kept" is
// the share of tasks completed, of those that came in the same time. Of a system
// that leaves more than a hundredth behind, the higher rates are not measured.
type Rate struct {
	Rates  []int // tasks/s, rising
	For    time.Duration
	Warmup time.Duration // before that, not counted
	Slots  int           // per stage
}

// Names are those of its figures.
func (Rate) Names() []string { return []string{"rate", "rate_kept"} }

// Kept is the share of what is offered that a system which keeps up completes
// at the same time, at least. The rest is chance: tasks are on their way at the
// beginning, and at the end.
const Kept = 0.99

// patience is how long after the last one all tasks may take to be completed.
const patience = 10 * time.Second

// Measure measures one rate after the other.
func (r Rate) Measure(ctx context.Context, t *Trial) error {
	var plans [][]time.Duration
	tasks := 0
	for _, rate := range r.Rates {
		plans = append(plans, arrivalTimes(float64(rate), r.Warmup+r.For, t.Round))
		tasks += len(plans[len(plans)-1])
	}
	stories := newTimelines(tasks)
	crew, err := t.System.Start(ctx, t.URL, harness.Options{Slots: r.Slots, Observe: stories.observe})
	if err != nil {
		return err
	}
	first := 0
	for i, plan := range plans {
		run := rateRun{Rate: r, crew: crew, timelines: stories, first: first, arrivals: plan}
		var kept float64
		if kept, err = run.measure(ctx, t, r.Rates[i]); err != nil || kept < Kept {
			break
		}
		first += len(plan)
	}
	t.Stop(ctx, &err, crew)
	return cmp.Or(err, stories.err())
}

// rateRun is one rate.
type rateRun struct {
	Rate
	crew      harness.Workers
	timelines *timelines
	first     int             // the first task's number
	arrivals  []time.Duration // when each is to come
	startedAt time.Time
}

func (r *rateRun) measure(ctx context.Context, t *Trial, rate int) (kept float64, err error) {
	if err := r.submit(ctx); err != nil {
		return 0, err
	}
	all, err := r.wait(ctx)
	if err != nil {
		return 0, err
	}
	latencies, kept := r.latenciesAndShare()
	of := fmt.Sprintf("rate=%d", rate)
	t.Record("rate_kept", of, "share", result.FromValue(kept))
	if all {
		t.Record("rate", of, "ms", result.FromDurations(latencies))
	} else {
		t.Logf("rate/%s/%s: not all were completed %v after the last one came", t.systemName, of, patience)
	}
	return kept, nil
}

// submit submits each task when its time has come, and does not wait for those
// before it.
func (r *rateRun) submit(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var all sync.WaitGroup
	r.startedAt = time.Now()
	for i, at := range r.arrivals {
		if pause(ctx, at-time.Since(r.startedAt)) != nil {
			break
		}
		all.Go(func() {
			if err := r.crew.Submit(ctx, int64(r.first+i)); err != nil {
				fail(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// wait says whether all tasks were completed, in the time there is for it.
func (r *rateRun) wait(ctx context.Context) (bool, error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	for i := range r.arrivals {
		select {
		case <-r.timelines.tasks[r.first+i].done:
		case <-late.C:
			return false, r.timelines.err()
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	return true, r.timelines.err()
}

// figures are of the time after the warm-up: how long those took that came in
// it and were completed, and how many were completed in it, as a share of those
// that came.
func (r *rateRun) latenciesAndShare() (latencies []time.Duration, kept float64) {
	from, to := r.startedAt.Add(r.Warmup), r.startedAt.Add(r.Warmup+r.For)
	came, went := 0, 0
	for i, at := range r.arrivals {
		s := &r.timelines.tasks[r.first+i]
		s.mu.Lock()
		end := s.when(harness.Publish, harness.Completed)
		s.mu.Unlock()
		if !end.IsZero() && !end.Before(from) && end.Before(to) {
			went++
		}
		if at < r.Warmup {
			continue
		}
		came++
		if !end.IsZero() {
			latencies = append(latencies, end.Sub(r.startedAt.Add(at)))
		}
	}
	if came == 0 {
		return nil, 0
	}
	return latencies, min(float64(went)/float64(came), 1)
}
