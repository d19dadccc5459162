package store

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

const retrySQL = `
/* retry task */
select id from {{.Function "retry"}}($1, $2)`

// Retry does a stage of a task again, and everything after it: their attempts
// start from one, their results will be replaced, and a worker that is busy
// with one of them is told to stop. With from empty, only what died, failed or was
// cancelled is done again; a task that was cancelled before the time it was submitted
// for waits for that. It returns [ErrNotFound], [ErrNoStage], or
// [ErrOverridden].
func (s *Store) Retry(ctx context.Context, task ID, from string) error {
	var stage *string
	if from != "" {
		if _, ok := s.graph.Stage(from); !ok {
			return fmt.Errorf("retry: %w: %q", ErrNoStage, from)
		}
		stage = &from
	}
	return s.one(ctx, "retry", s.sql.retry, task, stage)
}

const cancelSQL = `
/* cancel task */
select id from {{.Function "cancel"}}($1)`

// Cancel ends a task: what is not done will not be, and what is running, on
// whichever host, is taken from its worker and stopped. What is completed
// stays so. Cancelling again changes nothing. It returns [ErrNotFound].
func (s *Store) Cancel(ctx context.Context, task ID) error {
	return s.one(ctx, "cancel", s.sql.cancel, task)
}

// one runs a statement that returns the one task it changed.
func (s *Store) one(ctx context.Context, act, sql string, args ...any) error {
	var id ID
	err := s.db.QueryRow(ctx, sql, args...).Scan(&id)
	if err == pgx.ErrNoRows {
		err = ErrNotFound
	}
	return s.explain(act, err)
}

const overrideSQL = `
/* override tasks */
update {{.Tasks}} t set
       overridden_by = $1,
       {{- range $i, $s := .Stages}}{{if $i}},{{end}}
       {{.Name}}_status    = case when {{.Name}}_status in ('completed', 'dead') then {{.Name}}_status else 'cancelled' end,
       {{.Name}}_token     = null,
       {{.Name}}_locked_at = null,
       {{.Name}}_locked_by = null,
       {{.Name}}_run_at    = null
       {{- end}},
       scheduled_at = coalesce(greatest({{.Scheduled}}), scheduled_at)
 where id in (select id from {{.Tasks}} where id = any($2::uuid[]) order by id for no key update)
   and id <> $1 and overridden_by is null`

// Override adds a task that replaces old ones: their overridden_by points to
// it, what was running of them is stopped, and they are never claimed again.
// Their published videos stay where they are. When the new task is deleted, they stay at
// rest, and can be retried. It returns [ErrNotFound] when one of
// the old tasks is not there, and [ErrOverridden] when one was replaced
// already; then nothing was changed.
func (s *Store) Override(ctx context.Context, old []ID, by Submission) (Receipt, error) {
	old = slices.Compact(slices.SortedFunc(slices.Values(old), compareIDs))
	var receipt Receipt
	err := pgx.BeginFunc(ctx, s.db, func(tx pgx.Tx) error {
		in := s.WithTx(tx)
		var err error
		if receipt, err = in.Submit(ctx, by); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, s.sql.override, receipt.ID, old)
		if err != nil || int(tag.RowsAffected()) == len(old) {
			return err
		}
		return in.whyNotOverridden(ctx, old, receipt.ID)
	})
	return receipt, s.explain("override", err)
}

// whyNotOverridden finds the first of the old tasks that cannot be replaced.
func (s *Store) whyNotOverridden(ctx context.Context, old []ID, by ID) error {
	for _, id := range old {
		t, err := s.Get(ctx, id)
		switch {
		case err != nil:
			return fmt.Errorf("task %s: %w", id, err)
		case id == by:
			return fmt.Errorf("%w: task %s cannot replace itself", ErrInvalid, id)
		case t.OverriddenBy != by:
			return fmt.Errorf("task %s: %w", id, ErrOverridden)
		}
	}
	return nil
}

func compareIDs(a, b ID) int { return bytes.Compare(a[:], b[:]) }
