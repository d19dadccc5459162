package store_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func TestParts_AreReportedAgainWhileTheTaskIsLocked(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	id, claims := b.divide(store.Submission{}, 2, 2)
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `select from film_tasks where id = $1 for update`, id); err != nil {
		t.Fatal(err)
	}
	dead := partReport(claims[1], engine.Failed)
	dead.Dead = true
	out := b.exchange(b.w, 0, partReport(claims[0], engine.Completed), dead)
	if len(out.Locked) != 2 || len(out.Stale) != 0 {
		t.Errorf("the answer is %+v", out)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := b.exchange(b.w, 0, out.Locked...); len(out.Locked) != 0 || b.encodeState(id).Status != store.StatusDead {
		t.Errorf("the answer is %+v, the stage %s", out, b.encodeState(id).Status)
	}
}

// A claim of a part locks its step alone. The transaction that has locked the task may cancel it, which revokes the claim.
func TestParts_AreClaimedAndNotReportedWhileTheTaskIsLocked(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	id, claims := b.divide(store.Submission{}, 3, 2)
	later := partReport(claims[1], engine.Failed)
	later.RetryIn = time.Hour
	b.exchange(b.w, 0, later)
	b.exec(`update film_steps set run_at = now() - interval '1 s' where part = 2`)
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `select from film_tasks where id = $1 for update`, id); err != nil {
		t.Fatal(err)
	}
	released := partReport(claims[0], engine.Released)
	out := b.exchange(b.w, 3, released)
	if len(out.Locked) != 1 || len(out.Stale) != 0 || len(out.Claims) != 2 || out.NextDue >= 0 {
		t.Errorf("the answer is %+v", out)
	}
	b.wantParts(id, inprogress, inprogress, inprogress)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := b.exchange(b.w, 3, released); len(out.Claims) != 1 {
		t.Errorf("the answer is %+v", out)
	}
}

// A transaction may change a part between the snapshot of a statement and its lock.
func TestParts_AreReportedOnceWhileTheirPriorityChanges(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	id, claims := b.divide(store.Submission{}, 40, 40)
	stop := make(chan struct{})
	changed := make(chan error, 1)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				changed <- nil
				return
			default:
			}
			if _, err := b.pool.Exec(context.Background(), `update film_steps set rank = $2 where task_id = $1 and part > 0`, id, n%10); err != nil {
				changed <- err
				return
			}
		}
	}()
	for _, c := range claims {
		for reports := []engine.Report{partReport(c, engine.Completed)}; len(reports) > 0; {
			out := b.exchange(b.w, 0, reports...)
			if len(out.Stale) > 0 {
				t.Errorf("the answer is %+v", out)
			}
			reports = out.Locked
		}
	}
	close(stop)
	if err := <-changed; err != nil {
		t.Error(err)
	}
	b.wantParts(id, slices.Repeat([]store.Status{done}, 40)...)
	if s := b.encodeState(id); s.Status != pending || *s.OpenParts != 0 {
		t.Errorf("the stage is %+v", s)
	}
}

func TestParts_OfADeadStageAreCancelledWithoutTriggers(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	reported, claims := b.divide(store.Submission{}, 4, 3)
	expired, _ := b.divide(store.Submission{Priority: 1}, 3, 2)
	b.exec(`alter table film_tasks disable trigger user`)
	failure := partReport(claims[1], engine.Failed)
	failure.Dead = true
	b.exchange(b.w, 0, failure, partReport(claims[2], engine.Failed))
	b.wantParts(reported, cancelled, dead, cancelled, cancelled)
	b.exec(`update film_workers set lost_at = now()`)
	other := b.worker()
	b.exec(`update film_steps set attempts = 2 where task_id = $1 and part = 2`, expired)
	if _, err := b.Sweep(t.Context(), engine.SweepRequest{Worker: other, MaxAttempts: []int{2, 2, 2}}); err != nil {
		t.Fatal(err)
	}
	b.wantParts(expired, cancelled, dead, cancelled)
	if out := b.exchange(other, 1); len(out.Claims) != 0 || b.encodeState(reported).Status != store.StatusDead {
		t.Errorf("the claims are %+v", out.Claims)
	}
	if lost, err := b.FindLostClaims(t.Context(), claims[:1]); err != nil || len(lost) != 1 || !lost[0].Cancelled {
		t.Errorf("the lost claims are %+v, %v", lost, err)
	}
}

func TestParts_OfADeadStageAreStoppedByTheSweepIfTheyWereLocked(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	other, otherClaims := b.divide(store.Submission{}, 1, 1)
	id, claims := b.divide(store.Submission{}, 3, 2)
	tx, err := b.pool.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), `select from film_steps where task_id = $1 and part = 3 for update`, id)
	must(t, err)
	failure := partReport(claims[0], engine.Failed)
	failure.Dead = true
	out := b.exchange(b.w, 0, failure, partReport(otherClaims[0], engine.Completed))
	if len(out.Locked)+len(out.Stale) != 0 || *b.encodeState(other).OpenParts != 0 {
		t.Errorf("the answer is %+v", out)
	}
	b.wantParts(id, dead, cancelled, pending)
	must(t, tx.Rollback(t.Context()))
	must(t, b.Reconcile(t.Context(), b.w, time.Minute))
	b.wantParts(id, dead, cancelled, cancelled)
}

// The triggers stop the parts of a task that is cancelled.
func TestParts_GoOnAfterACancelAndARetryWithoutTriggers(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	id, claims := b.divide(store.Submission{}, 3, 1)
	b.exchange(b.w, 0, partReport(claims[0], engine.Completed))
	b.exec(`alter table film_tasks disable trigger user`)
	must(t, b.Cancel(t.Context(), id))
	must(t, b.Reconcile(t.Context(), b.w, time.Minute))
	must(t, b.Retry(t.Context(), id, ""))
	must(t, b.Reconcile(t.Context(), b.w, time.Minute))
	b.wantParts(id, done, pending, pending)
	b.completeAllParts()
	if c := b.claimStage(id); c.Parts != 3 {
		t.Errorf("the claim is %+v", c)
	}
}

func TestParts_AreCountedWhileManyWorkersCompleteThem(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	const n = 300
	id, _ := b.divide(store.Submission{}, n, 0)
	var workers sync.WaitGroup
	for range 4 {
		w := b.worker()
		workers.Go(func() {
			var reports []engine.Report
			for left := n; left > 0; {
				out, err := b.Exchange(t.Context(), engine.ExchangeRequest{
					Worker: w, Reports: reports, FreeSlots: []int{0, 0, 0, 2}, ClaimFrom: []bool{false, false, false, true},
				})
				if err != nil || len(out.Stale) > 0 {
					t.Errorf("an exchange returned %+v, %v", out.Stale, err)
					return
				}
				reports = out.Locked
				for _, c := range out.Claims {
					reports = append(reports, partReport(c, engine.Completed))
				}
				if left--; len(reports) > 0 {
					left = n
				}
			}
		})
	}
	workers.Wait()
	if s := b.encodeState(id); s.Status != pending || *s.OpenParts != 0 {
		t.Errorf("the stage is %s with %d open parts", s.Status, *s.OpenParts)
	}
}

// A deletion waits for parts that another transaction has locked, and workers claim the other parts until it has them all.
func TestParts_AreNotClaimedAfterTheDeletionOfTheirTask(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	id, _ := b.divide(store.Submission{}, 3, 0)
	tx, err := b.pool.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), `select from film_steps where task_id = $1 and part = 1 for update`, id)
	must(t, err)
	deleted := make(chan error, 1)
	go func() { deleted <- b.Delete(context.Background(), id, store.DeleteOptions{}) }()
	waittest.Until(t, "the deletion waits for the part", func() bool {
		return b.queryInt(`select count(*) from pg_locks where locktype = 'transactionid' and not granted`) > 0
	})
	if out := b.exchange(b.w, 1); len(out.Claims) != 1 {
		t.Errorf("the claims are %+v", out.Claims)
	}
	must(t, tx.Rollback(t.Context()))
	must(t, <-deleted)
	if n := b.queryInt(`select count(*) from film_attempts a join film_deleted_tasks d on d.id = a.task_id
			where a.started_at > d.deleted_at`); n > 0 {
		t.Errorf("%d claims were made after the deletion", n)
	}
}
