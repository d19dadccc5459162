package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/result"
	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// ProcessorTime measures the processor time of the database server, with all of its processes, and of
// this program, which also submits and records: "cpu", in ms per task. It takes tasks through an idle
// system one by one, with pauses, and drains others. Other work on the machine changes it less than it
// changes latencies.
func ProcessorTime(oneByOne, drained int) Scenario {
	return Scenario{Names: []string{"cpu"}, Measure: func(ctx context.Context, t *Trial) error {
		used, err := measureOneByOne(ctx, t, t.startOne(t.System), oneByOne)
		if err != nil {
			return err
		}
		t.recordProcessorTime("one by one", oneByOne, used)
		if err := t.awaitDisconnected(ctx); err != nil {
			return err
		}
		before, err := t.processorTime(ctx)
		if err == nil {
			_, err = t.drain(ctx, drained, harness.Options{})
		}
		if err == nil {
			err = t.awaitDisconnected(ctx)
		}
		if err == nil {
			used, err = t.processorTime(ctx)
		}
		if err != nil {
			return err
		}
		t.recordProcessorTime("drained", drained, used.since(before))
		return nil
	}}
}

// starter starts all workers of a measurement.
type starter func(context.Context, harness.Options) ([]harness.Workers, error)

func (t *Trial) startOne(system harness.System) starter {
	return func(ctx context.Context, o harness.Options) ([]harness.Workers, error) {
		workers, err := system.Start(ctx, t.URL, o)
		return []harness.Workers{workers}, err
	}
}

// measureOneByOne takes tasks through a system, each after a pause, and returns the processor time that they used.
func measureOneByOne(ctx context.Context, t *Trial, start starter, tasks int) (used processorTime, err error) {
	completed := make(chan struct{}, 1)
	workers, err := start(ctx, harness.Options{Slots: t.Slots, Observe: func(o harness.Observation) {
		if o.Stage == harness.Publish && o.Kind == harness.Completed {
			completed <- struct{}{}
		}
	}})
	if err != nil {
		return used, err
	}
	defer func() { t.Stop(ctx, &err, workers...) }()
	var before processorTime
	for i := range Warmup + tasks {
		if i == Warmup {
			if before, err = t.processorTime(ctx); err != nil {
				return used, err
			}
		}
		if err := IdlePause(ctx); err != nil {
			return used, err
		}
		if err := workers[0].Submit(ctx, int64(i)); err != nil {
			return used, err
		}
		select {
		case <-completed:
		case <-ctx.Done():
			return used, context.Cause(ctx)
		case <-time.After(2 * stuckTimeout):
			return used, fmt.Errorf("task %d is stuck", i)
		}
	}
	used, err = t.processorTime(ctx)
	return used.since(before), err
}

// processorTime is what was used until some time, or since another.
type processorTime struct{ database, program time.Duration }

func (p processorTime) since(before processorTime) processorTime {
	return processorTime{p.database - before.database, p.program - before.program}
}

func perTask(d time.Duration, tasks int) result.Round {
	return result.FromValue(d.Seconds() * 1000 / float64(tasks))
}

func (t *Trial) recordProcessorTime(caseName string, tasks int, used processorTime) {
	t.Record("cpu", caseName+",database", "ms", perTask(used.database, tasks))
	t.Record("cpu", caseName+",program", "ms", perTask(used.program, tasks))
}

const othersSQL = `
select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`

// awaitDisconnected waits until all other connections to the database have ended, and their processes with them:
// /proc does not list the time of a process that is ending.
func (t *Trial) awaitDisconnected(ctx context.Context) error {
	return harness.WithConn(ctx, t.URL, func(conn *pgx.Conn) error {
		for others := 1; others > 0; {
			if err := ctxsleep.For(ctx, 100*time.Millisecond); err != nil {
				return err
			}
			if err := conn.QueryRow(ctx, othersSQL).Scan(&others); err != nil {
				return err
			}
		}
		return ctxsleep.For(ctx, 100*time.Millisecond)
	})
}

const postmasterSQL = `select split_part(pg_read_file('postmaster.pid'), e'\n', 1)::integer`

func (t *Trial) processorTime(ctx context.Context) (used processorTime, err error) {
	var postmaster int
	err = harness.WithConn(ctx, t.URL, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, postmasterSQL).Scan(&postmaster)
	})
	if err != nil {
		return used, err
	}
	usage, err := proofkit.UsageOf(os.Getpid())
	used.program = usage.CPU
	var familyErr error
	used.database, familyErr = proofkit.FamilyCPUTime(postmaster)
	return used, errors.Join(err, familyErr)
}
