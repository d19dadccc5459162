package store

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/statement"
)

// DeleteOptions are options of [Store.Delete]. The zero value deletes what is published, too.
type DeleteOptions struct {
	// KeepPublished leaves what is published until the task is purged.
	KeepPublished bool
	// By is the user or API key that deletes, for the list of deleted tasks.
	By string
	// Purge makes a process purge the task at once. Default: after its stages.Retention.
	Purge bool
}

// DeletedTask is a deleted task that is not purged yet.
type DeletedTask struct {
	ID            ID         `json:"task_id"`
	Source        string     `json:"source"`
	UserID        string     `json:"user_id,omitempty"`
	CreatedAt     time.Time  `json:"created_at"`
	DeletedAt     time.Time  `json:"deleted_at"`
	DeletedBy     string     `json:"deleted_by,omitempty"`
	KeepPublished bool       `json:"keep_published"`
	UnpublishedAt *time.Time `json:"unpublished_at,omitempty"` // nil: what was published is not removed yet, or stays
	PurgeAt       *time.Time `json:"purge_at,omitempty"`       // nil: after the retention of the processes
	PurgingAt     *time.Time `json:"purging_at,omitempty"`     // since when it is purged; it cannot be restored then

	UserContext json.RawMessage `json:"user_context,omitempty"` // see [Submission]

	Params json.RawMessage `json:"-"`
	// Expired says that retention deleted it: what it has published stays for ever.
	Expired bool `json:"-"`
	// SourceInUse says that another task with the same request id has the same source.
	SourceInUse bool `json:"-"`
	// ClaimedUntil identifies a claim of the package engine.
	ClaimedUntil *time.Time `json:"-"`
}

const deleteSQL = `
/* delete task */
select id from cuelight_{name}_delete($1, $2, $3, case when $4 then now() end)`

// Delete deletes a task. It is in no list any more, nothing claims it, and workers stop working on it.
// Until it is purged it can be restored by [Store.Undelete], and its history stays. A process with
// stages.Retention removes what is published at once, and purges the task later. Without such a process
// nothing is removed.
//
// A task that it had overridden can be retried. Delete returns [ErrNotFound], also for a task that was deleted before;
// but with Purge that one is purged at once.
func (s *Store) Delete(ctx context.Context, task ID, o DeleteOptions) error {
	err := s.updateOne(ctx, "delete", deleteSQL, task, o.KeepPublished, statement.CleanText(o.By), o.Purge)
	if o.Purge && errors.Is(err, ErrNotFound) {
		return s.updateOne(ctx, "purge", purgeNowSQL, task)
	}
	return err
}

const purgeNowSQL = `
/* purge a deleted task at once */
update {deleted_tasks} set purge_at = now()
 where id = $1 and purged_at is null returning id`

const undeleteSQL = `
/* undelete task */
select id from cuelight_{name}_undelete($1, $2)`

// Undelete restores a deleted task. Stages that were in progress begin again, and so do, with from, that stage
// and all after it that were completed: give the first stage whose results were removed since. It returns [ErrNotFound],
// [ErrNoStage], [ErrPurging], [ErrUnpublishing], or [ErrRequestIDTaken] if another task was submitted with the same request id.
func (s *Store) Undelete(ctx context.Context, task ID, from string) error {
	stage, err := s.stageArg("undelete", from)
	if err != nil {
		return err
	}
	err = s.updateOne(ctx, "undelete", undeleteSQL, task, stage)
	if state, constraint := statement.State(err); state == statement.UniqueViolation && constraint == s.graph.prefix+"tasks_request" {
		return fmt.Errorf("undelete: %w: another task has it now", ErrRequestIDTaken)
	}
	if !errors.Is(err, ErrNotFound) {
		return err
	}
	switch d, getErr := s.GetDeleted(ctx, task); {
	case getErr != nil:
		return err
	case d.PurgingAt != nil || d.PurgeAt != nil:
		return fmt.Errorf("undelete: %w", ErrPurging)
	}
	return fmt.Errorf("undelete: %w", ErrUnpublishing)
}

// deletedColumns are those of a [DeletedTask], for scanDeleted.
const deletedColumns = `
d.id, d.task->>'source', coalesce(d.task->>'user_id', ''), (d.task->>'created_at')::timestamptz,
       d.deleted_at, d.deleted_by, d.keep_published, d.unpublished_at,
       case when not d.expired then d.purge_at end, d.purging_at,
       d.task->'params', d.user_context, d.claimed_until, d.expired,
       exists (select from {tasks} other
                where other.request_id = d.task->>'request_id' and other.source = d.task->>'source')`

// scanDeleted reads a row of deletedColumns.
func scanDeleted(row pgx.CollectableRow) (d DeletedTask, err error) {
	err = row.Scan(&d.ID, &d.Source, &d.UserID, &d.CreatedAt, &d.DeletedAt, &d.DeletedBy, &d.KeepPublished, &d.UnpublishedAt,
		&d.PurgeAt, &d.PurgingAt, &d.Params, &d.UserContext, &d.ClaimedUntil, &d.Expired, &d.SourceInUse)
	return d, err
}

const getDeletedSQL = `
/* get deleted task */
select ` + deletedColumns + `
  from {deleted_tasks} d where d.id = $1 and d.purged_at is null`

// GetDeleted reads a deleted task. It returns [ErrNotFound].
func (s *Store) GetDeleted(ctx context.Context, id ID) (DeletedTask, error) {
	found, err := query(ctx, s, "get deleted task", getDeletedSQL, scanDeleted, id)
	if err == nil && len(found) == 0 {
		return DeletedTask{}, s.explain("get deleted task", ErrNotFound)
	}
	if err != nil {
		return DeletedTask{}, err
	}
	return found[0], nil
}

// DeletedQuery selects deleted tasks. Its zero value selects those that were deleted last.
type DeletedQuery struct {
	UserID string
	After  ID  // only tasks that were deleted before this one
	Limit  int // default 100
}

const listDeletedSQL = `
/* list deleted tasks */
select ` + deletedColumns + `
  from {deleted_tasks} d
 where d.purged_at is null and ($1 = '' or d.task->>'user_id' = $1)
   and ($2::uuid is null
        or (d.deleted_at, d.id) < (select a.deleted_at, a.id from {deleted_tasks} a where a.id = $2))
 order by d.deleted_at desc, d.id desc
 limit $3`

// ListDeleted lists deleted tasks, the last deleted one first.
func (s *Store) ListDeleted(ctx context.Context, q DeletedQuery) ([]DeletedTask, error) {
	return query(ctx, s, "list deleted tasks", listDeletedSQL, scanDeleted, q.UserID, q.After, cmp.Or(max(q.Limit, 0), 100))
}

const findDeletedSQL = `
/* find deleted task by the end of its id */
select array(select id from {deleted_tasks}
              where purged_at is null and replace(id::text, '-', '') like '%' || replace($1, '-', '') limit 2)`

// FindDeleted is [Store.Find] among the deleted tasks.
func (s *Store) FindDeleted(ctx context.Context, text string) (ID, error) {
	return s.findBySuffix(text, func() (found []ID, err error) {
		err = s.queryRow(ctx, findDeletedSQL, text).Scan(&found)
		return found, err
	})
}

const deletedRequestsSQL = `
/* find request ids of deleted tasks */
select distinct d.task->>'request_id' from {deleted_tasks} d where d.task->>'request_id' = any($1)`

// DeletedRequests returns those of the request ids whose tasks were deleted. That of a purged task is known if
// stages.Retention says so.
func (s *Store) DeletedRequests(ctx context.Context, requestIDs []string) (found []string, err error) {
	return readRows(ctx, s, "find request ids of deleted tasks", deletedRequestsSQL, pgx.RowTo[string], requestIDs)
}
