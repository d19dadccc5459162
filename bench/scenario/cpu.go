package scenario

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/bench/system"
	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// ProcessorTime measures the processor time of the database server, with all of its processes, and of
// this program, which also submits and records: "cpu", in ms per task. It takes tasks through an idle
// system one by one, with pauses, and drains others. Other work on the machine changes it less than it
// changes latencies.
func ProcessorTime(oneByOne, drained int) Scenario {
	return Scenario{Names: []string{"cpu"}, Measure: func(ctx context.Context, t *Trial) error {
		used, err := t.measureOneByOne(ctx, t.start, oneByOne)
		if err != nil {
			return err
		}
		t.recordProcessorTime("one by one", oneByOne, used)
		if err := t.awaitDisconnected(ctx); err != nil {
			return err
		}
		used, err = t.measureProcessorTime(ctx, func() error {
			if _, err := t.drain(ctx, drained, system.Options{}); err != nil {
				return err
			}
			return t.awaitDisconnected(ctx)
		})
		if err == nil {
			t.recordProcessorTime("drained", drained, used)
		}
		return err
	}}
}

// processorTime is what was used until some time, or since another.
type processorTime struct{ database, program time.Duration }

// measureOneByOne takes tasks through idle workers and returns the processor time that they used.
func (t *Trial) measureOneByOne(ctx context.Context, start starter, tasks int) (used processorTime, err error) {
	var before, now processorTime
	_, err = t.oneByOne(ctx, start, tasks, func(task int) (err error) {
		switch task {
		case warmup - 1:
			before, err = t.processorTime(ctx)
		case warmup + tasks - 1:
			now, err = t.processorTime(ctx)
		}
		return err
	})
	return processorTime{now.database - before.database, now.program - before.program}, err
}

// measureProcessorTime returns the processor time that is used during a call.
func (t *Trial) measureProcessorTime(ctx context.Context, during func() error) (used processorTime, err error) {
	before, err := t.processorTime(ctx)
	if err == nil {
		err = during()
	}
	if err != nil {
		return used, err
	}
	now, err := t.processorTime(ctx)
	return processorTime{now.database - before.database, now.program - before.program}, err
}

func msPerTask(d time.Duration, tasks int) float64 { return d.Seconds() * 1000 / float64(tasks) }

func (t *Trial) recordProcessorTime(caseName string, tasks int, used processorTime) {
	t.RecordValue("cpu", caseName+",database", "ms", msPerTask(used.database, tasks))
	t.RecordValue("cpu", caseName+",program", "ms", msPerTask(used.program, tasks))
}

const othersSQL = `
select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`

// awaitDisconnected waits until all other connections to the database have ended, and their processes with them:
// /proc does not list the time of a process that is ending.
func (t *Trial) awaitDisconnected(ctx context.Context) error {
	return system.WithConn(ctx, t.URL, func(conn *pgx.Conn) error {
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
	err = system.WithConn(ctx, t.URL, func(conn *pgx.Conn) error {
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
