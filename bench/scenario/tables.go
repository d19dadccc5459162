package scenario

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/result"
)

// DrainWithFinished is Drain in a database with finished tasks: "grown".
func DrainWithFinished(finished, tasks int) Scenario {
	return Scenario{Names: []string{"grown"}, Measure: func(ctx context.Context, t *Trial) error {
		if t.System.AddFinishedTasks == nil {
			return errNotSupported
		}
		if err := t.System.AddFinishedTasks(ctx, t.URL, finished); err != nil {
			return err
		}
		if err := t.Checkpoint(ctx); err != nil { // the drain must not pay for the new pages
			return err
		}
		t.Note("grown", "%d tasks drained; the finished ones were made with SQL, then vacuumed and analyzed", tasks)
		return t.measureThroughput(ctx, "grown", fmt.Sprintf("finished=%d", finished), tasks)
	}}
}

// Size measures the space in the database per million tasks: that of the drained tasks,
// multiplied. It includes row versions that are no longer needed, whose space is for later
// rows; tasks that arrive one by one leave fewer of them.
func Size(tasks int) Scenario {
	return Scenario{Names: []string{"size"}, Measure: func(ctx context.Context, t *Trial) error {
		if t.System.Sizes == nil {
			return errNotSupported
		}
		before, err := t.System.Sizes(ctx, t.URL)
		if err != nil {
			return err
		}
		if _, err := t.drain(ctx, tasks, harness.Options{}); err != nil {
			return err
		}
		after, err := t.System.Sizes(ctx, t.URL)
		if err != nil {
			return err
		}
		factor := 1e6 / float64(tasks)
		for _, part := range slices.Sorted(maps.Keys(after)) {
			t.Record("size", part+"_mib", "MiB", result.FromValue(float64(after[part]-before[part])*factor/(1<<20)))
		}
		t.Note("size", "the growth by %d drained tasks, times %.4g", tasks, factor)
		return nil
	}}
}

// TriggerCost measures the time of the triggers when one statement changes so many tasks. It
// measures every change, and records the slowest again.
func TriggerCost(tasks int) Scenario {
	return Scenario{Names: []string{"bulk"}, Measure: func(ctx context.Context, t *Trial) error {
		if t.System.TriggerTimes == nil {
			return errNotSupported
		}
		times, err := t.System.TriggerTimes(ctx, t.URL, tasks)
		if err != nil {
			return err
		}
		slowest := 0.0
		for _, change := range slices.Sorted(maps.Keys(times)) {
			ms := result.Milliseconds(times[change])
			t.Record("bulk", change, "ms", result.FromValue(ms))
			slowest = max(slowest, ms)
		}
		t.Record("bulk", "slowest", "ms", result.FromValue(slowest))
		t.Note("bulk", "the triggers' share of one statement that changes %d tasks, per task", tasks)
		return nil
	}}
}
