package scenario

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/result"
)

// remoteName selects the scenarios that compare remote workers with local ones.
const remoteName = "remote"

// roundTripper is implemented by workers that talk to their coordinator over HTTP.
type roundTripper interface {
	// RoundTrip sends a request that does nothing, and returns how long its answer took.
	RoundTrip(ctx context.Context) (time.Duration, error)
}

// Start measures the time from before Submit until the first stage starts at a worker that waits:
// "start". One task is submitted after the other. With workers that talk HTTP it also measures a
// round trip after each task, "http", and records by how much the median start exceeds two median
// round trips: "start_beyond".
func Start(samples int) Scenario {
	return Scenario{
		Names:   []string{"start", "start_beyond", "http", remoteName},
		Measure: func(ctx context.Context, t *Trial) error { return measureStart(ctx, t, samples) },
	}
}

func measureStart(ctx context.Context, t *Trial, samples int) (err error) {
	run := newE2ERun(E2EOptions{Samples: samples}, Warmup+samples)
	run.workers, err = t.System.Start(ctx, t.URL, harness.Options{Slots: t.Slots, Observe: run.Observe})
	if err != nil {
		return err
	}
	var trips []time.Duration
	if remote, ok := run.workers.(roundTripper); ok {
		run.afterTask = func() error {
			took, err := remote.RoundTrip(ctx)
			trips = append(trips, took)
			return err
		}
	}
	_, err = run.submitInSequence(ctx)
	t.Stop(ctx, &err, run.workers)
	if err = cmp.Or(err, run.Err()); err != nil {
		return err
	}
	var starts []time.Duration
	for i := Warmup; i < len(run.submits); i++ {
		starts = append(starts, run.At(i, harness.Ingest, harness.Started).Sub(run.submits[i].start))
	}
	t.RecordDurations("start", "idle", starts)
	if len(trips) > 0 {
		trips = trips[Warmup:]
		t.RecordDurations("http", "idle", trips)
		beyond := result.FromDurations(starts).Value - 2*result.FromDurations(trips).Value
		t.Record("start_beyond", "idle", "ms", result.FromValue(beyond))
	}
	return nil
}

// RemoteDrain is Drain, to compare remote workers with local ones: "remote_drain".
func RemoteDrain(tasks int) Scenario {
	return Scenario{Names: []string{"remote_drain", remoteName}, Measure: func(ctx context.Context, t *Trial) error {
		return t.measureThroughput(ctx, "remote_drain", fmt.Sprintf("tasks=%d", tasks), tasks)
	}}
}
