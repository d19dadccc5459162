package store

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// RetryAllOptions are options of [Store.RetryAll] and [Store.RetryDead].
type RetryAllOptions struct {
	// Record is called in the transaction of each batch of tasks, such as to write down who retries them; with 0 where no
	// task matches. Default: nothing.
	Record func(ctx context.Context, in *Store, tasks int) error
	// Progress is called after each batch.
	Progress func(RetryAllResult)
	// Until is when no further batch starts; the first always does. Default: never.
	Until time.Time
}

// RetryAllResult counts the tasks that matched at the start. Where Retried and Remaining are
// fewer than Matched, the others were changed meanwhile.
type RetryAllResult struct {
	Matched   int
	Retried   int
	Remaining int // not reached before Until
}

// retryBatch is how many tasks one transaction retries.
const retryBatch = 2000

// retryable is the condition of tasks that RetryAll retries. $9 is a stage or null.
const retryable = `
       t.overridden_by is null
   and ($9::text is not null or array[{statuses t.}] && '{dead,failed,cancelled}')
   and ` + matches

const matchingSQL = `
/* find tasks to retry */
select t.id from {tasks} t where ` + retryable + ` order by t.id`

// retryMatchingSQL retries the tasks of a batch that still match, ordered by id so that two
// callers do not wait for each other.
const retryMatchingSQL = `
/* retry tasks */
select cuelight_{name}_retry_tasks(array(
       select t.id from {tasks} t where t.id = any($10::uuid[]) and ` + retryable +
	` order by t.id for no key update), $9)`

// RetryAll is [Store.Retry] for all tasks that the filter matches at the start, each once;
// it ignores Limit and After. Each batch is a transaction, unless the Store has one, see
// [Store.WithTx]. With an error, the result says how many were retried; calling it again
// continues with the tasks that still match.
func (s *Store) RetryAll(ctx context.Context, f Filter, from string, o RetryAllOptions) (RetryAllResult, error) {
	stage, err := s.stageArg("retry all", from)
	if err != nil {
		return RetryAllResult{}, err
	}
	args := append(f.args(), stage)
	all, err := readRows(ctx, s, "retry all", matchingSQL, pgx.RowTo[ID], args...)
	if err != nil {
		return RetryAllResult{}, err
	}
	r, err := s.retryBatches(ctx, all, o, args)
	return r, s.explain("retry all", err)
}

// RetryDead retries the dead, failed and cancelled stages of those tasks that have a dead
// stage and are not overridden, in batches as [Store.RetryAll] does.
func (s *Store) RetryDead(ctx context.Context, tasks []ID, o RetryAllOptions) (RetryAllResult, error) {
	var noStage *string
	r, err := s.retryBatches(ctx, tasks, o, append(Filter{Status: StatusDead}.args(), noStage))
	return r, s.explain("retry dead tasks", err)
}

// retryBatches retries those tasks that match. A task that dies again meanwhile is not retried twice.
func (s *Store) retryBatches(ctx context.Context, all []ID, o RetryAllOptions, args []any) (r RetryAllResult, err error) {
	if len(all) == 0 && o.Record != nil {
		return r, s.InTx(ctx, func(in *Store) error { return o.Record(ctx, in, 0) })
	}
	r.Matched, r.Remaining = len(all), len(all)
	for ids := range slices.Chunk(all, retryBatch) {
		if r.Remaining < r.Matched && !o.Until.IsZero() && !time.Now().Before(o.Until) {
			break
		}
		n := 0
		err := s.InTx(ctx, func(in *Store) error {
			err := in.queryRow(ctx, retryMatchingSQL, append(slices.Clone(args), ids)...).Scan(&n)
			if err != nil || o.Record == nil {
				return err
			}
			return o.Record(ctx, in, n)
		})
		if err != nil {
			return r, err
		}
		r.Retried, r.Remaining = r.Retried+n, r.Remaining-len(ids)
		if o.Progress != nil {
			o.Progress(r)
		}
	}
	return r, nil
}

const countMatchingSQL = `
/* count tasks to retry */
select count(*) from {tasks} t where ` + retryable

// CountRetries counts the tasks that [Store.RetryAll] would retry.
func (s *Store) CountRetries(ctx context.Context, f Filter, from string) (n int, err error) {
	if _, err := s.stageArg("count retries", f.Stage); err != nil {
		return 0, err
	}
	stage, err := s.stageArg("count retries", from)
	if err != nil {
		return 0, err
	}
	err = s.read(ctx, countMatchingSQL, append(f.args(), stage), func(rows pgx.Rows) (err error) {
		n, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
		return err
	})
	return n, s.explain("count retries", err)
}
