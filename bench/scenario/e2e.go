package scenario

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/internal/ctxsleep"
)

// E2E takes tasks through an idle system, one after the other. It records, in ms: "e2e", from
// before Submit until the last stage is completed; "wake_submit", from the return of Submit
// until the first stage starts; "hop", from the end of a stage's work until a dependent stage
// starts; and "hop_commit", the same from the completion.
//
// A commit is known last to the process that commits. On a busy machine the first stage may
// have started before Submit returns, and wake_submit may be negative.
func E2E(o E2EOptions) Scenario {
	return Scenario{
		Names: []string{"e2e", "wake_submit", "hop", "hop_commit"}, Settings: SlowCommitSettings(o.CommitDelay),
		Measure: o.measure,
	}
}

// E2EOptions say how tasks are submitted. Without options, one is submitted after the other.
type E2EOptions struct {
	Samples   int
	TimeLimit time.Duration // of the run, which takes at least five samples; 0 for none

	// Spread submits at random times within this duration, without waiting for other tasks. It
	// is for systems that poll every few seconds: tasks do not slow each other down as long as
	// there are free slots. 0 submits one after the other.
	Spread time.Duration

	// CommitDelay makes each commit slower, as a slow disk does.
	CommitDelay time.Duration
}

// Warmup is the number of samples of an idle system that are dropped: connections are opened,
// and statements prepared.
const Warmup = 10

// SlowCommitSettings returns the settings of a database whose commits take d longer.
func SlowCommitSettings(d time.Duration) []string {
	if d == 0 {
		return nil
	}
	return []string{fmt.Sprintf("commit_delay=%d", d.Microseconds()), "commit_siblings=0"}
}

// IdleCase returns the case of a figure of an idle system.
func IdleCase(commitDelay time.Duration) string {
	if commitDelay == 0 {
		return "idle"
	}
	return fmt.Sprintf("commit_delay=%v", commitDelay)
}

// IdlePause waits for a random 5 to 50 ms, after which all processes sleep.
func IdlePause(ctx context.Context) error {
	return ctxsleep.For(ctx, 5*time.Millisecond+rand.N(45*time.Millisecond))
}

// measure records all four figures.
func (o E2EOptions) measure(ctx context.Context, t *Trial) (err error) {
	tasks := o.Samples
	if o.Spread == 0 {
		tasks += Warmup
	}
	run := newE2ERun(o, tasks)
	run.workers, err = t.System.Start(ctx, t.URL, harness.Options{Slots: t.Slots, Observe: run.Observe})
	if err != nil {
		return err
	}
	var n int
	if o.Spread > 0 {
		n, err = run.submitSpread(ctx)
	} else {
		n, err = run.submitInSequence(ctx)
	}
	t.Stop(ctx, &err, run.workers)
	if err = cmp.Or(err, run.Err()); err != nil {
		return err
	}
	run.record(t, n)
	return nil
}

type e2eRun struct {
	E2EOptions
	*harness.Recorder
	workers   harness.Workers
	submits   []span
	afterTask func() error // called after each task of submitInSequence; may be nil
}

// span is the time of a call.
type span struct{ start, end time.Time }

func newE2ERun(o E2EOptions, tasks int) *e2eRun {
	return &e2eRun{E2EOptions: o, Recorder: harness.NewRecorder(tasks), submits: make([]span, tasks)}
}

func (r *e2eRun) submit(ctx context.Context, task int) error {
	r.submits[task].start = time.Now()
	err := r.workers.Submit(ctx, int64(task))
	r.submits[task].end = time.Now()
	return err
}

// wait waits until a task is done.
func (r *e2eRun) wait(ctx context.Context, task int, timeout time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("task %d is stuck after %v", task, timeout))
	defer cancel()
	return r.Wait(ctx, task)
}

// submitInSequence returns the number of finished tasks.
func (r *e2eRun) submitInSequence(ctx context.Context) (n int, err error) {
	minimum := min(5, r.Samples)
	started := time.Now()
	for ; n < len(r.submits); n++ {
		if r.TimeLimit > 0 && n >= minimum && time.Since(started) > r.TimeLimit {
			break
		}
		err := IdlePause(ctx)
		if err == nil {
			err = r.submit(ctx, n)
		}
		if err == nil {
			err = r.wait(ctx, n, 2*stuckTimeout)
		}
		if err == nil && r.afterTask != nil {
			err = r.afterTask()
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

func (r *e2eRun) submitSpread(ctx context.Context) (int, error) {
	var all errgroup.Group
	for task := range r.submits {
		all.Go(func() error {
			err := ctxsleep.For(ctx, rand.N(r.Spread))
			if err == nil {
				err = r.submit(ctx, task)
			}
			if err == nil {
				err = r.wait(ctx, task, 4*stuckTimeout)
			}
			return err
		})
	}
	return len(r.submits), all.Wait()
}

// record omits the warm-up: a fifth of the samples if the run ended early, and none if tasks
// were spread, because they start at random times and take long.
func (r *e2eRun) record(t *Trial, n int) {
	first := Warmup
	switch {
	case r.Spread > 0:
		first = 0
	case n < len(r.submits):
		first = min(Warmup, n/5)
	}
	var total, wake, hops, hopsCommit []time.Duration
	for i := first; i < n; i++ {
		total = append(total, r.At(i, harness.Publish, harness.Completed).Sub(r.submits[i].start))
		wake = append(wake, r.At(i, harness.Ingest, harness.Started).Sub(r.submits[i].end))
		hops = slices.Concat(hops, r.Hops(i, harness.Ended))
		hopsCommit = slices.Concat(hopsCommit, r.Hops(i, harness.Completed))
	}
	caseName := IdleCase(r.CommitDelay)
	t.RecordDurations("e2e", caseName, total)
	if r.CommitDelay == 0 {
		caseName = ""
	}
	t.RecordDurations("wake_submit", caseName, wake)
	t.RecordDurations("hop", caseName, hops)
	t.RecordDurations("hop_commit", caseName, hopsCommit)
}

// HopToOtherProcess measures the time from the completion of a stage in one process until a
// dependent stage starts in another: "hop_other". Two processes share the stages so that every
// hop crosses from one to the other. A commit is known last to the process that commits, so on a
// busy machine a time may be negative. "hop_other_ended" cannot be negative: like "hop", it
// starts at the end of the work and includes the commit.
func HopToOtherProcess(samples int) Scenario {
	return Scenario{
		Names:   []string{"hop_other", "hop_other_ended"},
		Measure: func(ctx context.Context, t *Trial) error { return measureHopToOtherProcess(ctx, t, samples) },
	}
}

func measureHopToOtherProcess(ctx context.Context, t *Trial, samples int) (err error) {
	if t.StartSubprocess == nil {
		return errNoSubprocesses
	}
	run := newE2ERun(E2EOptions{Samples: samples}, Warmup+samples)
	here := harness.Options{
		Slots: t.Slots, Observe: run.Observe, Stages: []harness.Stage{harness.Ingest, harness.Assemble},
	}
	there := here
	there.Stages = []harness.Stage{harness.Transcode, harness.Metadata, harness.Publish}
	if run.workers, err = t.System.Start(ctx, t.URL, here); err != nil {
		return err
	}
	all := []harness.Workers{run.workers}
	other, err := t.StartSubprocess(ctx, t.System, t.URL, there)
	if err == nil {
		all = append(all, other)
		_, err = run.submitInSequence(ctx)
	}
	t.Stop(ctx, &err, all...)
	if err = cmp.Or(err, run.Err()); err != nil {
		return err
	}
	var hops, hopsEnded []time.Duration
	for i := Warmup; i < len(run.submits); i++ {
		hops = slices.Concat(hops, run.Hops(i, harness.Completed))
		hopsEnded = slices.Concat(hopsEnded, run.Hops(i, harness.Ended))
	}
	t.RecordDurations("hop_other", "", hops)
	t.RecordDurations("hop_other_ended", "", hopsEnded)
	return nil
}
