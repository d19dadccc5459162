package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/bench/system"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// ProcessorTime measures the processor time of the database server, with all of its processes, and of
// this program, which also submits and records: "cpu", in ms per task. It drains tasks, and takes others through an idle
// system one by one, with pauses. Other work on the machine changes it less than it
// changes latencies.
func ProcessorTime(oneByOne, drained int) Scenario {
	return Scenario{Names: []string{"cpu"}, Measure: func(ctx context.Context, t *Trial) error {
		_, used, err := t.measureDrain(ctx, t.start, drained)
		if err != nil {
			return err
		}
		t.RecordValue("cpu", "drained,database", "ms", used.database/float64(drained))
		t.RecordValue("cpu", "drained,program", "ms", used.program/float64(drained))
		if used, err = t.measureOneByOne(ctx, t.start, oneByOne); err != nil {
			return err
		}
		t.RecordValue("cpu", "one by one,database", "ms", used.database/float64(oneByOne))
		t.RecordValue("cpu", "one by one,program", "ms", used.program/float64(oneByOne))
		return nil
	}}
}

// Processes measures several processes: their throughput, "processes", and the processor time of the database per task,
// "processes_cpu", in ms. They run before all tasks are submitted at once, so that none starts earlier. After that, other
// processes take some tasks through the idle system one by one; 0 for none.
func Processes(processes, tasks, oneByOne int) Scenario {
	return Scenario{Names: []string{"processes", "processes_cpu"}, Measure: func(ctx context.Context, t *Trial) error {
		caseName := fmt.Sprintf("processes=%d", processes)
		drained, used, err := t.measureDrain(ctx, t.startProcesses(processes), tasks)
		if err != nil {
			return err
		}
		t.recordThroughput("processes", caseName, tasks, drained)
		t.RecordValue("processes_cpu", caseName+",drained", "ms", used.database/float64(tasks))
		if oneByOne == 0 {
			return nil
		}
		if used, err = t.measureOneByOne(ctx, t.startProcesses(processes), oneByOne); err == nil {
			t.RecordValue("processes_cpu", caseName+",one by one", "ms", used.database/float64(oneByOne))
		}
		return err
	}}
}

// processorTime is what was used until some time, or since another, in ms.
type processorTime struct{ database, program float64 }

func (p processorTime) since(before processorTime) processorTime {
	return processorTime{p.database - before.database, p.program - before.program}
}

// measureDrain submits tasks to running workers, all at once, waits until they are done, and stops the workers. It returns
// what was observed, and the processor time from before the submission until the last task was done. It returns an error
// unless every stage of every task ran once.
func (t *Trial) measureDrain(ctx context.Context, start starter, tasks int) (r *system.Recorder, used processorTime, err error) {
	r = system.NewRecorder(tasks)
	workers, err := start(ctx, system.Options{Observe: r.Observe})
	if err != nil {
		return r, used, err
	}
	before, err := t.processorTime(ctx)
	if err == nil {
		err = workers[0].SubmitAll(ctx, 0, tasks)
	}
	if err == nil {
		err = r.WaitAll(ctx, stuckTimeout)
	}
	if err == nil {
		used, err = t.processorTime(ctx)
	}
	t.stop(ctx, &err, workers...)
	if err == nil {
		err = r.Check()
	}
	return r, used.since(before), err
}

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
	return now.since(before), err
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
	program, err := proofkit.UsageOf(os.Getpid())
	database, familyErr := proofkit.FamilyCPUTime(postmaster)
	ms := func(d time.Duration) float64 { return d.Seconds() * 1000 }
	return processorTime{ms(database), ms(program.CPU)}, errors.Join(err, familyErr)
}
