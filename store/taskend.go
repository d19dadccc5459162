package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// TaskEnd says how a task ended, and how long ago.
type TaskEnd struct {
	Task ID
	// Status is that of the task; empty for a deleted one that is not purged yet.
	Status Status
	// Ago is the time since a completed, dead or cancelled task ended, or since one that it overrides ended if that was
	// later; for a deleted task, since it was deleted. It is 0 for others, and while stages of the task are or will be worked on.
	Ago time.Duration

	IsOverridden bool
	// Overrides says that it overrides other tasks, which are deleted before it.
	Overrides bool
	// IsPurged says that a deleted task is or was to be purged at once.
	IsPurged bool
}

// IsPrunedBy reports whether Prune would delete the task.
func (e TaskEnd) IsPrunedBy(o PruneOptions) bool {
	switch {
	case e.Status == StatusDead && o.Dead > 0 && e.Ago > o.Dead && !e.Overrides:
		return true
	case e.Status != StatusCompleted && e.Status != StatusCancelled && (e.Status != StatusDead || !e.IsOverridden):
		return false
	}
	return o.Finished > 0 && e.Ago > o.Finished
}

const taskEndsSQL = `
/* ends of tasks */
select asked.id, cuelight_{name}_status(t),
       case when t.state in ('completed', 'dead', 'cancelled') and not ` + hasWork + ` then
         greatest(extract(epoch from now() - greatest(t.updated_at, overridden.ended_at)), 0)
       else 0 end::float8,
       t.overridden_by is not null, overridden.ended_at is not null, false
  from unnest($1::uuid[]) as asked (id)
  join {tasks} t on t.id = asked.id
 cross join lateral (
       select max(old.updated_at) as ended_at from {tasks} old where old.overridden_by = t.id) as overridden
 union all
select d.id, '', greatest(extract(epoch from now() - d.deleted_at), 0)::float8, false, false,
       d.purge_at is not null or d.purging_at is not null
  from {deleted_tasks} d where d.id = any ($1) and d.purged_at is null`

// TaskEnds returns how those of some tasks ended that exist, also deleted ones, in no order.
func (s *Store) TaskEnds(ctx context.Context, tasks []ID) (ends []TaskEnd, err error) {
	return readRows(ctx, s, "read ends of tasks", taskEndsSQL, func(row pgx.CollectableRow) (e TaskEnd, err error) {
		var ago float64
		err = row.Scan(&e.Task, &e.Status, &ago, &e.IsOverridden, &e.Overrides, &e.IsPurged)
		e.Ago = time.Duration(ago * float64(time.Second))
		return e, err
	}, tasks)
}
