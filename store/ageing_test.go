package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func TestSweep_FindsAgedTasks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	first, second := b.submit(), b.submit()
	lower := b.submitTask(store.Submission{Source: "lower", Priority: -1})
	young := b.submit()
	scheduled := b.submit()
	b.exec("update tasks set created_at = now() - interval '2 h' where id <> $1", young)
	b.exec("update tasks set ready_at = now() - interval '1 min' where id = $1", scheduled)
	aged := func(after time.Duration) []store.ID {
		t.Helper()
		out, err := b.Sweep(t.Context(), engine.SweepRequest{Worker: w, MaxAttempts: []int{3, 3, 3, 3, 3}, AgeAfter: after})
		if err != nil {
			t.Fatal(err)
		}
		if out.Aged == nil {
			return nil
		}
		return out.Aged[ingest]
	}
	if got := aged(time.Hour); !slices.Equal(got, []store.ID{lower}) {
		t.Errorf("aged tasks are %v, want only the one behind tasks of higher priority", got)
	}
	b.submitTask(store.Submission{Source: "urgent", Priority: 5})
	want := []store.ID{first, second, lower}
	if got := aged(time.Hour); !slices.Equal(got, want) {
		t.Errorf("aged tasks are %v, want %v", got, want)
	}
	if got := aged(0); got != nil {
		t.Errorf("aged tasks are %v without AgeAfter", got)
	}

	in := exchangeRequest(w, 2, nil, ingest)
	in.Aged = [][]store.ID{want, nil, nil, nil, nil}
	out, err := b.Exchange(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Claims) != 2 || out.Claims[0].Task != first || out.Claims[1].Task != second || !out.Claims[0].Aged ||
		!out.MoreReady[ingest] {
		t.Errorf("claims are %+v, want the two oldest aged tasks", out.Claims)
	}
}

// A task waits since one of its parts was started the last time, and gets one slot then.
func TestSweep_FindsTasksWithAgedParts(t *testing.T) {
	t.Parallel()
	b := setupParts(t)
	old, claims := b.divide(store.Submission{}, 3, 1)
	served, servedClaims := b.divide(store.Submission{Priority: 1}, 3, 1)
	young, _ := b.divide(store.Submission{}, 2, 0)
	aged := func(after time.Duration) []store.ID {
		t.Helper()
		out, err := b.Sweep(t.Context(), engine.SweepRequest{Worker: b.w, MaxAttempts: []int{3, 3, 3}, AgeAfter: after})
		if err != nil {
			t.Fatal(err)
		}
		return out.Aged[parts]
	}
	b.exec(`update film_parts set ready_at = now() - interval '2 h', locked_at = locked_at - interval '2 h' where task_id <> $1`, young)
	b.exec(`update film_parts set locked_at = now() where task_id = $1 and status = 'inprogress'`, served)
	if got := aged(time.Hour); !slices.Equal(got, []store.ID{old}) {
		t.Errorf("aged tasks are %v, want only %s, which waits behind %s", got, old, served)
	}
	b.divide(store.Submission{Priority: 5}, 4, 0)
	b.exchange(b.w, 0, partReport(servedClaims[0], engine.Completed))
	if got := aged(time.Hour); !slices.Equal(got, []store.ID{old}) {
		t.Errorf("aged tasks are %v, want only %s", got, old)
	}
	b.exec(`update film_parts set ready_at = now() - interval '2 h' where task_id = $1`, served)
	want := []store.ID{old, served}
	if got := aged(time.Hour); !slices.Equal(got, want) {
		t.Errorf("aged tasks are %v, want %v", got, want)
	}
	b.exchange(b.w, 0, partReport(claims[0], engine.Completed))

	out, err := b.Exchange(t.Context(), engine.ExchangeRequest{
		Worker: b.w, FreeSlots: []int{0, 0, 0, 3}, ClaimFrom: []bool{false, false, false, true},
		Aged: [][]store.ID{nil, nil, nil, want},
	})
	if err != nil || len(out.Claims) != 3 {
		t.Fatalf("the claims are %+v, %v", out.Claims, err)
	}
	for i, c := range out.Claims {
		if isAged := c.Task == old || c.Task == served; c.Aged != isAged || i < 2 && c.Part != 2 || i == 2 && (c.Part != 1 || isAged) {
			t.Errorf("the claim is %+v", c)
		}
	}
	if got := aged(time.Hour); len(got) != 0 {
		t.Errorf("aged tasks are %v, want none after their claims", got)
	}
}
