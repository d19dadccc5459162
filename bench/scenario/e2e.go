package scenario

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/result"
)

// E2E takes tasks through the five stages of an idle system, one after the
// other: "e2e" is the time from before the call of Submit until the last stage
// is completed. From the same tasks come "wake_submit", from the return of
// Submit until the first stage begins; "hop", from the end of a stage's work
// until a stage that depends on it begins; and "hop_commit", the same from when
// the stage was completed. All in ms.
//
// Whoever commits hears of it last. On a machine that is busy the first stage may
// have begun by then, and wake_submit be below 0.
type E2E struct {
	Samples int
	Slots   int           // per stage
	Within  time.Duration // ends it earlier, after at least five, if it has so many; 0 for not

	// Spread submits at random times within so long, without waiting for one
	// another: for those who look every few seconds, and whom other tasks, fewer
	// than there are slots, do not make any faster. 0 is one after the other.
	Spread time.Duration

	// CommitDelay makes each commit that much slower, as a slow disk does.
	CommitDelay time.Duration
}

// Warmup is how many samples of an idle system are thrown away: connections
// are made, and statements prepared.
const Warmup = 10

// Names are those of its figures.
func (E2E) Names() []string { return []string{"e2e", "wake_submit", "hop", "hop_commit"} }

// Settings are those of its database.
func (e E2E) DatabaseSettings() []string { return SlowCommitSettings(e.CommitDelay) }

// SlowCommits are the settings of a database in which each commit takes d
// longer.
func SlowCommitSettings(d time.Duration) []string {
	if d == 0 {
		return nil
	}
	return []string{fmt.Sprintf("commit_delay=%d", d.Microseconds()), "commit_siblings=0"}
}

// IdleCase is the case of a figure that was measured on an idle system.
func IdleCase(commitDelay time.Duration) string {
	if commitDelay == 0 {
		return "idle"
	}
	return fmt.Sprintf("commit_delay=%v", commitDelay)
}

// Gap waits for a random 5 to 50 ms, after which everything on the machine has
// gone to sleep.
func IdlePause(ctx context.Context) error {
	return pause(ctx, 5*time.Millisecond+rand.N(45*time.Millisecond))
}

// Measure measures all four.
func (e E2E) Measure(ctx context.Context, t *Trial) (err error) {
	tasks := e.Samples
	if e.Spread == 0 {
		tasks += Warmup
	}
	run := e2eRun{E2E: e, stories: newTimelines(tasks), submitted: make([]span, tasks)}
	run.crew, err = t.System.Start(ctx, t.URL, harness.Options{Slots: e.Slots, Observe: run.stories.observe})
	if err != nil {
		return err
	}
	n := 0
	if e.Spread > 0 {
		n, err = run.spread(ctx)
	} else {
		n, err = run.oneByOne(ctx)
	}
	t.Stop(ctx, &err, run.crew)
	if err = cmp.Or(err, run.stories.err()); err != nil {
		return err
	}
	run.record(t, n)
	return nil
}

type e2eRun struct {
	E2E
	crew      harness.Workers
	stories   *timelines
	submitted []span
}

// span is the time of a call.
type span struct{ from, to time.Time }

// submit submits a task, and keeps when.
func (r *e2eRun) submit(ctx context.Context, task int) error {
	r.submitted[task].from = time.Now()
	err := r.crew.Submit(ctx, int64(task))
	r.submitted[task].to = time.Now()
	return err
}

// oneByOne returns how many tasks there were.
func (r *e2eRun) oneByOne(ctx context.Context) (n int, err error) {
	atLeast := min(5, r.Samples)
	began := time.Now()
	for n < len(r.submitted) {
		if r.Within > 0 && n >= atLeast && time.Since(began) > r.Within {
			break
		}
		if err := IdlePause(ctx); err != nil {
			return n, err
		}
		if err := r.submit(ctx, n); err != nil {
			return n, err
		}
		if err := r.stories.wait(ctx, int64(n), 2*stuckAfter); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

func (r *e2eRun) spread(ctx context.Context) (int, error) {
	errs := make(chan error, len(r.submitted))
	var all sync.WaitGroup
	for task := range r.submitted {
		at := rand.N(r.Spread)
		all.Go(func() {
			err := pause(ctx, at)
			if err == nil {
				err = r.submit(ctx, task)
			}
			if err == nil {
				err = r.stories.wait(ctx, int64(task), 4*stuckAfter)
			}
			errs <- err
		})
	}
	all.Wait()
	for range r.submitted {
		if err := <-errs; err != nil {
			return 0, err
		}
	}
	return len(r.submitted), nil
}

// record leaves the warm-up out. Of a run that was ended early it is a fifth.
func (r *e2eRun) record(t *Trial, n int) {
	var whole, wake, hop, commit []time.Duration
	first := Warmup
	if n < len(r.stories.tasks) {
		first = min(Warmup, n/5)
	}
	if r.Spread > 0 {
		first = 0 // all began at a random time, and take long
	}
	for task := first; task < n; task++ {
		s := &r.stories.tasks[task]
		whole = append(whole, s.when(harness.Publish, harness.Completed).Sub(r.submitted[task].from))
		wake = append(wake, s.when(harness.Ingest, harness.Started).Sub(r.submitted[task].to))
		hop = slices.Concat(hop, s.hops(harness.Ended))
		commit = slices.Concat(commit, s.hops(harness.Completed))
	}
	of := IdleCase(r.CommitDelay)
	t.Record("e2e", of, "ms", result.FromDurations(whole))
	if of = ""; r.CommitDelay > 0 {
		of = IdleCase(r.CommitDelay)
	}
	t.Record("wake_submit", of, "ms", result.FromDurations(wake))
	t.Record("hop", of, "ms", result.FromDurations(hop))
	t.Record("hop_commit", of, "ms", result.FromDurations(commit))
}
