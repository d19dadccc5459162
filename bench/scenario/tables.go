package scenario

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

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

// DrainWithSnapshot is Drain while another transaction holds an old snapshot, so that no newer row
// version can be removed, neither by vacuum nor by a page read: "held"; or without that: "free".
func DrainWithSnapshot(tasks int, withSnapshot bool) Scenario {
	return Scenario{Names: []string{"held"}, Measure: func(ctx context.Context, t *Trial) error {
		t.Note("held", "%d tasks drained; the snapshot is that of a transaction with repeatable read in the same database",
			tasks)
		if !withSnapshot {
			return t.measureThroughput(ctx, "held", "free", tasks)
		}
		return holdSnapshot(ctx, t.URL, func() error { return t.measureThroughput(ctx, "held", "held", tasks) })
	}}
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
