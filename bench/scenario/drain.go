package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cuelight/cuelight/bench/system"
	"github.com/cuelight/cuelight/bench/system/cuelight"
	"github.com/cuelight/cuelight/internal/ctxsleep"
)

// Drain measures the throughput of one process with many waiting tasks: "drain".
func Drain(tasks int) Scenario { return drain("drain", tasks) }

// RemoteDrain is Drain, to compare remote workers with local ones: "remote_drain".
func RemoteDrain(tasks int) Scenario { return drain("remote_drain", tasks, remoteName) }

func drain(name string, tasks int, groups ...string) Scenario {
	return Scenario{Names: append([]string{name}, groups...), Measure: func(ctx context.Context, t *Trial) error {
		drained, err := t.drain(ctx, tasks, system.Options{})
		if err == nil {
			t.recordThroughput(name, fmt.Sprintf("tasks=%d", tasks), tasks, drained)
		}
		return err
	}}
}

// drain submits tasks, starts workers, waits until the tasks are done, and returns what was observed. It returns an
// error unless every stage of every task ran once.
func (t *Trial) drain(ctx context.Context, tasks int, o system.Options) (*system.Recorder, error) {
	if err := t.System.Preload(ctx, t.URL, 0, tasks); err != nil {
		return nil, fmt.Errorf("submit %d tasks: %w", tasks, err)
	}
	recorder := system.NewRecorder(tasks)
	o.Observe = recorder.Observe
	workers, err := t.start(ctx, o)
	if err != nil {
		return nil, err
	}
	err = recorder.WaitAll(ctx, stuckTimeout)
	t.stop(ctx, &err, workers...)
	if err != nil {
		return nil, err
	}
	return recorder, recorder.Check()
}

func (t *Trial) recordThroughput(name, caseName string, tasks int, r *system.Recorder) {
	t.RecordValue(name, caseName, "tasks/s", float64(tasks)/r.Duration().Seconds())
}

// Utilization measures throughput with stages that take some time: the share of the ideal
// throughput, with all slots of all stages always busy.
func Utilization(tasks, slots int, work time.Duration) Scenario {
	name := fmt.Sprintf("work%v", work)
	return Scenario{Names: []string{name}, Measure: func(ctx context.Context, t *Trial) error {
		drained, err := t.drain(ctx, tasks, system.Options{Slots: slots, WorkTime: work})
		if err == nil {
			ideal := time.Duration(tasks) * work / time.Duration(slots)
			t.RecordValue(name, fmt.Sprintf("slots=%d", slots), "share", ideal.Seconds()/drained.Duration().Seconds())
		}
		return err
	}}
}

// Overtaking measures how well the order of equal tasks is kept, with one slot in one stage and
// some in the others: the largest number of later tasks that started that stage before an
// earlier one.
func Overtaking(tasks, slots int) Scenario {
	return Scenario{Names: []string{"order"}, Measure: func(ctx context.Context, t *Trial) error {
		const behind = system.Assemble // gets all of its tasks from other stages
		drained, err := t.drain(ctx, tasks, system.Options{Slots: slots, SingleSlot: []system.Stage{behind}})
		if err != nil {
			return err
		}
		started := make([]time.Time, tasks)
		for task := range started {
			started[task] = drained.At(task, behind, system.Started)
		}
		t.RecordValue("order", fmt.Sprintf("tasks=%d", tasks), "tasks", float64(maxOvertaking(started)))
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

// NotificationCount counts Cuelight's notifications per task of a drain: "notifies". PostgreSQL merges equal ones
// of one transaction, as it does for every listener.
func NotificationCount(tasks int) Scenario {
	return Scenario{Names: []string{"notifies"}, Measure: func(ctx context.Context, t *Trial) error {
		var count atomic.Int64
		stop, err := listen(ctx, t.URL, cuelight.Channels(), func() { count.Add(1) })
		if err != nil {
			return err
		}
		_, err = t.drain(ctx, tasks, system.Options{})
		_ = ctxsleep.For(ctx, 100*time.Millisecond) // for pending notifications
		if err := errors.Join(err, stop()); err != nil {
			return err
		}
		t.RecordValue("notifies", "", "per task", float64(count.Load())/float64(tasks))
		return nil
	}}
}

// DrainWithFinished is Drain in a database with finished tasks of Cuelight: "grown".
func DrainWithFinished(finished, tasks int) Scenario {
	return Scenario{Names: []string{"grown"}, Measure: func(ctx context.Context, t *Trial) error {
		err := cuelight.AddFinishedTasks(ctx, t.URL, finished)
		if err == nil {
			err = t.Checkpoint(ctx) // the drain must not pay for the new pages
		}
		if err != nil {
			return err
		}
		drained, err := t.drain(ctx, tasks, system.Options{})
		if err == nil {
			t.recordThroughput("grown", fmt.Sprintf("finished=%d", finished), tasks, drained)
		}
		return err
	}}
}
