package report

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/statement"
	"github.com/cuelight/cuelight/store"
)

// taskCounts are numbers of tasks that a retention would delete, for each of some ages.
type taskCounts struct{ finished, dead []int64 }

func newTaskCounts(ages []time.Duration) taskCounts {
	return taskCounts{make([]int64, len(ages)), make([]int64, len(ages))}
}

// add counts those of the tasks that have a status.
func (c taskCounts) add(ends []store.TaskEnd, status store.Status, ages []time.Duration) {
	for _, e := range ends {
		for i, age := range ages {
			if e.Status == status && e.IsPrunedBy(store.PruneOptions{Finished: age}) {
				c.finished[i]++
			}
			if e.Status == status && e.IsPrunedBy(store.PruneOptions{Dead: age}) {
				c.dead[i]++
			}
		}
	}
}

// addTasks counts tasks with a status. It reads the oldest as Prune does, until all further ones are too new. Where that takes
// too many, it estimates from a sample of all tasks.
func addTasks(ctx context.Context, st *store.Store, status store.Status, ages []time.Duration, r *PrunableRows) error {
	counts, read, q := newTaskCounts(ages), 0, store.ListQuery{
		Filter: store.Filter{Status: status, Limit: tasksPerRead}, OldestFirst: true,
	}
	newest := time.Duration(1<<63 - 1) // age of the last task that was read
	for more := true; more && newest > slices.Min(ages) && read < countedTasks; {
		began := time.Now()
		page, err := st.Page(ctx, q)
		if err != nil {
			return err
		}
		ids := make([]store.ID, len(page.Tasks))
		for i, t := range page.Tasks {
			ids[i], newest = t.ID, began.Sub(t.CreatedAt)
		}
		ends, err := st.TaskEnds(ctx, ids)
		if err != nil {
			return err
		}
		counts.add(ends, status, ages)
		q.After, more = page.Next, !page.Next.IsZero()
		if read += len(ids); !more {
			newest = 0
		}
	}
	exact := func(i int) bool { return newest <= ages[i] }
	sample, percent := newTaskCounts(ages), float64(100)
	if !exact(slices.Index(ages, slices.Min(ages))) {
		var err error
		if percent, err = sampleTasks(ctx, st, status, ages, sample); err != nil {
			return err
		}
	}
	for i := range ages {
		for _, of := range []struct {
			total           *RowCount
			counted, sample int64
		}{{&r.Finished[i], counts.finished[i], sample.finished[i]}, {&r.Dead[i], counts.dead[i], sample.dead[i]}} {
			n := RowCount{Rows: of.counted}
			if estimate := scaled(of.sample, percent); !exact(i) {
				n = RowCount{max(n.Rows, estimate.Rows), estimate.Estimated}
			}
			of.total.Rows += n.Rows
			of.total.Estimated = of.total.Estimated || n.Estimated
		}
	}
	return nil
}

const sampleTasksSQL = `
/* sample tasks */
select id from {tasks} tablesample system ($1)`

func sampleTasks(ctx context.Context, st *store.Store, status store.Status, ages []time.Duration, c taskCounts) (float64, error) {
	percent, err := samplePercent(ctx, st, st.Graph().SQL("{tasks}"))
	if err != nil {
		return 0, err
	}
	rows, err := st.DB().Query(ctx, st.Graph().SQL(sampleTasksSQL), percent)
	if err != nil {
		return 0, statement.Wrap(st.DB(), "sample tasks", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[store.ID])
	if err != nil {
		return 0, statement.Wrap(st.DB(), "sample tasks", err)
	}
	for some := range slices.Chunk(ids, tasksPerRead) {
		ends, err := st.TaskEnds(ctx, some)
		if err != nil {
			return 0, err
		}
		c.add(ends, status, ages)
	}
	return percent, nil
}
