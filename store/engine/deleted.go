package engine

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
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
update {{.Prefix}}deleted_tasks d set claimed_until = now() + make_interval(secs => $1)
 where d.id in (
       select id from {{.Prefix}}deleted_tasks
        where unpublish_at <= now() and purging_at is null and coalesce(claimed_until, '-infinity') < now()
        order by unpublish_at limit $2 for update skip locked)
returning ` + store.DeletedColumns

// ClaimToUnpublish claims deleted tasks whose published files are to be removed, for [RemovalTime]: soon after the
// deletion, and once more a minute later, because an attempt may have published meanwhile. Each must be followed by
// [Engine.RecordUnpublished] or [Engine.PostponeUnpublish].
func (e *Engine) ClaimToUnpublish(ctx context.Context) ([]store.DeletedTask, error) {
	return e.claimDeleted(ctx, "claim deleted tasks to unpublish", e.graph.SQL(claimUnpublishedSQL, nil),
		RemovalTime.Seconds(), removalBatch)
}

const recordUnpublishedSQL = `
/* record that published files were removed */
update {{.Prefix}}deleted_tasks
   set unpublished_at = coalesce(unpublished_at, now()), claimed_until = null,
       unpublish_at = case when unpublished_at is null then now() + interval '1 min' end
 where id = $1 and claimed_until = $2`

// RecordUnpublished records that nothing of a claimed task is published any more.
func (e *Engine) RecordUnpublished(ctx context.Context, task store.DeletedTask) error {
	return e.execBackground(ctx, "record unpublished task", recordUnpublishedSQL, task.ID, task.ClaimedUntil)
}

const postponeUnpublishSQL = `
/* postpone the removal of published files */
update {{.Prefix}}deleted_tasks set claimed_until = null, unpublish_at = now() + interval '1 min'
 where id = $1 and claimed_until = $2`

// PostponeUnpublish ends the claim of a task whose published files could not be removed.
func (e *Engine) PostponeUnpublish(ctx context.Context, task store.DeletedTask) error {
	return e.execBackground(ctx, "postpone unpublishing", postponeUnpublishSQL, task.ID, task.ClaimedUntil)
}

// claimToPurgeSQL makes sure that the tasks are not restored. $3 is null where they are kept for ever. Tasks deleted by
// retention are due at once, but have a purge_at in the future.
const claimToPurgeSQL = `
/* claim deleted tasks to purge */
with at_its_time as (
  select id from {{.Prefix}}deleted_tasks
   where purged_at is null and purge_at <= now() and coalesce(claimed_until, '-infinity') < now()
   order by purge_at limit $2 for update skip locked
), after_retention as (
  select id from {{.Prefix}}deleted_tasks
   where purged_at is null and purge_at is null and deleted_at < now() - make_interval(secs => $3)
     and coalesce(claimed_until, '-infinity') < now()
   order by deleted_at limit $2 for update skip locked
), by_retention as (
  select id from {{.Prefix}}deleted_tasks
   where purged_at is null and purge_at > now() and expired and coalesce(claimed_until, '-infinity') < now()
   order by purge_at limit $2 for update skip locked
)
update {{.Prefix}}deleted_tasks d
   set claimed_until = now() + make_interval(secs => $1), purging_at = coalesce(d.purging_at, now())
 where d.id in (select id from at_its_time union all select id from after_retention union all select id from by_retention)
returning ` + store.DeletedColumns

// ClaimToPurge claims, for [RemovalTime], deleted tasks that are to be purged now: at their PurgeAt, keep after their
// deletion (a negative keep is for ever), or at once if they are Expired. They cannot be restored any more. Each must be
// followed by [Engine.Purge].
func (e *Engine) ClaimToPurge(ctx context.Context, keep time.Duration) ([]store.DeletedTask, error) {
	var seconds *float64
	if keep >= 0 {
		s := keep.Seconds()
		seconds = &s
	}
	return e.claimDeleted(ctx, "claim deleted tasks to purge", e.graph.SQL(claimToPurgeSQL, nil),
		RemovalTime.Seconds(), removalBatch, seconds)
}

func (e *Engine) claimDeleted(ctx context.Context, act, sql string, args ...any) ([]store.DeletedTask, error) {
	var claimed []store.DeletedTask
	err := e.runBackground(ctx, sql, args, func(rows pgx.Rows) (err error) {
		claimed, err = pgx.CollectRows(rows, store.ScanDeleted)
		return err
	})
	return claimed, e.explain(act, err)
}

const purgeSQL = `
/* purge deleted tasks */
with remembered as (
  update {{.Prefix}}deleted_tasks
     set purged_at = now(), claimed_until = null, unpublish_at = null, user_context = null,
         task = jsonb_build_object('request_id', task -> 'request_id')
   where id = $1 and purging_at is not null and purged_at is null
     and $2 <> '' and starts_with(task ->> 'request_id', $2)
  returning id
), removed as (
  delete from {{.Prefix}}deleted_tasks
   where id = $1 and purging_at is not null and purged_at is null
     and ($2 = '' or not coalesce(starts_with(task ->> 'request_id', $2), false))
  returning id
), purged as (
  select id from remembered union all select id from removed
), history as (
  delete from {{.Attempts}} a using purged where a.task_id = purged.id
){{if .HasParts}}, parts as (
  delete from {{.Parts}} p using purged where p.task_id = purged.id
){{end}}
insert into {{.Outbox}} (type, task_id) select 'purged', id from purged`

// Purge deletes the rows of a deleted task that [Engine.ClaimToPurge] returned, with its history, and the parts that a
// deletion without triggers leaves. A request id
// with the prefix, if that is not empty, stays known to [store.Store.DeletedRequests].
func (e *Engine) Purge(ctx context.Context, task store.ID, remember string) error {
	return e.execBackground(ctx, "purge deleted task", purgeSQL, task, remember)
}
