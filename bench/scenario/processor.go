package scenario

import (
	"cmp"
	"context"
	"errors"
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
		if err := measureOneByOne(ctx, t, oneByOne); err != nil {
			return err
		}
		err := t.awaitDisconnected(ctx)
		if err != nil {
			return err
		}
		used, err := t.processorTime(ctx)
		if err == nil {
			_, err = t.drain(ctx, drained, harness.Options{})
		}
		if err == nil {
			err = t.awaitDisconnected(ctx)
		}
		if err != nil {
			return err
		}
		return t.recordProcessorTime(ctx, "drained", drained, used)
	}}
}

func measureOneByOne(ctx context.Context, t *Trial, tasks int) (err error) {
	run := newE2ERun(E2EOptions{Samples: tasks}, Warmup+tasks)
	if run.workers, err = t.System.Start(ctx, t.URL, harness.Options{Slots: t.Slots, Observe: run.Observe}); err != nil {
		return err
	}
	var used processorTime
	done := 0
	run.afterTask = func() (err error) {
		if done++; done == Warmup {
			used, err = t.processorTime(ctx)
		}
		return err
	}
	if _, err = run.submitInSequence(ctx); err == nil {
		err = t.recordProcessorTime(ctx, "one by one", tasks, used)
	}
	t.Stop(ctx, &err, run.workers)
	return cmp.Or(err, run.Err())
}

// processorTime is what was used until some time.
type processorTime struct{ database, program time.Duration }

func (t *Trial) recordProcessorTime(ctx context.Context, caseName string, tasks int, before processorTime) error {
	now, err := t.processorTime(ctx)
	if err != nil {
		return err
	}
	perTask := func(d time.Duration) result.Round { return result.FromValue(d.Seconds() * 1000 / float64(tasks)) }
	t.Record("cpu", caseName+",database", "ms", perTask(now.database-before.database))
	t.Record("cpu", caseName+",program", "ms", perTask(now.program-before.program))
	return nil
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
