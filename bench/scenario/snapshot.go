package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/result"
	"github.com/cuelight/cuelight/internal/ctxsleep"
)

// Snapshot submits tasks at a steady rate to two workers of this program before, while and after a transaction elsewhere holds a
// snapshot, as a dump does. Until it ends, neither vacuum nor the read of a page removes what was deleted or changed
// meanwhile. For each phase, "snapshot" is the time from a task's planned arrival until its completion, in ms, and
// "snapshot_kept" the number of tasks completed in the phase as a share of those that arrived.
func Snapshot(o SnapshotOptions) Scenario {
	return Scenario{
		Names: []string{"snapshot", "snapshot_kept"}, Measure: o.measure,
		Timeout: o.duration() + runTimeout,
	}
}

// SnapshotOptions say how tasks arrive, and for how long a snapshot is held.
type SnapshotOptions struct {
	Rate                int // tasks/s
	Before, Held, After time.Duration
	Recovery            time.Duration // between Held and After, not measured

	// Users is how many submit in turns, where a system knows users. 0 for tasks without a user.
	Users int
	// FailEvery makes the first transcode of every such task fail; 0 for none. The latency of these tasks, which wait
	// for their retry, is not recorded.
	FailEvery int
}

func (o SnapshotOptions) duration() time.Duration { return o.Before + o.Held + o.Recovery + o.After }

// phase is a part of the measurement, as offsets from its start.
type phase struct {
	name     string
	from, to time.Duration
}

func (o SnapshotOptions) phases() []phase {
	held := o.Before + o.Held
	return []phase{
		{"before", 0, o.Before}, {"held", o.Before, held}, {"after", held + o.Recovery, held + o.Recovery + o.After},
	}
}

// suffix tells the runs of one scenario apart.
func (o SnapshotOptions) suffix() (s string) {
	if o.Users > 0 {
		s += fmt.Sprintf(",users=%d", o.Users)
	}
	if o.FailEvery > 0 {
		s += fmt.Sprintf(",failing=1/%d", o.FailEvery)
	}
	return s
}

func (o SnapshotOptions) measure(ctx context.Context, t *Trial) (err error) {
	run := snapshotRun{SnapshotOptions: o, arrivals: arrivalTimes(float64(o.Rate), o.duration(), t.Round)}
	run.ends = make([]atomic.Int64, len(run.arrivals))
	options := harness.Options{Slots: t.Slots, Users: o.Users, FailEvery: o.FailEvery, Observe: run.observe}
	for range 2 {
		w, startErr := t.System.Start(ctx, t.URL, options)
		if startErr != nil {
			t.Stop(ctx, &startErr, run.workers...)
			return startErr
		}
		run.workers = append(run.workers, w)
	}
	run.startedAt = time.Now()
	err = run.submit(ctx, t)
	t.Stop(ctx, &err, run.workers...)
	if err := errors.Join(err, run.errs.Err()); err != nil {
		return err
	}
	t.Note("snapshot", "%d tasks/s to two workers; %v without, %v with a snapshot held elsewhere, then, after %v, %v without",
		o.Rate, o.Before, o.Held, o.Recovery, o.After)
	for _, p := range o.phases() {
		latencies, share := run.figures(p)
		t.RecordDurations("snapshot", p.name+o.suffix(), latencies)
		t.Record("snapshot_kept", p.name+o.suffix(), "share", result.FromValue(share))
	}
	return nil
}

// snapshotRun is one measurement.
type snapshotRun struct {
	SnapshotOptions
	workers   []harness.Workers
	arrivals  []time.Duration // since startedAt
	startedAt time.Time
	ends      []atomic.Int64 // since startedAt, by task; 0 for tasks that are not completed
	errs      harness.ErrorList
}

// observe records the completion of a task.
func (r *snapshotRun) observe(o harness.Observation) {
	if o.Kind != harness.Completed {
		return
	}
	if o.Stage == harness.Publish && !r.ends[o.Task].CompareAndSwap(0, max(int64(o.At.Sub(r.startedAt)), 1)) {
		r.errs.Add(fmt.Errorf("%v of task %d %v twice", o.Stage, o.Task, o.Kind))
	}
}

// submit submits each task at its time, to the workers in turns, and waits until the last ones are completed.
func (r *snapshotRun) submit(ctx context.Context, t *Trial) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	all.Go(func() { cancel(r.holdSnapshot(ctx, t)) })
	all.Go(func() { r.logProgress(ctx, t) })
	for i, at := range r.arrivals {
		if ctxsleep.For(ctx, at-time.Since(r.startedAt)) != nil {
			break
		}
		all.Go(func() {
			if err := r.workers[i%len(r.workers)].Submit(ctx, int64(i)); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, errScheduleEnded) {
		return err
	}
	return nil
}

// errScheduleEnded ends the submission of tasks, of which none is left.
var errScheduleEnded = errors.New("the schedule has ended")

// holdSnapshot holds a snapshot at its time and returns at the end of the schedule, or once nothing waits any more.
func (r *snapshotRun) holdSnapshot(ctx context.Context, t *Trial) error {
	if err := ctxsleep.For(ctx, r.Before-time.Since(r.startedAt)); err != nil {
		return err
	}
	t.Logf("snapshot/%s: the snapshot is held", t.systemName)
	err := holdSnapshot(ctx, t.URL, func() error { return ctxsleep.For(ctx, r.Before+r.Held-time.Since(r.startedAt)) })
	if err != nil {
		return err
	}
	t.Logf("snapshot/%s: the snapshot has ended", t.systemName)
	if err := ctxsleep.For(ctx, r.duration()-time.Since(r.startedAt)); err != nil {
		return err
	}
	for deadline := time.Now().Add(drainTimeout); r.waiting(r.duration()) > 0 && time.Now().Before(deadline); {
		if err := ctxsleep.For(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return errScheduleEnded
}

// waiting returns how many tasks have arrived by a time and are not completed.
func (r *snapshotRun) waiting(by time.Duration) (n int) {
	for i, at := range r.arrivals {
		if at > by {
			break
		}
		if r.ends[i].Load() == 0 {
			n++
		}
	}
	return n
}

// logProgress says every ten seconds how many tasks wait, so that one can watch a long run.
func (r *snapshotRun) logProgress(ctx context.Context, t *Trial) {
	for ctxsleep.For(ctx, 10*time.Second) == nil {
		now := time.Since(r.startedAt)
		latencies, share := r.figures(phase{from: now - 10*time.Second, to: now})
		latency := result.FromDurations(latencies)
		t.Logf("snapshot/%s: %5.0f s  p50 %.4g  p99 %.4g ms  kept %.3f  %d waiting", t.systemName, now.Seconds(),
			latency.Value, latency.Percentile(99), share, r.waiting(now))
	}
}

// figures returns the latencies of the tasks that arrived in a phase, and the number of completions in it as a share of
// these arrivals. A task that is not completed has at least the latency that it has now.
func (r *snapshotRun) figures(p phase) (latencies []time.Duration, share float64) {
	now := time.Since(r.startedAt)
	first, _ := slices.BinarySearch(r.arrivals, p.from)
	arrived, completed := 0, 0
	for i, at := range r.arrivals {
		end := time.Duration(r.ends[i].Load())
		if end > p.from && end <= p.to {
			completed++
		}
		if i < first || at >= p.to {
			continue
		}
		arrived++
		if end == 0 {
			end = now
		}
		if r.FailEvery == 0 || i%r.FailEvery != 0 {
			latencies = append(latencies, end-at)
		}
	}
	if arrived == 0 {
		return nil, 0
	}
	return latencies, min(float64(completed)/float64(arrived), 1)
}

// holdSnapshot calls a function while a transaction holds a snapshot. It returns an error if the
// snapshot was not held until the end.
func holdSnapshot(ctx context.Context, url string, during func() error) error {
	return harness.WithConn(ctx, url, func(conn *pgx.Conn) error {
		tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
		if err != nil {
			return fmt.Errorf("hold snapshot: %w", err)
		}
		if _, err := tx.Exec(ctx, "select"); err != nil { // the first statement takes the snapshot
			return fmt.Errorf("hold snapshot: %w", err)
		}
		duringErr := during()
		const isHeldSQL = "select backend_xmin is not null from pg_stat_activity where pid = pg_backend_pid()"
		isHeld := false
		err = tx.QueryRow(ctx, isHeldSQL).Scan(&isHeld)
		if err != nil || !isHeld {
			err = errors.Join(errors.New("the snapshot was not held"), err)
		}
		return errors.Join(duringErr, err)
	})
}
