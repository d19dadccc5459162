package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

const retrySQL = `
/* retry task */
select id from cuelight_{name}_retry($1, $2, $3)`

// Retry retries a stage of a task and all stages after it: their attempts are counted from
// one, their results are replaced, and claims of them are revoked. With from empty it
// retries only dead, failed and cancelled stages; a task that was cancelled before its
// scheduled time waits for that time again. A divided stage that is not completed keeps its completed
// parts, unless a stage before it is retried. It returns [ErrNotFound], [ErrNoStage] or
// [ErrOverridden].
func (s *Store) Retry(ctx context.Context, task ID, from string) error {
	return s.retryWith(ctx, task, from, false)
}

// RetryFresh is [Store.Retry] that keeps no parts: retried stages are divided again.
func (s *Store) RetryFresh(ctx context.Context, task ID, from string) error {
	return s.retryWith(ctx, task, from, true)
}

func (s *Store) retryWith(ctx context.Context, task ID, from string, fresh bool) error {
	stage, err := s.stageArg("retry", from)
	if err != nil {
		return err
	}
	return s.updateOne(ctx, "retry", retrySQL, task, stage, fresh)
}

// stageArg is the parameter of a statement for a stage, null for none.
func (s *Store) stageArg(act, name string) (*string, error) {
	if name == "" {
		return nil, nil
	}
	if _, ok := s.graph.Stage(name); !ok {
		return nil, fmt.Errorf("%s: %w: %q", act, ErrNoStage, name)
	}
	return &name, nil
}

const paramsSQL = `
/* get params */
select params from {tasks} where id = $1`

// Params returns the parameters of a task, and reads nothing else. It returns [ErrNotFound].
func (s *Store) Params(ctx context.Context, task ID) (params json.RawMessage, err error) {
	err = s.queryRow(ctx, paramsSQL, task).Scan(&params)
	if err == pgx.ErrNoRows {
		err = ErrNotFound
	}
	return params, s.explain("get params", err)
}

const setParamsSQL = `
/* set params */
update {tasks} set params = $2 where id = $1 returning id`

// SetParams replaces the parameters of a task. Attempts that begin later have the new ones. It returns
// [ErrNotFound].
func (s *Store) SetParams(ctx context.Context, task ID, params json.RawMessage) error {
	return s.updateOne(ctx, "set params", setParamsSQL, task, params)
}

const cancelSQL = `
/* cancel task */
select id from cuelight_{name}_cancel($1)`

// Cancel cancels the stages of a task that are not completed, and revokes their claims.
// Cancelling twice changes nothing. It returns [ErrNotFound].
func (s *Store) Cancel(ctx context.Context, task ID) error {
	return s.updateOne(ctx, "cancel", cancelSQL, task)
}

// updateOne runs a statement that returns the id of the task it changed.
func (s *Store) updateOne(ctx context.Context, act, sql string, args ...any) error {
	var id ID
	err := s.queryRow(ctx, sql, args...).Scan(&id)
	if err == pgx.ErrNoRows {
		err = ErrNotFound
	}
	return s.explain(act, err)
}

const overrideSQL = `
/* override tasks */
select count(*)
  from (select id from {tasks} where id = any ($2::uuid[]) and id <> $1 and overridden_by is null
         order by id for no key update) as t
 cross join lateral cuelight_{name}_cancel(t.id, $1)`

// Override adds a task that overrides old ones: they are cancelled, as far as they are not
// completed, and never claimed again. What they published stays. When the new task is
// deleted, the old ones can be retried. It returns [ErrNotFound] where an old task does not
// exist, and [ErrOverridden] where one is overridden already; then nothing was changed.
func (s *Store) Override(ctx context.Context, old []ID, by Submission) (Receipt, error) {
	old = slices.Compact(slices.SortedFunc(slices.Values(old), compareIDs))
	var receipt Receipt
	err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		in := s.WithTx(tx)
		var err error
		if receipt, err = in.Submit(ctx, by); err != nil {
			return err
		}
		var n int
		err = in.queryRow(ctx, overrideSQL, receipt.ID, old).Scan(&n)
		if err != nil || n == len(old) {
			return err
		}
		return in.overrideError(ctx, old, receipt.ID)
	})
	return receipt, s.explain("override", err)
}

// overrideError says which of the old tasks cannot be overridden, and why not.
func (s *Store) overrideError(ctx context.Context, old []ID, by ID) error {
	for _, id := range old {
		t, err := s.Get(ctx, id)
		switch {
		case err != nil:
			return fmt.Errorf("task %s: %w", id, err)
		case id == by:
			return fmt.Errorf("%w: task %s cannot override itself", ErrInvalid, id)
		case t.OverriddenBy != by:
			return fmt.Errorf("task %s: %w", id, ErrOverridden)
		}
	}
	return nil
}

func compareIDs(a, b ID) int { return bytes.Compare(a[:], b[:]) }
