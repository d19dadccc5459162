package scenario

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cuelight/cuelight/bench/report"
	"github.com/cuelight/cuelight/bench/system"
	"github.com/cuelight/cuelight/internal/ctxsleep"
)

// E2E takes tasks through an idle system, one after the other. It records, in ms: "e2e", from
// before Submit until the last stage is completed; "wake_submit", from the return of Submit
// until the first stage starts; "hop", from the end of a stage's work until a dependent stage
// starts; and "hop_commit", the same from the completion. commitDelay makes each commit slower, as a slow disk does.
//
// A commit is known last to the process that commits. On a busy machine the first stage may
// have started before Submit returns, and wake_submit may be negative.
func E2E(samples int, commitDelay time.Duration) Scenario {
	return Scenario{Names: e2eNames, Settings: slowCommits(commitDelay), Measure: func(ctx context.Context, t *Trial) error {
		s, err := t.oneByOne(ctx, t.start, samples, nil)
		if err == nil {
			s.recordE2E(t, commitDelay)
		}
		return err
	}}
}

var e2eNames = []string{"e2e", "wake_submit", "hop", "hop_commit"}

// SpreadE2E is E2E for systems that poll every few seconds. It submits at random times within a duration, without waiting
// for other tasks: they do not slow each other down as long as there are free slots.
func SpreadE2E(samples int, during time.Duration) Scenario {
	return Scenario{Names: e2eNames, Measure: func(ctx context.Context, t *Trial) error {
		s := newSequence(samples)
		workers, err := t.start(ctx, system.Options{Observe: s.Observe})
		if err != nil {
			return err
		}
		var all errgroup.Group
		for task := range s.submits {
			all.Go(func() error {
				if err := ctxsleep.For(ctx, rand.N(during)); err != nil {
					return err
				}
				return s.take(ctx, workers[0], task)
			})
		}
		err = all.Wait()
		t.stop(ctx, &err, workers...)
		if err = cmp.Or(err, s.Err()); err == nil {
			s.recordE2E(t, 0)
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
			starts = append(starts, s.At(task, system.Ingest, system.Started).Sub(s.submits[task].start))
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
	submits  []span
	measured []int // tasks
}

// span is the time of a call.
type span struct{ start, end time.Time }

func newSequence(tasks int) *sequence {
	s := &sequence{Recorder: system.NewRecorder(tasks), submits: make([]span, tasks)}
	for task := range tasks {
		s.measured = append(s.measured, task)
	}
	return s
}

// take submits a task and waits until it is completed.
func (s *sequence) take(ctx context.Context, w system.Workers, task int) error {
	s.submits[task].start = time.Now()
	err := w.Submit(ctx, int64(task))
	s.submits[task].end = time.Now()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 4*stuckTimeout, fmt.Errorf("task %d is stuck", task))
	defer cancel()
	return s.Wait(ctx, task)
}

// oneByOne takes tasks through workers, each after a pause, and stops the workers. The warm-up is not measured. after, if
// not nil, is called after each task.
func (t *Trial) oneByOne(ctx context.Context, start starter, tasks int, after func(task int) error) (*sequence, error) {
	s := newSequence(warmup + tasks)
	s.measured = s.measured[warmup:]
	workers, err := start(ctx, system.Options{Observe: s.Observe})
	if err != nil {
		return nil, err
	}
	for task := range s.submits {
		if err == nil {
			err = idlePause(ctx)
		}
		if err == nil {
			err = s.take(ctx, workers[0], task)
		}
		if err == nil && after != nil {
			err = after(task)
		}
	}
	t.stop(ctx, &err, workers...)
	return s, cmp.Or(err, s.Err())
}

// hops returns the times of all measured tasks.
func (s *sequence) hops(from system.Kind) (all []time.Duration) {
	for _, task := range s.measured {
		all = slices.Concat(all, s.Hops(task, from))
	}
	return all
}

func (s *sequence) recordE2E(t *Trial, commitDelay time.Duration) {
	var total, wake []time.Duration
	for _, task := range s.measured {
		total = append(total, s.At(task, system.Publish, system.Completed).Sub(s.submits[task].start))
		wake = append(wake, s.At(task, system.Ingest, system.Started).Sub(s.submits[task].end))
	}
	t.RecordDurations("e2e", idleCase(commitDelay), total)
	caseName := ""
	if commitDelay > 0 {
		caseName = idleCase(commitDelay)
	}
	t.RecordDurations("wake_submit", caseName, wake)
	t.RecordDurations("hop", caseName, s.hops(system.Ended))
	t.RecordDurations("hop_commit", caseName, s.hops(system.Completed))
}
