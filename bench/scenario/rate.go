package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/result"
	"github.com/cuelight/cuelight/internal/ctxsleep"
)

// Rate submits tasks at random times, at an average rate, in an open loop: it does not wait
// for the system. "rate" is the time from a task's planned arrival until its completion, in
// ms, so a late Submit counts. "rate_kept" is the number of tasks completed during the
// measurement as a share of those that arrived. After the first rate that a system does not
// sustain, it gets no higher ones.
func Rate(o RateOptions) Scenario {
	return Scenario{Names: []string{"rate", "rate_kept"}, Measure: o.measure}
}

// RateOptions say how tasks arrive.
type RateOptions struct {
	Rates    []int // tasks/s, rising
	Duration time.Duration
	Warmup   time.Duration // before Duration, not measured
}

// drainTimeout is how long tasks may take after the last arrival.
const drainTimeout = 10 * time.Second

// measure measures one rate after the other.
func (r RateOptions) measure(ctx context.Context, t *Trial) error {
	var plans [][]time.Duration
	tasks := 0
	for _, rate := range r.Rates {
		plan := arrivalTimes(float64(rate), r.Warmup+r.Duration, t.Round)
		plans, tasks = append(plans, plan), tasks+len(plan)
	}
	recorder := harness.NewRecorder(tasks)
	workers, err := t.System.Start(ctx, t.URL, harness.Options{Slots: t.Slots, Observe: recorder.Observe})
	if err != nil {
		return err
	}
	first := 0
	for i, plan := range plans {
		run := rateRun{RateOptions: r, Recorder: recorder, workers: workers, first: first, arrivals: plan}
		var share float64
		if share, err = run.measure(ctx, t, r.Rates[i]); err != nil || share < result.SustainedShare {
			break
		}
		first += len(plan)
	}
	t.Stop(ctx, &err, workers)
	return cmp.Or(err, recorder.Err())
}

// arrivalTimes returns random, independent times of arrival. All systems get the same times
// in a round.
func arrivalTimes(rate float64, during time.Duration, round int) (times []time.Duration) {
	r := rand.New(rand.NewPCG(uint64(rate*1000), uint64(round)))
	for at := 0.0; ; {
		at += r.ExpFloat64() / rate
		next := time.Duration(at * float64(time.Second))
		if next >= during {
			return times
		}
		times = append(times, next)
	}
}

// rateRun is one rate.
type rateRun struct {
	RateOptions
	*harness.Recorder
	workers   harness.Workers
	first     int // the number of the first task
	arrivals  []time.Duration
	startedAt time.Time
}

func (r *rateRun) measure(ctx context.Context, t *Trial, rate int) (share float64, err error) {
	if err := r.submit(ctx); err != nil {
		return 0, err
	}
	all, err := r.waitForTasks(ctx)
	if err != nil {
		return 0, err
	}
	latencies, share := r.latenciesAndShare()
	caseName := fmt.Sprintf("rate=%d", rate)
	t.Record("rate_kept", caseName, "share", result.FromValue(share))
	if all {
		t.RecordDurations("rate", caseName, latencies)
	} else {
		t.Logf("rate/%s/%s: tasks are unfinished %v after the last arrival", t.systemName, caseName, drainTimeout)
	}
	return share, nil
}

// submit submits each task at its time.
func (r *rateRun) submit(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	r.startedAt = time.Now()
	for i, at := range r.arrivals {
		if ctxsleep.For(ctx, at-time.Since(r.startedAt)) != nil {
			break
		}
		all.Go(func() {
			if err := r.workers.Submit(ctx, int64(r.first+i)); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

var errLate = errors.New("late")

// waitForTasks reports whether all tasks were completed in time.
func (r *rateRun) waitForTasks(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, drainTimeout, errLate)
	defer cancel()
	for i := range r.arrivals {
		if err := r.Wait(ctx, r.first+i); errors.Is(err, errLate) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	return true, nil
}

// latenciesAndShare returns the latencies of the tasks that arrived after the warm-up, and the
// number of completions after it as a share of these arrivals.
func (r *rateRun) latenciesAndShare() (latencies []time.Duration, share float64) {
	from, to := r.startedAt.Add(r.Warmup), r.startedAt.Add(r.Warmup+r.RateOptions.Duration)
	arrived, completed := 0, 0
	for i, at := range r.arrivals {
		end := r.At(r.first+i, harness.Publish, harness.Completed)
		if !end.IsZero() && !end.Before(from) && end.Before(to) {
			completed++
		}
		if at < r.Warmup {
			continue
		}
		arrived++
		if !end.IsZero() {
			latencies = append(latencies, end.Sub(r.startedAt.Add(at)))
		}
	}
	if arrived == 0 {
		return nil, 0
	}
	return latencies, min(float64(completed)/float64(arrived), 1)
}
