package scenario

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/result"
)

// drain submits tasks, waits until they are done, and returns what was observed. It returns an
// error unless every stage of every task ran once. A system without Preload starts when
// the first tasks are committed. By default a stage has the session's slots.
func (t *Trial) drain(ctx context.Context, tasks int, o harness.Options) (*harness.Recorder, error) {
	if t.System.Preload != nil {
		if err := t.System.Preload(ctx, t.URL, 0, tasks); err != nil {
			return nil, fmt.Errorf("submit %d tasks: %w", tasks, err)
		}
	}
	recorder := harness.NewRecorder(tasks)
	o.Observe, o.Slots = recorder.Observe, cmp.Or(o.Slots, t.Slots)
	workers, err := t.System.Start(ctx, t.URL, o)
	if err != nil {
		return nil, err
	}
	if t.System.Preload == nil {
		err = workers.SubmitAll(ctx, 0, tasks)
	}
	return recorder, t.finish(ctx, err, recorder, workers)
}

// stuckTimeout is how long a workload waits without progress.
const stuckTimeout = 30 * time.Second

// finish waits for all tasks unless submitting them returned an error, stops the workers, and
// returns an error unless every stage of every task ran once.
func (t *Trial) finish(ctx context.Context, err error, r *harness.Recorder, workers ...harness.Workers) error {
	if err == nil {
		err = r.WaitAll(ctx, stuckTimeout)
	}
	t.Stop(ctx, &err, workers...)
	if err != nil {
		return err
	}
	return r.Check()
}

// measureThroughput drains tasks and records the tasks per second.
func (t *Trial) measureThroughput(ctx context.Context, name, caseName string, tasks int) error {
	drained, err := t.drain(ctx, tasks, harness.Options{})
	if err == nil {
		t.recordThroughput(name, caseName, tasks, drained)
	}
	return err
}

func (t *Trial) recordThroughput(name, caseName string, tasks int, r *harness.Recorder) {
	t.Record(name, caseName, "tasks/s", result.FromValue(float64(tasks)/r.Duration().Seconds()))
}

// Drain measures the throughput of one process with many waiting tasks: "drain".
func Drain(tasks int) Scenario {
	return Scenario{Names: []string{"drain"}, Measure: func(ctx context.Context, t *Trial) error {
		return t.measureThroughput(ctx, "drain", fmt.Sprintf("tasks=%d", tasks), tasks)
	}}
}

// Utilization measures throughput with stages that take some time: the share of the ideal
// throughput, with all slots of all stages always busy.
func Utilization(tasks, slots int, work time.Duration) Scenario {
	name := fmt.Sprintf("work%v", work)
	return Scenario{Names: []string{name}, Measure: func(ctx context.Context, t *Trial) error {
		drained, err := t.drain(ctx, tasks, harness.Options{Slots: slots, WorkTime: work})
		if err == nil {
			share := idealTime(tasks, slots, work).Seconds() / drained.Duration().Seconds()
			t.Record(name, fmt.Sprintf("slots=%d", slots), "share", result.FromValue(share))
		}
		return err
	}}
}

// idealTime is how long a drain takes if all slots of all stages are always busy.
func idealTime(tasks, slots int, work time.Duration) time.Duration {
	return time.Duration(tasks) * work / time.Duration(slots)
}

// singleSlotStage gets all of its tasks from other stages.
const singleSlotStage = harness.Assemble

// Overtaking measures how well the order of equal tasks is kept, with one slot in one stage and
// some in the others: the largest number of later tasks that started that stage before an
// earlier one.
func Overtaking(tasks, slots int) Scenario {
	return Scenario{Names: []string{"order"}, Measure: func(ctx context.Context, t *Trial) error {
		drained, err := t.drain(ctx, tasks,
			harness.Options{Slots: slots, SingleSlot: []harness.Stage{singleSlotStage}})
		if err != nil {
			return err
		}
		started := make([]time.Time, tasks)
		for task := range started {
			started[task] = drained.At(task, singleSlotStage, harness.Started)
		}
		t.Record("order", fmt.Sprintf("tasks=%d", tasks), "tasks", result.FromValue(float64(maxOvertaking(started))))
		return nil
	}}
}

// maxOvertaking returns the largest number of later tasks that started before one.
func maxOvertaking(started []time.Time) (most int) {
	var later []time.Time // sorted
	for _, at := range slices.Backward(started) {
		i, _ := slices.BinarySearchFunc(later, at, time.Time.Compare)
		most = max(most, i)
		later = slices.Insert(later, i, at)
	}
	return most
}

// Processes measures several processes: their throughput, "processes", and the processor time of the database per task,
// "processes_cpu", in ms. They run before all tasks are submitted at once, so that none starts earlier. Before that, other
// processes take some tasks through the idle system one by one; 0 for none.
func Processes(processes, tasks, oneByOne int) Scenario {
	return Scenario{Names: []string{"processes", "processes_cpu"}, Measure: func(ctx context.Context, t *Trial) error {
		caseName := fmt.Sprintf("processes=%d", processes)
		if oneByOne > 0 {
			used, err := measureOneByOne(ctx, t, t.startProcesses(processes), oneByOne)
			if err != nil {
				return err
			}
			t.Record("processes_cpu", caseName+",one by one", "ms", perTask(used.database, oneByOne))
		}
		recorder := harness.NewRecorder(tasks)
		all, err := t.startProcesses(processes)(ctx, harness.Options{Slots: t.Slots, Observe: recorder.Observe})
		if err != nil {
			return err
		}
		before, err := t.processorTime(ctx)
		if err == nil {
			err = all[0].SubmitAll(ctx, 0, tasks)
		}
		var after processorTime
		if err == nil {
			err = recorder.WaitAll(ctx, stuckTimeout)
		}
		if err == nil {
			after, err = t.processorTime(ctx)
		}
		if err = t.finish(ctx, err, recorder, all...); err == nil {
			t.recordThroughput("processes", caseName, tasks, recorder)
			t.Record("processes_cpu", caseName+",drained", "ms", perTask(after.since(before).database, tasks))
		}
		return err
	}}
}

// startProcesses starts processes of the system, and stops them again if one cannot be started.
func (t *Trial) startProcesses(n int) starter {
	return func(ctx context.Context, o harness.Options) (all []harness.Workers, err error) {
		if t.StartSubprocess == nil {
			return nil, errNoSubprocesses
		}
		for range n {
			workers, startErr := t.StartSubprocess(ctx, t.System, t.URL, o)
			if startErr != nil {
				t.Stop(ctx, &startErr, all...)
				return nil, startErr
			}
			all = append(all, workers)
		}
		return all, nil
	}
}

var errNoSubprocesses = fmt.Errorf("%w: this session cannot start processes", errNotMeasured)
