package store_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func TestSweep_ExpiresWorkersThatMissHeartbeats(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	id, silent, alive := b.submit(), b.worker(), b.worker()
	c := b.claim(silent, ingest)
	b.exec("update workers set heartbeat_at = now() - interval '1 minute' where id = $1", silent)
	b.exec("update steps set locked_at = now() - interval '1 minute'")
	sweep := engine.SweepRequest{Credit: &engine.OutageCredit{}, MaxAttempts: []int{2, 2, 2, 2, 2}}

	out, err := b.Sweep(ctx, sweep)
	if err != nil || out.ExpiredClaims != 1 || !slices.Equal(out.ExpiredWorkers, []store.ID{silent}) ||
		out.First[ingest] == nil {
		t.Fatalf("the sweep returned %+v, %v; want one lost worker and one expired claim", out, err)
	}
	b.wantStatuses(id, failing, pending, pending, pending, pending)
	if _, err := b.heartbeat(silent); !errors.Is(err, store.ErrWorkerUnknown) {
		t.Errorf("a lost worker's heartbeat returned %v", err)
	}
	if out := b.exchange(silent, 0, []engine.Report{completed(c)}); len(out.Stale) != 1 || out.Stale[0].Cancelled {
		t.Error("its late report was accepted, or was stale because of a cancel")
	}
	second := b.claim(alive, ingest)
	if second.Attempt != 2 {
		t.Errorf("the attempt is %d, want 2", second.Attempt)
	}
	if out, err := b.Sweep(ctx, sweep); err != nil || out.ExpiredClaims != 0 {
		t.Errorf("the claim of a worker that is alive expired: %+v, %v", out, err)
	}
	b.exec("update workers set heartbeat_at = now() - interval '1 minute' where id = $1", alive)
	b.exec("update steps set locked_at = now() - interval '1 minute'")
	if out, err := b.Sweep(ctx, sweep); err != nil || out.ExpiredClaims != 1 {
		t.Errorf("the second worker's claim did not expire: %+v, %v", out, err)
	}
	b.wantStatuses(id, dead, pending, pending, pending, pending)
	if h := b.history(id); len(h) != 2 || h[0].Outcome != "expired" || h[1].Outcome != "expired" {
		t.Errorf("history is %+v", h)
	}
}

func TestSweep_ReleasesClaimsOfAStoppedWorker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	c := b.claim(w, ingest)
	if err := b.DeregisterWorker(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	out, err := b.Sweep(t.Context(), engine.SweepRequest{MaxAttempts: []int{1, 1, 1, 1, 1}})
	if err != nil || out.ExpiredClaims != 1 {
		t.Errorf("the claim of a stopped worker was not released: %+v, %v", out, err)
	}
	b.wantStatuses(id, pending, pending, pending, pending, pending)
	if h := b.history(id); len(h) != 1 || h[0].Outcome != "released" || h[0].Token != c.Token {
		t.Errorf("history is %+v", h)
	}
	if second := b.claim(b.worker(), ingest); second.Attempt != 1 {
		t.Errorf("the attempt is %d, want 1", second.Attempt)
	}
}

// A sweep skips locked rows, and reports that it did.
func TestSweep_ReportsLockedRows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.submit()
	w := b.worker()
	b.claim(w, ingest)
	if _, err := b.ExpireWorkers(t.Context(), []store.ID{w}); err != nil {
		t.Fatal(err)
	}
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select from tasks for update"); err != nil {
		t.Fatal(err)
	}
	in := engine.SweepRequest{MaxAttempts: []int{3, 3, 3, 3, 3}}
	if out, err := b.Sweep(t.Context(), in); err != nil || out.ExpiredClaims != 0 || !out.RowsLocked {
		t.Errorf("the sweep returned %+v, %v", out, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, err := b.Sweep(t.Context(), in); err != nil || out.ExpiredClaims != 1 || out.RowsLocked {
		t.Errorf("the sweep returned %+v, %v", out, err)
	}
}

func TestSweep_KeepsAWorkerWithAConcurrentHeartbeat(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	b.claim(w, ingest)
	b.setLastHeartbeat(w, "1 minute")
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.New(tx, b.Graph()).Heartbeat(t.Context(), engine.HeartbeatRequest{Worker: w}); err != nil {
		t.Fatal(err)
	}
	if lost := b.sweepExpired(nil); len(lost) > 0 {
		t.Errorf("expired during its heartbeat: %v", lost)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lost := b.sweepExpired(nil); len(lost) > 0 {
		t.Errorf("expired after its heartbeat: %v", lost)
	}
	b.wantStatuses(id, inprogress, pending, pending, pending, pending)
}

// A thorough sweep finds what nobody announced; a quick one reads nothing that exchanges have passed.
func TestSweep_LooksFromTheStartUnlessItIsQuick(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.submit()
	in := engine.SweepRequest{Worker: b.worker(), MaxAttempts: []int{3, 3, 3, 3, 3}, After: make([]engine.Position, 5)}
	in.After[ingest] = engine.Position{Turn: 1 << 40, Task: store.ID{0xff}}
	for _, quick := range []bool{true, false} {
		in.IsQuick = quick
		out, err := b.Sweep(t.Context(), in)
		must(t, err)
		if found := out.First[ingest] != nil; found == quick {
			t.Errorf("quick %t: the step is found: %t", quick, found)
		}
	}
}
