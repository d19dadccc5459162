package store_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

const month = 30 * 24 * time.Hour

// age makes tasks older, with their history.
func (b bundle) age(by time.Duration, tasks ...store.ID) {
	b.t.Helper()
	b.exec("update tasks set created_at = created_at - $1::interval, updated_at = updated_at - $1::interval where id = any($2)", by, tasks)
	b.exec(`update attempts set started_at = started_at - $1::interval, finished_at = finished_at - $1::interval
	         where task_id = any($2)`, by, tasks)
}

func (b bundle) wantPruned(o store.PruneOptions, want store.PruneResult) {
	b.t.Helper()
	if got, err := b.Prune(b.t.Context(), o); err != nil || got != want {
		b.t.Errorf("Prune(%+v) returned %+v, %v; want %+v", o, got, err, want)
	}
}

func (b bundle) wantTasks(want ...store.ID) {
	b.t.Helper()
	tasks, err := b.List(b.t.Context(), store.ListQuery{OldestFirst: true})
	must(b.t, err)
	var got []store.ID
	for _, t := range tasks {
		got = append(got, t.ID)
	}
	if !slices.Equal(got, want) {
		b.t.Errorf("the tasks are %v, want %v", got, want)
	}
}

func (b bundle) makeDead(id store.ID) {
	b.exec("update tasks set ingest_status = 'dead' where id = $1", id)
}

func TestPrune_DeletesTasksThatEndedLongAgo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	w := b.worker()
	completed, dead, cancelled, late, open := b.submit(), b.submit(), b.submit(), b.submit(), b.submit()
	b.completeAll(w, b.claim(w, ingest))
	b.makeDead(dead)
	must(t, b.Cancel(ctx, cancelled))
	b.exec("update tasks set priority = 1 where id = $1", late)
	b.age(2*month, completed, dead, cancelled, late, open)
	b.completeAll(w, b.claim(w, ingest)) // late has ended now
	b.wantStatuses(late, done, done, done, done, done)

	b.wantPruned(store.PruneOptions{}, store.PruneResult{})
	b.wantPruned(store.PruneOptions{Finished: 3 * month, Dead: 3 * month}, store.PruneResult{})
	b.wantPruned(store.PruneOptions{Finished: month}, store.PruneResult{Finished: 2})
	b.wantTasks(dead, late, open)
	if h := b.history(completed); len(h) != 0 {
		t.Errorf("history of the deleted task: %+v", h)
	}
	b.wantPruned(store.PruneOptions{Dead: month}, store.PruneResult{Dead: 1})
	b.wantTasks(late, open)
}

// A dead stage, or a cancelled one, ends neither its siblings nor their retries.
func TestPrune_KeepsTasksWithStagesThatAreOrWillBeWorkedOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	all := store.PruneOptions{Finished: month, Dead: month}
	worker := b.worker()
	for _, metadata := range []string{"dead", "cancelled"} {
		for status, isPruned := range map[string]bool{
			"pending": false, "failed": false, "waiting": false, "inprogress": false, "divided": false,
			"completed": true, "cancelled": true, "dead": true,
		} {
			var id store.ID
			switch status {
			case "divided":
				id = b.divided(worker, 2)
			default:
				id = b.submit()
				b.exec("update tasks set ingest_status = 'completed'")
			}
			switch status {
			case "waiting":
				b.exchange(worker, 0, []engine.Report{failed(b.claim(worker, transcode), time.Hour)})
			case "inprogress":
				b.claim(worker, transcode)
			case "divided":
			default:
				b.exec("update tasks set transcode_status = '" + status + "'")
			}
			b.exec("update tasks set metadata_status = '" + metadata + "'")
			b.age(2*month, id)
			b.wantEnds(all, map[store.ID]bool{id: isPruned})
			var want store.PruneResult
			switch {
			case isPruned && (metadata == "dead" || status == "dead"):
				want.Dead = 1
			case isPruned:
				want.Finished = 1
			}
			b.wantPruned(all, want)
			b.exec("delete from tasks")
		}
	}
}

// It may have been submitted long before.
func TestPrune_CountsFromTheCancellation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, overridden := b.submit(), b.submit()
	b.age(2*month, id, overridden)
	must(t, b.Cancel(t.Context(), id))
	_, err := b.Override(t.Context(), []store.ID{overridden}, store.Submission{Source: "b.mp4"})
	must(t, err)
	b.wantPruned(store.PruneOptions{Finished: month}, store.PruneResult{})
	b.age(2*month, id)
	b.wantPruned(store.PruneOptions{Finished: month}, store.PruneResult{Finished: 1})
}

func TestPrune_CountsFromTheEndWhereACancellationChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	completed, cancelled, overridden := b.submit(), b.submit(), b.submit()
	must(t, b.Cancel(ctx, cancelled))
	b.exec(`update tasks set ingest_status = 'completed', transcode_status = 'completed', metadata_status = 'completed',
	        assemble_status = 'completed', publish_status = 'completed' where id in ($1, $2)`, completed, overridden)
	b.age(2*month, completed, cancelled, overridden)
	must(t, b.Cancel(ctx, completed))
	must(t, b.Cancel(ctx, cancelled))
	by, err := b.Override(ctx, []store.ID{overridden}, store.Submission{Source: "b.mp4"})
	must(t, err)
	b.wantPruned(store.PruneOptions{Finished: month}, store.PruneResult{Finished: 3})
	b.wantTasks(by.ID)
}

// Otherwise the overridden task could be retried.
func TestPrune_KeepsATaskThatOverridesOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old := b.submit()
	b.makeDead(old)
	r, err := b.Override(t.Context(), []store.ID{old}, store.Submission{Source: "b.mp4"})
	must(t, err)
	w := b.worker()
	b.completeAll(w, b.claim(w, ingest))
	b.age(2*month, r.ID)
	b.wantPruned(store.PruneOptions{Finished: month}, store.PruneResult{})
	b.age(2*month, old)
	b.wantPruned(store.PruneOptions{Finished: month}, store.PruneResult{Finished: 2})
}

func TestPrune_DeletesManyBatches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`insert into tasks (source, created_at, updated_at, ingest_status, transcode_status, metadata_status, assemble_status,
	                           publish_status)
	        select 'a.mp4', now() - n * interval '1 day', now() - n * interval '1 day', 'completed',
	               'completed', 'completed', 'completed', 'completed'
	          from generate_series(1, 1700) as n order by n desc`)
	b.wantPruned(store.PruneOptions{Finished: 10*24*time.Hour + time.Hour}, store.PruneResult{Finished: 1690})
}

// countingPool counts transactions.
type countingPool struct {
	*pgxpool.Pool
	transactions int
}

func (c *countingPool) Begin(ctx context.Context) (pgx.Tx, error) {
	c.transactions++
	return c.Pool.Begin(ctx)
}

// Of dead tasks that are kept for ever it reads a page per transaction, and no page twice.
func TestPrune_ReadsDeadTasksThatAreKeptForEverOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`insert into tasks (source, created_at, ingest_status)
	        select 'a.mp4', now() - interval '1 year', 'dead' from generate_series(1, 2000)`)
	old := b.submit()
	b.makeDead(old)
	by, err := b.Override(t.Context(), []store.ID{old}, store.Submission{Source: "b.mp4"})
	must(t, err)
	b.age(2*month, old, by.ID)
	pool := &countingPool{Pool: b.pool}
	r, err := store.New(pool, b.Graph()).Prune(t.Context(), store.PruneOptions{Finished: month})
	if err != nil || r != (store.PruneResult{Finished: 1}) || pool.transactions > 2000/500+3 {
		t.Errorf("Prune returned %+v, %v, in %d transactions", r, err, pool.transactions)
	}
}

func TestPrune_LeavesTheRestToProcessesWithFiles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	w, id := b.worker(), b.submit()
	b.completeAll(w, b.claim(w, ingest))
	b.age(2*month, id)
	b.wantPruned(store.PruneOptions{Finished: month, HasFiles: true}, store.PruneResult{Finished: 1})
	b.wantTasks()
	if err := b.Undelete(ctx, id, ""); !errors.Is(err, store.ErrPurging) {
		t.Errorf("undelete returned %v", err)
	}
	if claimed, err := b.ClaimToUnpublish(ctx); err != nil || len(claimed) != 0 {
		t.Errorf("claimed to unpublish %+v, %v", claimed, err)
	}
	claimed, err := b.ClaimToPurge(ctx, -1)
	if err != nil || len(claimed) != 1 || claimed[0].ID != id || !claimed[0].Expired || !claimed[0].KeepPublished {
		t.Fatalf("claimed to purge %+v, %v", claimed, err)
	}
	must(t, b.Purge(ctx, id, ""))
	if h := b.history(id); len(h) != 0 {
		t.Errorf("history of the purged task: %+v", h)
	}
}

func TestPrune_IsCompletedByAnotherProcessWithFiles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id := b.submit()
	must(t, b.Cancel(ctx, id))
	b.age(2*month, id)
	b.wantPruned(store.PruneOptions{Finished: month, HasFiles: true}, store.PruneResult{Finished: 1})
	must(t, b.Delete(ctx, id, store.DeleteOptions{Purge: true})) // it is purged already
	for range 2 {                                                // the first process dies
		claimed, err := b.ClaimToPurge(ctx, -1)
		if err != nil || len(claimed) != 1 || claimed[0].ID != id || !claimed[0].Expired || claimed[0].PurgeAt != nil ||
			claimed[0].PurgingAt == nil {
			t.Fatalf("claimed to purge %+v, %v", claimed, err)
		}
		if again, err := b.ClaimToPurge(ctx, -1); err != nil || len(again) != 0 {
			t.Errorf("claimed %+v twice, %v", again, err)
		}
		b.exec("update deleted_tasks set claimed_until = claimed_until - $1::interval", store.RemovalTime)
	}
	must(t, b.Purge(ctx, id, ""))
	if n := b.queryInt("select count(*) from deleted_tasks"); n != 0 {
		t.Errorf("%d deleted tasks are left", n)
	}
}

func TestPrune_WhileAnotherProcessPrunesDoesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id := b.submit()
	must(t, b.Cancel(ctx, id))
	b.age(2*month, id)
	tx, err := b.pool.Begin(ctx)
	must(t, err)
	_, err = tx.Exec(ctx, "select pg_advisory_xact_lock(hashtext('cuelight prune tasks'))")
	must(t, err)
	b.wantPruned(store.PruneOptions{Finished: month}, store.PruneResult{})
	must(t, tx.Rollback(ctx))
	b.wantPruned(store.PruneOptions{Finished: month}, store.PruneResult{Finished: 1})
}

func TestPrune_LocksNobodyOutOfOtherTasks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	old, claimed, waiting := b.submit(), b.submit(), b.submit()
	must(t, b.Cancel(t.Context(), old))
	b.age(2*month, old, claimed, waiting)
	claim := b.claim(w, ingest)
	tx, err := b.pool.Begin(t.Context())
	must(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }() // if the test fails
	pruned, err := b.WithTx(tx).Prune(t.Context(), store.PruneOptions{Finished: month})
	if err != nil || pruned.Finished != 1 {
		t.Fatalf("pruned %+v, %v", pruned, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // while the deletion is not committed
	defer cancel()
	out, err := b.Exchange(ctx, exchangeRequest(w, 1, []engine.Report{completed(claim)}, ingest, transcode, metadata))
	if err != nil || len(out.Claims) != 3 || len(out.Locked) > 0 || len(out.Stale) > 0 {
		t.Errorf("the exchange returned %+v, %v, want claims of three stages", out, err)
	}
	must(t, b.Cancel(ctx, claimed))
	must(t, b.Delete(ctx, waiting, store.DeleteOptions{}))
	later, err := b.Submit(ctx, store.Submission{Source: "b.mp4"})
	must(t, err)
	must(t, tx.Commit(ctx))
	b.wantTasks(claimed, later.ID)
}

func TestPrune_DeletesOldWorkers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	stopped, live := b.worker(), b.worker()
	must(t, b.DeregisterWorker(ctx, stopped))
	b.wantPruned(store.PruneOptions{Workers: month}, store.PruneResult{})
	b.exec("update workers set started_at = now() - interval '80 days', stopped_at = stopped_at - interval '60 days'")
	b.wantPruned(store.PruneOptions{Workers: month}, store.PruneResult{Workers: 1})
	workers, err := b.Workers(ctx, true)
	if err != nil || len(workers) != 1 || workers[0].ID != live {
		t.Errorf("the workers are %+v, %v", workers, err)
	}
}
