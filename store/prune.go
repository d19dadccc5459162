package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/statement"
)

// PruneOptions says for how long rows are kept that [Store.Prune] deletes. Zero is for ever.
type PruneOptions struct {
	// Finished is for completed and cancelled tasks with their history, since they ended. A dead task that another
	// overrides is one of them.
	Finished time.Duration
	// Dead is for dead tasks with their history, since the last attempt ended.
	Dead time.Duration
	// Workers is for stopped and lost workers. The history of tasks does not name deleted ones.
	Workers time.Duration
	// Audit is for entries of the audit log.
	Audit time.Duration

	// HasFiles makes Prune delete only the rows of tasks that are not needed any more to find files. A process with
	// stages.Retention then removes the files, except for published ones, and the rest of the rows.
	HasFiles bool
}

// PruneResult counts deleted rows: tasks, workers, and entries of the audit log.
type PruneResult struct{ Finished, Dead, Workers, Audit int }

const (
	// pruneBatch is how many rows one transaction of Prune deletes.
	pruneBatch = 500
	// prunePause is how long Prune waits after a transaction, as a multiple of its time.
	prunePause = 4
)

// Prune deletes rows that are older than the options say, in batches with pauses between them, until none is left or
// ctx ends. It returns what it has deleted also with an error. Where another process prunes these tables at the same
// time, it leaves the tasks to that one. A task that overrides others is kept until these are deleted, and a dead or cancelled
// one while other stages of it are or will be worked on.
func (s *Store) Prune(ctx context.Context, o PruneOptions) (r PruneResult, err error) {
	cancelled, overridden, completed, dead := s.graph.templateData().prunable()
	for _, of := range []struct {
		keep    time.Duration
		deleted *int
		prune   func(context.Context, time.Duration, *int) error
	}{
		// Most overridden tasks come before the completed ones that override them.
		{o.Finished, &r.Finished, s.taskPruner(cancelled, o.HasFiles)},
		{o.Finished, &r.Finished, s.taskPruner(overridden, o.HasFiles)},
		{o.Finished, &r.Finished, s.taskPruner(completed, o.HasFiles)},
		{o.Dead, &r.Dead, s.taskPruner(dead, o.HasFiles)},
		{o.Workers, &r.Workers, s.rowPruner(pruneWorkersSQL)},
		{o.Audit, &r.Audit, s.rowPruner(pruneAuditSQL)},
	} {
		if of.keep <= 0 {
			continue
		}
		if err := of.prune(ctx, of.keep, of.deleted); err != nil {
			return r, fmt.Errorf("prune: %w", err)
		}
	}
	return r, nil
}

// prunable returns the conditions on a row t of tasks that Prune deletes when they are old enough. An index serves each.
// A cancelled task with a stage that waits for a time is not among them.
func (d templateData) prunable() (cancelled, overridden, completed, dead string) {
	dead = "(" + d.Any("t.", "dead") + ")"
	cancelled = d.withStatus(StatusCancelled, d.indexed("t.", StatusCancelled, notWaiting))[0]
	return cancelled, dead + " and t.overridden_by is not null", d.indexed("t.", StatusCompleted, notWaiting)[0], dead
}

// pruneTasksSQL reads a page of the tasks after $1 that meet a condition, and deletes those that ended long enough ago,
// unless another process prunes. It returns how many it has deleted, and the last task of the page; null if it has read all
// that are old enough.
// Programs of version 14 would also remove what is published. With this purge_at they claim no such task before
// the year 9999, the last that JSON can have.
const pruneTasksSQL = `
/* prune tasks */
with lock as materialized (
  select pg_try_advisory_xact_lock(hashtext('cuelight prune'), '{{.Tasks}}'::regclass::oid::integer) as acquired
), page as materialized (
  select t.id from {{.Tasks}} t
   where (select acquired from lock) and {{.With}} and t.id > coalesce($1::uuid, '00000000-0000-0000-0000-000000000000')
   order by t.id limit $2
), ended as materialized (
  select t.id from {{.Tasks}} t
   where t.id = any(array(select id from page)) and {{.With}} and not {{.HasWork "t."}}
     and ` + endedAt + ` < now() - make_interval(secs => $3)
     and not exists (select from {{.Tasks}} old where old.overridden_by = t.id)
   order by t.id for update of t skip locked
), gone as (
  delete from {{.Tasks}} t using ended where t.id = ended.id returning t
), kept as (
  insert into {{.Prefix}}deleted_tasks (id, keep_published, deleted_by, purge_at, purging_at, expired, user_context, task)
  select (gone.t).id, true, 'retention', '9999-01-01Z', now(), true, (gone.t).user_context, {{.DeletedRow "gone.t"}}
    from gone where $4
)
select (select count(*) from gone),
       (select t.id from {{.Tasks}} t
         where t.id = any(array(select id from page)) and t.created_at < now() - make_interval(secs => $3)
         order by t.id offset $2 - 1)`

// endedAt is when a task t ended that is completed, dead or cancelled. Programs of version 14 do not record when they cancel
// a task, so it is not before that is recorded, and not before the task that overrides it.
const endedAt = `greatest(t.created_at, t.ready_at, (select max(finished_at) from {{.Attempts}} a where a.task_id = t.id),
         case when 'cancelled' in ({{.Each "t." "_status"}}) then
           greatest((select cancel_times_from from cuelight_schema where pipeline = '{{.Name}}'),
                    (select created_at from {{.Tasks}} other where other.id = t.overridden_by)) end)`

const completedSQL = `
/* completed tasks */
select t.id from {{.Tasks}} t
 where t.id = any($1) and {{.StatusOf "t."}} = 'completed' and ` + endedAt + ` < now() - make_interval(secs => $2)`

// Completed returns those of some tasks that were completed at least so long ago.
func (s *Store) Completed(ctx context.Context, tasks []ID, ago time.Duration) ([]ID, error) {
	rows, err := s.db.Query(ctx, s.graph.SQL(completedSQL, nil), tasks, ago.Seconds())
	if err != nil {
		return nil, s.explain("find completed tasks", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[ID])
	return found, s.explain("find completed tasks", err)
}

// taskPruner returns a function that prunes tasks t that meet a condition. Tasks
// that are kept are read in every run, so an index must serve it.
func (s *Store) taskPruner(where string, hasFiles bool) func(context.Context, time.Duration, *int) error {
	sql := s.graph.SQL(pruneTasksSQL, where)
	return func(ctx context.Context, keep time.Duration, deleted *int) error {
		var after ID
		return s.inBatches(ctx, func(in *Store) (more bool, err error) {
			var n int
			err = in.read(ctx, sql, []any{after, pruneBatch, keep.Seconds(), hasFiles}, func(rows pgx.Rows) error {
				_, err := pgx.ForEachRow(rows, []any{&n, &after}, func() error { return nil })
				return err
			})
			*deleted += n
			return !after.IsZero(), s.explain("prune tasks", err)
		})
	}
}

// pruneWorkersSQL reads along the primary key, the oldest first.
const pruneWorkersSQL = `
/* prune workers */
delete from workers where id in (
  select id from workers
   where pipeline = $1 and coalesce(stopped_at, lost_at) < now() - make_interval(secs => $2)
   order by id limit $3)`

const pruneAuditSQL = `
/* prune audit log */
delete from cuelight_audit where id in (
  select id from cuelight_audit where pipeline = $1 and at < now() - make_interval(secs => $2) order by id limit $3)`

// rowPruner returns a function that prunes rows by a statement.
func (s *Store) rowPruner(sql string) func(context.Context, time.Duration, *int) error {
	return func(ctx context.Context, keep time.Duration, deleted *int) error {
		return s.inBatches(ctx, func(in *Store) (more bool, err error) {
			tag, err := in.db.Exec(ctx, sql, s.graph.name, keep.Seconds(), pruneBatch)
			*deleted += int(tag.RowsAffected())
			return tag.RowsAffected() == pruneBatch, err
		})
	}
}

// inBatches calls prune until it returns that there is no more, each time in a transaction, with pauses.
func (s *Store) inBatches(ctx context.Context, prune func(in *Store) (more bool, err error)) error {
	for {
		began := time.Now()
		var more bool
		err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, statement.LimitLockWaitSQL, statement.BackgroundLockWait)
			if err == nil {
				more, err = prune(s.WithTx(tx))
			}
			return err
		})
		if err != nil || !more {
			return err
		}
		if err := ctxsleep.For(ctx, prunePause*time.Since(began)); err != nil {
			return err
		}
	}
}
