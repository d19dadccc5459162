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

	// HasFiles makes Prune delete only the rows of tasks that are not needed any more to find files. A process with
	// stages.Retention then removes the files, except for published ones, and the rest of the rows.
	HasFiles bool
}

// PruneResult counts deleted rows.
type PruneResult struct{ Finished, Dead, Workers int }

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
	for _, of := range []struct {
		keep    time.Duration
		deleted *int
		prune   func(context.Context, time.Duration, *int) error
	}{
		// Most overridden tasks come before the completed ones that override them.
		{o.Finished, &r.Finished, s.taskPruner(StatusCancelled, false, o.HasFiles)},
		{o.Finished, &r.Finished, s.taskPruner(StatusDead, true, o.HasFiles)},
		{o.Finished, &r.Finished, s.taskPruner(StatusCompleted, false, o.HasFiles)},
		{o.Dead, &r.Dead, s.taskPruner(StatusDead, false, o.HasFiles)},
		{o.Workers, &r.Workers, s.pruneWorkers},
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

// pruneTasksSQL reads a page of the tasks of a state after $1, and deletes those that ended long enough ago, unless another
// process prunes. It returns how many it has deleted, and the last task of the page; null if it has read all that
// are old enough. Of overridden tasks only, if $5 says so.
const pruneTasksSQL = `
/* prune tasks */
with lock as materialized (
  select pg_try_advisory_xact_lock(hashtext('cuelight prune {tasks}')) as acquired
), page as materialized (
  select t.id from {tasks} t
   where (select acquired from lock) and t.state <= $6::cuelight_status
     and (t.state, t.id) > ($6::cuelight_status, coalesce($1::uuid, '00000000-0000-0000-0000-000000000000'))
   order by t.state, t.id limit $2
), ended as materialized (
  select t.id from {tasks} t
   where t.id = any (array(select id from page)) and t.state = $6::cuelight_status
     and (not $5 or t.overridden_by is not null)
     and t.updated_at < now() - make_interval(secs => $3) and not ` + hasWork + `
     and not exists (select from {tasks} old where old.overridden_by = t.id)
   order by t.id for update of t skip locked
), gone as (
  delete from {tasks} t using ended where t.id = ended.id returning t
), kept as (
  insert into {deleted_tasks} (id, keep_published, deleted_by, purge_at, purging_at, expired, user_context, task)
  select (gone.t).id, true, 'retention', now(), now(), true, (gone.t).user_context, to_jsonb(gone.t) - 'user_context'
    from gone where $4
)
select (select count(*) from gone),
       (select t.id from {tasks} t
         where t.id = any (array(select id from page)) and t.created_at < now() - make_interval(secs => $3)
         order by t.id offset $2 - 1)`

// hasWork is the condition that a step of the task t is or will be worked on.
const hasWork = `exists (select from {steps} s
                  where s.task_id = t.id and s.status in ('ready', 'waiting', 'running', 'divided') offset 0)`

const completedSQL = `
/* completed tasks */
select t.id from {tasks} t
 where t.id = any($1) and t.state = 'completed' and t.updated_at < now() - make_interval(secs => $2)`

// Completed returns those of some tasks that were completed at least so long ago.
func (s *Store) Completed(ctx context.Context, tasks []ID, ago time.Duration) ([]ID, error) {
	return query(ctx, s, "find completed tasks", completedSQL, pgx.RowTo[ID], tasks, ago.Seconds())
}

// taskPruner returns a function that prunes tasks of a state. Tasks that are kept are read in every run.
func (s *Store) taskPruner(state Status, overridden, hasFiles bool) func(context.Context, time.Duration, *int) error {
	return func(ctx context.Context, keep time.Duration, deleted *int) error {
		var after ID
		return s.inBatches(ctx, func(in *Store) (more bool, err error) {
			var n int
			args := []any{after, pruneBatch, keep.Seconds(), hasFiles, overridden, string(state)}
			err = in.read(ctx, pruneTasksSQL, args, func(rows pgx.Rows) error {
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
delete from {workers} where id in (
  select id from {workers} where coalesce(stopped_at, lost_at) < now() - make_interval(secs => $1)
   order by id limit $2)`

func (s *Store) pruneWorkers(ctx context.Context, keep time.Duration, deleted *int) error {
	return s.inBatches(ctx, func(in *Store) (more bool, err error) {
		tag, err := in.exec(ctx, pruneWorkersSQL, keep.Seconds(), pruneBatch)
		*deleted += int(tag.RowsAffected())
		return tag.RowsAffected() == pruneBatch, err
	})
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
