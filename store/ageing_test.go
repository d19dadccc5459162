package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// sweepAged sweeps, and returns the tasks with steps of the stage that are before those of their priority.
func (b bundle) sweepAged(w store.ID, after time.Duration, stage string) []store.ID {
	b.t.Helper()
	_, err := b.Sweep(b.t.Context(), engine.SweepRequest{Worker: w, MaxAttempts: []int{3, 3, 3, 3, 3}, AgeAfter: after})
	must(b.t, err)
	rows, err := b.pool.Query(b.t.Context(), b.Graph().SQL(`select s.task_id from {steps} s join {tasks} t on t.id = s.task_id
		where s.status = 'ready' and s.rank < -t.priority and s.stage = $1 order by s.task_id`), stage)
	must(b.t, err)
	aged, err := pgx.CollectRows(rows, pgx.RowTo[store.ID])
	must(b.t, err)
	return aged
}

func TestSweep_AgesTasksBehindHigherPriorities(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	first, second := b.submit(), b.submit()
	lower := b.submitTask(store.Submission{Source: "lower", Priority: -1})
	young := b.submit()
	scheduled := b.submit()
	b.exec("update tasks set created_at = now() - interval '2 h' where id <> $1", young)
	b.exec("update steps set ready_at = now() - interval '2 h' where task_id <> $1", young)
	b.exec("update steps set ready_at = now() - interval '1 min' where task_id = $1", scheduled)
	if got := b.sweepAged(w, 0, "ingest"); len(got) > 0 {
		t.Errorf("aged tasks are %v without AgeAfter", got)
	}
	notified := b.listen(b.Graph().Channel("ingest"))
	if got := b.sweepAged(w, time.Hour, "ingest"); !slices.Equal(got, []store.ID{lower}) {
		t.Errorf("aged tasks are %v, want only the one behind tasks of higher priority", got)
	}
	if got := notified(); len(got) != 1 {
		t.Errorf("the notifications are %q, want one of the aged task", got)
	}
	b.submitTask(store.Submission{Source: "urgent", Priority: 5})
	want := []store.ID{first, second, lower}
	if got := b.sweepAged(w, time.Hour, "ingest"); !slices.Equal(got, want) {
		t.Errorf("aged tasks are %v, want %v", got, want)
	}
	out := b.exchange(w, 2, nil, ingest)
	if len(out.Claims) != 2 || out.Claims[0].Task != first || out.Claims[1].Task != second || !out.Claims[0].Aged ||
		!out.MoreReady[ingest] {
		t.Errorf("claims are %+v, want the two oldest aged tasks", out.Claims)
	}
}

// A task waits since one of its parts was started the last time, and gets one slot then.
func TestSweep_AgesOnePartOfATask(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	old, claims := b.divide(store.Submission{}, 3, 1)
	served, servedClaims := b.divide(store.Submission{Priority: 1}, 3, 1)
	young, _ := b.divide(store.Submission{}, 2, 0)
	b.exec(`update film_steps set ready_at = now() - interval '2 h', locked_at = locked_at - interval '2 h' where task_id <> $1`, young)
	b.exec(`update film_steps set locked_at = now() where task_id = $1 and status = 'running'`, served)
	if got := b.sweepAged(b.w, time.Hour, "encode"); !slices.Equal(got, []store.ID{old}) {
		t.Errorf("aged tasks are %v, want one part of %s, which waits behind %s", got, old, served)
	}
	b.divide(store.Submission{Priority: 5}, 4, 0)
	b.exchange(b.w, 0, partReport(servedClaims[0], engine.Completed))
	if got := b.sweepAged(b.w, time.Hour, "encode"); !slices.Equal(got, []store.ID{old}) {
		t.Errorf("aged tasks are %v, want only %s", got, old)
	}
	b.exec(`update film_steps set ready_at = now() - interval '2 h' where task_id = $1 and part > 0`, served)
	want := []store.ID{old, served}
	if got := b.sweepAged(b.w, time.Hour, "encode"); !slices.Equal(got, want) {
		t.Errorf("aged tasks are %v, want %v", got, want)
	}
	b.exchange(b.w, 0, partReport(claims[0], engine.Completed))

	out, err := b.Exchange(t.Context(), engine.ExchangeRequest{
		Worker: b.w, FreeSlots: []int{0, 0, 0, 3}, ClaimFrom: []bool{false, false, false, true},
	})
	if err != nil || len(out.Claims) != 3 {
		t.Fatalf("the claims are %+v, %v", out.Claims, err)
	}
	for i, c := range out.Claims {
		if isAged := c.Task == old || c.Task == served; c.Aged != isAged || i < 2 && c.Part != 2 || i == 2 && (c.Part != 1 || isAged) {
			t.Errorf("the claim is %+v", c)
		}
	}
	if got := b.sweepAged(b.w, time.Hour, "encode"); len(got) != 0 {
		t.Errorf("aged tasks are %v, want none after their claims", got)
	}
}
