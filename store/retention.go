package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/statement"
)

const (
	// removalBatch is how many deleted tasks one call claims.
	removalBatch = 20
	// RemovalTime is for how long a deleted task is claimed. Afterwards another process may claim it, too: what
	// they do must be repeatable.
	RemovalTime = 5 * time.Minute
)

const claimUnpublishedSQL = `
/* claim deleted tasks with published files */
update {deleted_tasks} d set claimed_until = now() + make_interval(secs => $1)
 where d.id in (
       select id from {deleted_tasks}
        where unpublish_at <= now() and purging_at is null and coalesce(claimed_until, '-infinity') < now()
        order by unpublish_at limit $2 for update skip locked)
returning ` + deletedColumns

// ClaimToUnpublish claims deleted tasks whose published files are to be removed, for [RemovalTime]: soon after the
// deletion, and once more a minute later, because an attempt may have published meanwhile. Each must be followed by
// [Store.RecordUnpublished] or [Store.PostponeUnpublish].
func (s *Store) ClaimToUnpublish(ctx context.Context) ([]DeletedTask, error) {
	return s.claimDeleted(ctx, "claim deleted tasks to unpublish", claimUnpublishedSQL,
		RemovalTime.Seconds(), removalBatch)
}

const recordUnpublishedSQL = `
/* record that published files were removed */
update {deleted_tasks}
   set unpublished_at = coalesce(unpublished_at, now()), claimed_until = null,
       unpublish_at = case when unpublished_at is null then now() + interval '1 min' end
 where id = $1 and claimed_until = $2`

// RecordUnpublished records that nothing of a claimed task is published any more.
func (s *Store) RecordUnpublished(ctx context.Context, task DeletedTask) error {
	return s.execBackground(ctx, "record unpublished task", recordUnpublishedSQL, task.ID, task.ClaimedUntil)
}

const postponeUnpublishSQL = `
/* postpone the removal of published files */
update {deleted_tasks} set claimed_until = null, unpublish_at = now() + interval '1 min'
 where id = $1 and claimed_until = $2`

// PostponeUnpublish ends the claim of a task whose published files could not be removed.
func (s *Store) PostponeUnpublish(ctx context.Context, task DeletedTask) error {
	return s.execBackground(ctx, "postpone unpublishing", postponeUnpublishSQL, task.ID, task.ClaimedUntil)
}

// claimToPurgeSQL makes sure that the tasks are not restored. $3 is null where they are kept for ever.
const claimToPurgeSQL = `
/* claim deleted tasks to purge */
with at_its_time as (
  select id from {deleted_tasks}
   where purged_at is null and purge_at <= now() and coalesce(claimed_until, '-infinity') < now()
   order by purge_at limit $2 for update skip locked
), after_retention as (
  select id from {deleted_tasks}
   where purged_at is null and purge_at is null and deleted_at < now() - make_interval(secs => $3)
     and coalesce(claimed_until, '-infinity') < now()
   order by deleted_at limit $2 for update skip locked
)
update {deleted_tasks} d
   set claimed_until = now() + make_interval(secs => $1), purging_at = coalesce(d.purging_at, now())
 where d.id in (select id from at_its_time union all select id from after_retention)
returning ` + deletedColumns

// ClaimToPurge claims, for [RemovalTime], deleted tasks that are to be purged now: at their PurgeAt, keep after their
// deletion (a negative keep is for ever). They cannot be restored any more. Each must be
// followed by [Store.Purge].
func (s *Store) ClaimToPurge(ctx context.Context, keep time.Duration) ([]DeletedTask, error) {
	var seconds *float64
	if keep >= 0 {
		k := keep.Seconds()
		seconds = &k
	}
	return s.claimDeleted(ctx, "claim deleted tasks to purge", claimToPurgeSQL,
		RemovalTime.Seconds(), removalBatch, seconds)
}

func (s *Store) claimDeleted(ctx context.Context, act, sql string, args ...any) ([]DeletedTask, error) {
	var claimed []DeletedTask
	err := s.runBackground(ctx, sql, args, func(rows pgx.Rows) (err error) {
		claimed, err = pgx.CollectRows(rows, scanDeleted)
		return err
	})
	return claimed, s.explain(act, err)
}

const purgeSQL = `
/* purge deleted tasks */
with remembered as (
  update {deleted_tasks}
     set purged_at = now(), claimed_until = null, unpublish_at = null, user_context = null,
         task = jsonb_build_object('request_id', task -> 'request_id')
   where id = $1 and purging_at is not null and purged_at is null
     and $2 <> '' and starts_with(task ->> 'request_id', $2)
  returning id
), removed as (
  delete from {deleted_tasks}
   where id = $1 and purging_at is not null and purged_at is null
     and ($2 = '' or not coalesce(starts_with(task ->> 'request_id', $2), false))
  returning id
), purged as (
  select id from remembered union all select id from removed
), history as (
  delete from {attempts} a using purged where a.task_id = purged.id
), open as (
  delete from {steps} s using purged where s.task_id = purged.id -- if triggers were disabled
)
insert into {outbox} (type, task_id) select 'purged', id from purged`

// Purge deletes the rows of a deleted task that [Store.ClaimToPurge] returned, with its history. A request id
// with the prefix, if that is not empty, stays known to [Store.DeletedRequests].
func (s *Store) Purge(ctx context.Context, task ID, remember string) error {
	return s.execBackground(ctx, "purge deleted task", purgeSQL, task, remember)
}

// runBackground runs a statement that must not wait long for a lock: while it waits, heartbeats may lack its connection.
func (s *Store) runBackground(ctx context.Context, sql string, args []any, read func(pgx.Rows) error) error {
	var batch pgx.Batch
	batch.Queue(statement.LimitLockWaitSQL, statement.BackgroundLockWait)
	batch.Queue(s.sql.fill(sql), args...).Query(read)
	return s.db.SendBatch(ctx, &batch).Close()
}

// execBackground is runBackground for a statement without rows.
func (s *Store) execBackground(ctx context.Context, act, sql string, args ...any) error {
	return s.explain(act, s.runBackground(ctx, sql, args, func(rows pgx.Rows) error {
		rows.Close()
		return rows.Err()
	}))
}
