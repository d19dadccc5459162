package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/cuelight/cuelight/bench/report"
	"github.com/cuelight/cuelight/bench/system"
	"github.com/cuelight/cuelight/internal/ctxsleep"
)

// RateOptions say how tasks arrive.
type RateOptions struct {
	Rates    []int // tasks/s, rising
	Duration time.Duration
	Warmup   time.Duration // before Duration, not measured
}

// Rate submits tasks at random times, at an average rate, in an open loop: it does not wait
// for the system. "rate" is the time from a task's planned arrival until its completion, in
// ms, so a late Submit counts. "rate_kept" is the number of tasks completed during the
// measurement as a share of those that arrived. After the first rate that a system does not
// sustain, it gets no higher ones. There is no "rate" if tasks are unfinished ten seconds after the last arrival.
func Rate(o RateOptions) Scenario {
	return Scenario{Names: []string{"rate", "rate_kept"}, Measure: func(ctx context.Context, t *Trial) error {
		var plans [][]time.Duration
		tasks := 0
		for _, rate := range o.Rates {
			plan := arrivalTimes(float64(rate), o.Warmup+o.Duration, t.Round)
			plans, tasks = append(plans, plan), tasks+len(plan)
		}
		recorder := system.NewRecorder(tasks)
		workers, err := t.start(ctx, system.Options{Observe: recorder.Observe})
		if err != nil {
			return err
		}
		first := 0
		for i, plan := range plans {
			loop := openLoop{Recorder: recorder, workers: workers, first: first, arrivals: plan, startedAt: time.Now()}
			first += len(plan)
			var isComplete bool
			if isComplete, err = loop.run(ctx); err != nil {
				break
			}
			latencies, share := loop.figures(o.Warmup, o.Warmup+o.Duration, 0)
			caseName := fmt.Sprintf("rate=%d", o.Rates[i])
			t.RecordValue("rate_kept", caseName, "share", share)
			if isComplete {
				t.RecordDurations("rate", caseName, latencies)
			}
			if share < report.SustainedShare {
				break
			}
		}
		t.stop(ctx, &err, workers...)
		return cmp.Or(err, recorder.Err())
	}}
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

// Snapshot submits tasks at a steady rate to two workers of this program before, while and after a transaction elsewhere holds a
// snapshot, as a dump does. Until it ends, neither vacuum nor the read of a page removes what was deleted or changed
// meanwhile. For each phase, "snapshot" is the time from a task's planned arrival until its completion, in ms, and
// "snapshot_kept" the number of tasks completed in the phase as a share of those that arrived.
func Snapshot(o SnapshotOptions) Scenario {
	held, after := o.Before+o.Held, o.Before+o.Held+o.Recovery
	whole := after + o.After
	measure := func(ctx context.Context, t *Trial) error {
		loop := openLoop{arrivals: arrivalTimes(float64(o.Rate), whole, t.Round)}
		loop.Recorder = system.NewRecorder(len(loop.arrivals))
		options := system.Options{Users: o.Users, FailEvery: o.FailEvery, Observe: loop.Observe}
		for range 2 {
			w, err := t.start(ctx, options)
			if err != nil {
				t.stop(ctx, &err, loop.workers...)
				return err
			}
			loop.workers = append(loop.workers, w...)
		}
		loop.startedAt = time.Now()
		all, running := errgroup.WithContext(ctx)
		all.Go(func() error {
			_, err := loop.run(running)
			return err
		})
		all.Go(func() error { return holdSnapshot(running, t, loop.startedAt.Add(o.Before), loop.startedAt.Add(held)) })
		err := all.Wait()
		for _, phase := range []struct {
			name     string
			from, to time.Duration
		}{{"before", 0, o.Before}, {"held", o.Before, held}, {"after", after, whole}} {
			if err == nil {
				latencies, share := loop.figures(phase.from, phase.to, o.FailEvery)
				t.RecordDurations("snapshot", phase.name+o.suffix(), latencies)
				t.RecordValue("snapshot_kept", phase.name+o.suffix(), "share", share)
			}
		}
		t.stop(ctx, &err, loop.workers...)
		return cmp.Or(err, loop.Err())
	}
	return Scenario{Names: []string{"snapshot", "snapshot_kept"}, Measure: measure}
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

// holdSnapshot holds a snapshot in a transaction from one time to another. It returns an error if the
// snapshot was not held until the end.
func holdSnapshot(ctx context.Context, t *Trial, from, to time.Time) error {
	if err := ctxsleep.For(ctx, time.Until(from)); err != nil {
		return err
	}
	return system.WithConn(ctx, t.URL, func(conn *pgx.Conn) error {
		tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
		if err == nil {
			_, err = tx.Exec(ctx, "select") // the first statement takes the snapshot
		}
		if err != nil {
			return fmt.Errorf("hold snapshot: %w", err)
		}
		t.Logf("snapshot/%s: the snapshot is held", t.SystemName())
		if err := ctxsleep.For(ctx, time.Until(to)); err != nil {
			return err
		}
		isHeld := false
		const isHeldSQL = "select backend_xmin is not null from pg_stat_activity where pid = pg_backend_pid()"
		if err := tx.QueryRow(ctx, isHeldSQL).Scan(&isHeld); err != nil || !isHeld {
			return errors.Join(errors.New("the snapshot was not held"), err)
		}
		t.Logf("snapshot/%s: the snapshot ends", t.SystemName())
		return nil
	})
}

// openLoop submits tasks at planned times. It does not wait for the system.
type openLoop struct {
	*system.Recorder
	workers   []system.Workers // in turns
	first     int              // the number of the first task
	arrivals  []time.Duration  // since startedAt
	startedAt time.Time
	timeout   time.Duration // how long tasks may take after the last arrival; 0 for drainTimeout
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

const drainTimeout = 10 * time.Second

// run submits each task at its time. It reports whether all were completed in time.
func (l *openLoop) run(ctx context.Context) (isComplete bool, err error) {
	submitting, cancel := context.WithCancelCause(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel(nil)
	for i, at := range l.arrivals {
		if ctxsleep.For(submitting, at-time.Since(l.startedAt)) != nil {
			break
		}
		all.Go(func() {
			if err := l.workers[i%len(l.workers)].Submit(submitting, int64(l.first+i)); err != nil {
				cancel(err)
			}
		})
	}
	errLate := errors.New("late")
	waiting, stop := context.WithTimeoutCause(submitting, cmp.Or(l.timeout, drainTimeout), errLate)
	defer stop()
	for i := range l.arrivals {
		if err := l.Wait(waiting, l.first+i); errors.Is(err, errLate) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	return true, nil
}

// figures returns the latencies of the tasks that arrived in a phase, and the number of completions in it as a share of
// these arrivals. A task that is not completed has at least the latency that it has now. Of tasks that fail first, which
// are those that failEvery divides, it returns no latency.
func (l *openLoop) figures(from, to time.Duration, failEvery int) (latencies []time.Duration, share float64) {
	arrived, completed, now := 0, 0, time.Since(l.startedAt)
	for i, at := range l.arrivals {
		end := now
		if completedAt := l.At(l.first+i, system.Publish, system.Completed); !completedAt.IsZero() {
			if end = completedAt.Sub(l.startedAt); end >= from && end < to {
				completed++
			}
		}
		if at >= from && at < to {
			arrived++
			if failEvery == 0 || i%failEvery != 0 {
				latencies = append(latencies, end-at)
			}
		}
	}
	if arrived == 0 {
		return nil, 0
	}
	return latencies, min(float64(completed)/float64(arrived), 1)
}
