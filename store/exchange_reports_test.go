package store_test

import (
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func TestResult_IsStoredUnchanged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	r := completed(b.claim(w, ingest))
	r.Result = raw(`{"file": "x", "bytes": 12345678901234567890}`)
	b.exchange(w, 0, []engine.Report{r})
	got, err := b.Result(t.Context(), id, "ingest")
	if err != nil || string(got) != `{"file": "x", "bytes": 12345678901234567890}` {
		t.Errorf("result is %s, %v", got, err)
	}
}

func TestExchange_CleansErrorTexts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	r := failed(b.claim(w, ingest), time.Second)
	r.Error = "bad \xff bytes and \x00"
	b.exchange(w, 0, []engine.Report{r})
	if got := b.history(id)[0].Error; got != "bad \uFFFD bytes and \uFFFD" {
		t.Errorf("error is %q", got)
	}
}

func TestExchange_AppliesAReportSentWithAStaleOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	old := b.claim(w, ingest)
	if err := b.Retry(t.Context(), id, "ingest"); err != nil {
		t.Fatal(err)
	}
	held := b.claim(w, ingest)
	out := b.exchange(w, 0, []engine.Report{completed(held), completed(old), completed(held)})
	if len(out.Stale) != 1 || out.Stale[0].Token != old.Token {
		t.Errorf("Stale is %+v, want the old claim", out.Stale)
	}
	b.wantStatuses(id, done, pending, pending, pending, pending)
}

func TestExchange_SkipsLockedRows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	w := b.worker()
	b.submit()
	b.submit()
	claims := b.exchange(w, 2, nil, ingest).Claims
	tx, err := b.pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "select from tasks where id = $1 for update", claims[0].Task); err != nil {
		t.Fatal(err)
	}
	reports := []engine.Report{
		completed(claims[0]), completed(claims[1]), failed(engine.Claim{Task: store.ID{9}, Token: store.ID{9}}, 0),
	}
	out := b.exchange(w, 0, reports)
	if len(out.Locked) != 1 || out.Locked[0].Task != claims[0].Task {
		t.Errorf("Locked is %+v, want the first task", out.Locked)
	}
	if len(out.Stale) != 1 || out.Stale[0].Task != (store.ID{9}) {
		t.Errorf("Stale is %+v, want the unknown task", out.Stale)
	}
	b.wantStatuses(claims[1].Task, done, pending, pending, pending, pending)
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if out := b.exchange(w, 0, out.Locked); len(out.Locked)+len(out.Stale) != 0 {
		t.Errorf("the report, sent again, returned %+v", out)
	}
}
