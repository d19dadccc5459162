package store_test

import (
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
)

// wantEnds checks which tasks the retentions would delete.
func (b bundle) wantEnds(o store.PruneOptions, want map[store.ID]bool) {
	b.t.Helper()
	var ids []store.ID
	for id := range want {
		ids = append(ids, id)
	}
	ends, err := b.TaskEnds(b.t.Context(), ids)
	must(b.t, err)
	if len(ends) != len(want) {
		b.t.Errorf("%d ends of %d tasks", len(ends), len(want))
	}
	for _, e := range ends {
		if e.IsPrunedBy(o) != want[e.Task] {
			b.t.Errorf("with %+v, %+v is pruned: %t, want %t", o, e, e.IsPrunedBy(o), want[e.Task])
		}
	}
}

func TestTaskEnds_AgreeWithPrune(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	w := b.worker()
	completed, dead, cancelled, old := b.submit(), b.submit(), b.submit(), b.submit()
	b.completeAll(w, b.claim(w, ingest))
	b.makeDead(dead)
	b.makeDead(old)
	must(t, b.Cancel(ctx, cancelled))
	r, err := b.Override(ctx, []store.ID{old}, store.Submission{Source: "b.mp4"})
	must(t, err)
	b.completeAll(w, b.claim(w, ingest))
	open, late := b.submit(), b.submit()
	b.age(2*month, completed, dead, cancelled, r.ID, open, late)
	must(t, b.Cancel(ctx, late))

	b.wantEnds(store.PruneOptions{}, map[store.ID]bool{completed: false, dead: false, old: false})
	b.wantEnds(store.PruneOptions{Dead: month}, map[store.ID]bool{completed: false, dead: true, cancelled: false, old: false, open: false})
	b.wantEnds(store.PruneOptions{Finished: month}, map[store.ID]bool{
		completed: true, dead: false, cancelled: true, old: false, r.ID: false, open: false, late: false,
	})
	b.age(2*month, old)
	finished := map[store.ID]bool{completed: true, dead: false, cancelled: true, old: true, r.ID: true, open: false, late: false}
	b.wantEnds(store.PruneOptions{Finished: month}, finished)
	b.wantPruned(store.PruneOptions{Finished: month}, store.PruneResult{Finished: 4})
	b.wantTasks(dead, open, late)
}

func TestTaskEnds_KnowDeletedTasks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	deleted, purged := b.submit(), b.submit()
	must(t, b.Delete(t.Context(), deleted, store.DeleteOptions{}))
	must(t, b.Delete(t.Context(), purged, store.DeleteOptions{Purge: true}))
	b.exec("update deleted_tasks set deleted_at = deleted_at - interval '1 day'")
	ends, err := b.TaskEnds(t.Context(), []store.ID{deleted, purged, {15: 1}})
	must(t, err)
	if len(ends) != 2 {
		t.Errorf("%+v", ends)
	}
	for _, e := range ends {
		if e.Status != "" || e.Ago < 24*time.Hour || e.IsPurged != (e.Task == purged) {
			t.Errorf("%+v", e)
		}
	}
}
