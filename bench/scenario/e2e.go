package scenario

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cuelight/cuelight/bench/report"
	"github.com/cuelight/cuelight/bench/system"
	"github.com/cuelight/cuelight/internal/ctxsleep"
)

// E2E takes tasks through an idle system, one after the other. It records, in ms: "e2e", from
// before Submit until the last stage is completed, and "hop", from the end of a stage's work until a dependent stage
// starts. commitDelay makes each commit slower, as a slow disk does; then it records only "e2e".
func E2E(samples int, commitDelay time.Duration) Scenario {
	names := []string{"e2e", "hop"}
	return Scenario{Names: names, Settings: slowCommits(commitDelay), Measure: func(ctx context.Context, t *Trial) error {
		s, err := t.oneByOne(ctx, t.start, samples, nil)
		if err != nil {
			return err
		}
		var whole []time.Duration
		for _, task := range s.measured {
			whole = append(whole, s.At(task, system.Publish, system.Completed).Sub(s.submittedAt[task]))
		}
		t.RecordDurations("e2e", idleCase(commitDelay), whole)
		if commitDelay == 0 {
			t.RecordDurations("hop", "", s.hops(system.Ended))
		}
		return nil
	}}
}

// SpreadE2E is the "e2e" of systems that poll every few seconds. It submits at random times within a duration, without waiting
// for other tasks: they do not slow each other down as long as there are free slots.
func SpreadE2E(samples int, during time.Duration) Scenario {
	return Scenario{Names: []string{"e2e"}, Measure: func(ctx context.Context, t *Trial) error {
		loop := openLoop{arrivals: arrivalTimes(float64(samples)/during.Seconds(), during, t.Round), timeout: stuckTimeout}
		loop.Recorder = system.NewRecorder(len(loop.arrivals))
		var err error
		if loop.workers, err = t.start(ctx, system.Options{Observe: loop.Observe}); err != nil {
			return err
		}
		loop.startedAt = time.Now()
		_, err = loop.run(ctx)
		t.stop(ctx, &err, loop.workers...)
		if err == nil {
			err = loop.Check()
		}
		if err == nil {
			latencies, _ := loop.figures(0, during, 0)
			t.RecordDurations("e2e", "idle", latencies)
		}
		return err
	}}
}

// HopToOtherProcess measures the time from the completion of a stage in one process until a
// dependent stage starts in another: "hop_other". Two processes share the stages so that every
// hop crosses from one to the other. A commit is known last to the process that commits, so on a
// busy machine a time may be negative.
func HopToOtherProcess(samples int) Scenario {
	return Scenario{Names: []string{"hop_other"}, Measure: func(ctx context.Context, t *Trial) error {
		s, err := t.oneByOne(ctx, func(ctx context.Context, o system.Options) ([]system.Workers, error) {
			o.Stages = []system.Stage{system.Ingest, system.Assemble}
			all, err := t.start(ctx, o)
			if err != nil {
				return nil, err
			}
			o.Stages = []system.Stage{system.Transcode, system.Metadata, system.Publish}
			there, err := t.startProcesses(1)(ctx, o)
			if err != nil {
				t.stop(ctx, &err, all...)
				return nil, err
			}
			return append(all, there...), nil
		}, samples, nil)
		if err == nil {
			t.RecordDurations("hop_other", "", s.hops(system.Completed))
		}
		return err
	}}
}

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
	return Scenario{Names: []string{"start", "start_beyond", "http", remoteName}, Measure: func(ctx context.Context, t *Trial) error {
		var remote roundTripper
		var trips []time.Duration
		s, err := t.oneByOne(ctx, func(ctx context.Context, o system.Options) ([]system.Workers, error) {
			all, err := t.start(ctx, o)
			if err == nil {
				remote, _ = all[0].(roundTripper)
			}
			return all, err
		}, samples, func(task int) error {
			if remote == nil {
				return nil
			}
			took, err := remote.RoundTrip(ctx)
			if task >= warmup {
				trips = append(trips, took)
			}
			return err
		})
		if err != nil {
			return err
		}
		var starts []time.Duration
		for _, task := range s.measured {
			starts = append(starts, s.At(task, system.Ingest, system.Started).Sub(s.submittedAt[task]))
		}
		t.RecordDurations("start", "idle", starts)
		if len(trips) > 0 {
			t.RecordDurations("http", "idle", trips)
			beyond := report.FromDurations(starts).Value - 2*report.FromDurations(trips).Value
			t.RecordValue("start_beyond", "idle", "ms", beyond)
		}
		return nil
	}}
}

// remoteName selects the scenarios that compare remote workers with local ones.
const remoteName = "remote"

// warmup is the number of samples of an idle system that are dropped: connections are opened,
// and statements prepared.
const warmup = 10

// slowCommits returns the settings of a database whose commits take d longer.
func slowCommits(d time.Duration) []string {
	if d == 0 {
		return nil
	}
	return []string{fmt.Sprintf("commit_delay=%d", d.Microseconds()), "commit_siblings=0"}
}

// idleCase returns the case of a figure of an idle system.
func idleCase(commitDelay time.Duration) string {
	if commitDelay == 0 {
		return "idle"
	}
	return fmt.Sprintf("commit_delay=%v", commitDelay)
}

// idlePause waits for a random 5 to 50 ms, after which all processes sleep.
func idlePause(ctx context.Context) error {
	return ctxsleep.For(ctx, 5*time.Millisecond+rand.N(45*time.Millisecond))
}

// sequence is tasks that do not compete.
type sequence struct {
	*system.Recorder
	submittedAt []time.Time
	measured    []int // tasks
}

// oneByOne takes tasks through workers, each after a pause, and stops the workers. The warm-up is not measured. after, if
// not nil, is called after each task.
func (t *Trial) oneByOne(ctx context.Context, start starter, tasks int, after func(task int) error) (*sequence, error) {
	s := &sequence{Recorder: system.NewRecorder(warmup + tasks), submittedAt: make([]time.Time, warmup+tasks)}
	workers, err := start(ctx, system.Options{Observe: s.Observe})
	if err != nil {
		return nil, err
	}
	for task := range warmup + tasks {
		if err == nil {
			err = s.take(ctx, workers[0], task)
		}
		if err == nil && after != nil {
			err = after(task)
		}
		if task >= warmup {
			s.measured = append(s.measured, task)
		}
	}
	t.stop(ctx, &err, workers...)
	return s, cmp.Or(err, s.Err())
}

// take submits a task after a pause and waits until it is completed.
func (s *sequence) take(ctx context.Context, w system.Workers, task int) error {
	if err := idlePause(ctx); err != nil {
		return err
	}
	s.submittedAt[task] = time.Now()
	if err := w.Submit(ctx, int64(task)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 2*stuckTimeout, fmt.Errorf("task %d is stuck", task))
	defer cancel()
	return s.Wait(ctx, task)
}

// hops returns the times of all measured tasks.
func (s *sequence) hops(from system.Kind) (all []time.Duration) {
	for _, task := range s.measured {
		all = slices.Concat(all, s.Hops(task, from))
	}
	return all
}
