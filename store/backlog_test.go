package store_test

import (
	"testing"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func TestBacklog_CountsWhatWorkersCouldDo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	want := func(stage string, n int) {
		t.Helper()
		var got int
		must(t, b.pool.QueryRow(t.Context(), "select cuelight_video_backlog($1)", stage).Scan(&got))
		if got != n {
			t.Errorf("the backlog of %s is %d, want %d", stage, got, n)
		}
	}
	w := b.worker()
	for range 3 {
		b.submit()
	}
	first, second := b.claim(w, ingest), b.claim(w, ingest)
	want("ingest", 3)
	want("transcode", 0)
	b.exchange(w, 0, []engine.Report{completed(first), completed(second)})
	want("ingest", 1)
	want("transcode", 2)
	b.exchange(w, 0, []engine.Report{division(b.claim(w, transcode), 3)})
	want("transcode", 1+3)
	parts := b.Graph().Queue(transcode, true)
	in := exchangeRequest(w, 0, nil)
	in.FreeSlots, in.ClaimFrom = make([]int, parts+1), make([]bool, parts+1)
	in.FreeSlots[parts], in.ClaimFrom[parts] = 1, true
	out, err := b.Exchange(t.Context(), in)
	if err != nil || len(out.Claims) != 1 {
		t.Fatalf("claimed %+v, %v, want a part", out.Claims, err)
	}
	want("transcode", 1+3)
	b.exchange(w, 0, []engine.Report{completed(out.Claims[0])})
	want("transcode", 1+2)

	must(t, b.Pause(t.Context(), store.Pause{Stage: "ingest"}))
	want("ingest", 0)
	want("metadata", 2)
	must(t, b.Pause(t.Context(), store.Pause{Host: "media1"}))
	want("metadata", 2)
	must(t, b.Pause(t.Context(), store.Pause{}))
	b.claim(w, metadata)
	want("metadata", 1)
	if _, err := b.pool.Exec(t.Context(), "select cuelight_video_backlog('nothing')"); err == nil {
		t.Error("an unknown stage has a backlog")
	}
}
