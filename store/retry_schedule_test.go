package store_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// A task whose replacement is deleted is not overridden any more, but stays cancelled
// until it is retried.
func TestDelete_OfAReplacementKeepsTheOldTaskCancelled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	ctx := t.Context()
	old := b.submit()
	by, err := b.Override(ctx, []store.ID{old}, store.Submission{Source: "better.mp4"})
	must(t, err)
	b.exec(`delete from tasks where id = $1`, by.ID)
	if task := b.get(old); !task.OverriddenBy.IsZero() || task.Status != cancelled {
		t.Errorf("the old task is %+v", task)
	}
	if out := b.exchange(w, 1, nil, ingest); len(out.Claims) != 0 {
		t.Error("the cancelled task was claimed")
	}
	must(t, b.Retry(ctx, old, ""))
	b.completeAll(w, b.claim(w, ingest))
	b.wantStatuses(old, done, done, done, done, done)
	_, err = b.Override(ctx, []store.ID{old}, store.Submission{Source: "best.mp4"})
	must(t, err)
	b.exec(`delete from tasks`) // both tasks at once
	_, err = b.pool.Exec(ctx, `insert into tasks (source, ingest_status, overridden_by) values ('a', 'cancelled', $1)`,
		by.ID)
	if err == nil {
		t.Error("a task that is overridden by an unknown one was inserted")
	}
}

func TestRetry_AfterACancelKeepsTheSchedule(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	ctx := t.Context()
	at := time.Now().Add(time.Hour).Round(time.Millisecond)
	id := b.submitTask(store.Submission{Source: "a.mp4", NotBefore: at})
	cancelAndRetry := func(from string) *time.Time {
		t.Helper()
		must(t, b.Cancel(ctx, id))
		must(t, b.Cancel(ctx, id)) // twice
		b.wantStatuses(id, cancelled, cancelled, cancelled, cancelled, cancelled)
		if run := b.get(id).Stages[ingest].RunAt; run != nil {
			t.Errorf("the cancelled task waits until %v", run)
		}
		must(t, b.Retry(ctx, id, from))
		return b.get(id).Stages[ingest].RunAt
	}
	if run := cancelAndRetry(""); run == nil || !run.Equal(at) {
		t.Errorf("the retried task waits until %v, want %v", run, at)
	}
	if out := b.exchange(w, 1, nil, ingest); len(out.Claims) != 0 {
		t.Error("the task was claimed before its time")
	}
	events := b.events(0)
	var data struct {
		RunAt time.Time `json:"run_at"`
	}
	must(t, json.Unmarshal(events[len(events)-1].Data, &data))
	if !data.RunAt.Equal(at) {
		t.Errorf("the event's data is %s, want %v", events[len(events)-1].Data, at)
	}
	if run := cancelAndRetry("ingest"); run != nil {
		t.Errorf("retried from ingest it waits until %v", run)
	}
	b.exchange(w, 0, []engine.Report{failed(b.claim(w, ingest), time.Hour)})
	if run := cancelAndRetry(""); run != nil {
		t.Errorf("retried after a failure it waits until %v", run)
	}
}
