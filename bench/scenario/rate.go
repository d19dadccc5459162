package scenario

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cuelight/cuelight/bench/contest"
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
		plans = append(plans, schedule(float64(rate), r.Warmup+r.For, t.Round))
		tasks += len(plans[len(plans)-1])
	}
	stories := newStories(tasks)
	crew, err := t.Contestant.Start(ctx, t.URL, contest.Options{Slots: r.Slots, Observe: stories.observe})
	if err != nil {
		return err
	}
	first := 0
	for i, plan := range plans {
		run := rateRun{Rate: r, crew: crew, stories: stories, first: first, plan: plan}
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
	crew    contest.Crew
	stories *stories
	first   int             // the first task's number
	plan    []time.Duration // when each is to come
	began   time.Time
}

func (r *rateRun) measure(ctx context.Context, t *Trial, rate int) (kept float64, err error) {
	if err := r.submit(ctx); err != nil {
		return 0, err
	}
	all, err := r.wait(ctx)
	if err != nil {
		return 0, err
	}
	latencies, kept := r.figures()
	of := fmt.Sprintf("rate=%d", rate)
	t.Record("rate_kept", of, "share", result.Value(kept))
	if all {
		t.Record("rate", of, "ms", result.OfDurations(latencies))
	} else {
		t.Say("rate/%s/%s: not all were completed %v after the last one came", t.name, of, patience)
	}
	return kept, nil
}

// submit submits each task when its time has come, and does not wait for those
// before it.
func (r *rateRun) submit(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var all sync.WaitGroup
	r.began = time.Now()
	for i, at := range r.plan {
		if pause(ctx, at-time.Since(r.began)) != nil {
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
	for i := range r.plan {
		select {
		case <-r.stories.all[r.first+i].done:
		case <-late.C:
			return false, r.stories.err()
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	return true, r.stories.err()
}

// figures are of the time after the warm-up: how long those took that came in
// it and were completed, and how many were completed in it, as a share of those
// that came.
func (r *rateRun) figures() (latencies []time.Duration, kept float64) {
	from, to := r.began.Add(r.Warmup), r.began.Add(r.Warmup+r.For)
	came, went := 0, 0
	for i, at := range r.plan {
		s := &r.stories.all[r.first+i]
		s.mu.Lock()
		end := s.when(contest.Publish, contest.Completed)
		s.mu.Unlock()
		if !end.IsZero() && !end.Before(from) && end.Before(to) {
			went++
		}
		if at < r.Warmup {
			continue
		}
		came++
		if !end.IsZero() {
			latencies = append(latencies, end.Sub(r.began.Add(at)))
		}
	}
	if came == 0 {
		return nil, 0
	}
	return latencies, min(float64(went)/float64(came), 1)
}
