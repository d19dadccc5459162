package store_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// A task whose replacement is deleted is replaced by nothing: it stays as it
// is until somebody takes it up again.
func TestDeletingAReplacementLeavesWhatItReplacedAtRest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	ctx := t.Context()
	old := b.submit()
	by, err := b.Override(ctx, []store.ID{old}, store.Submission{Source: "better.mp4"})
	must(t, err)
	b.exec(`delete from tasks where id = $1`, by.ID)
	if task := b.get(old); !task.OverriddenBy.IsZero() || task.Status != cancelled {
		t.Errorf("it is %+v", task)
	}
	if out := b.turn(w, 1, nil, ingest); len(out.Claims) != 0 {
		t.Error("it was begun, though nobody asked for it")
	}
	must(t, b.Retry(ctx, old, ""))
	b.finish(w, b.claim(w, ingest))
	b.want(old, done, done, done, done, done)
	_, err = b.Override(ctx, []store.ID{old}, store.Submission{Source: "best.mp4"})
	must(t, err)
	b.exec(`delete from tasks`) // both at once
	if _, err := b.pool.Exec(ctx, `insert into tasks (source, ingest_status, overridden_by) values ('a', 'cancelled', $1)`, by.ID); err == nil {
		t.Error("a task is replaced by one that is not there")
	}
}

func TestRetryAfterACancelKeepsTheSchedule(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	ctx := t.Context()
	at := time.Now().Add(time.Hour).Round(time.Millisecond)
	id := b.submission(store.Submission{Source: "a.mp4", NotBefore: at})
	resume := func(from string) *time.Time {
		t.Helper()
		must(t, b.Cancel(ctx, id))
		must(t, b.Cancel(ctx, id)) // once more, by mistake
		b.want(id, cancelled, cancelled, cancelled, cancelled, cancelled)
		if run := b.get(id).Stages[ingest].RunAt; run != nil {
			t.Errorf("cancelled it waits for %v", run)
		}
		must(t, b.Retry(ctx, id, from))
		return b.get(id).Stages[ingest].RunAt
	}
	if run := resume(""); run == nil || !run.Equal(at) {
		t.Errorf("it waits for %v, want %v", run, at)
	}
	if out := b.turn(w, 1, nil, ingest); len(out.Claims) != 0 {
		t.Error("it begins before its time")
	}
	events := b.events(0)
	var data struct {
		RunAt time.Time `json:"run_at"`
	}
	must(t, json.Unmarshal(events[len(events)-1].Data, &data))
	if !data.RunAt.Equal(at) {
		t.Errorf("the event says %s, want %v", events[len(events)-1].Data, at)
	}
	if run := resume("ingest"); run != nil {
		t.Errorf("asked for by name it waits for %v", run)
	}
	b.turn(w, 0, []engine.Report{failed(b.claim(w, ingest), time.Hour)})
	if run := resume(""); run != nil {
		t.Errorf("what failed waits for %v", run)
	}
}
