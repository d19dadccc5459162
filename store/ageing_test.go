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
