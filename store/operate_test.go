package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func TestCancel_RevokesRunningClaims(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	siblings := b.exchange(w, 1, []engine.Report{completed(b.claim(w, ingest))}).Claims
	notified := b.listen("cuelight_video")
	if err := b.Cancel(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	b.wantStatuses(id, done, cancelled, cancelled, cancelled, cancelled)
	h := b.history(id)
	if len(h) != 3 || h[1].Outcome != "cancelled" || h[2].Outcome != "cancelled" || h[1].Host != "test" {
		t.Errorf("history is %+v, want both claims as cancelled", h)
	}
	if len(notified()) == 0 {
		t.Error("workers were not notified")
	}
	if lost, err := b.heartbeat(w, siblings...); err != nil || len(lost) != 2 {
		t.Errorf("the heartbeat reports %d lost claims, want 2: %v", len(lost), err)
	}
	out := b.exchange(w, 1, []engine.Report{completed(siblings[0])})
	if len(out.Stale) != 1 || !out.Stale[0].Cancelled || len(out.Claims) != 0 {
		t.Errorf("a report of a cancelled task was accepted: %+v", out)
	}
	if task := b.get(id); task.Status != cancelled || !task.IsFinished(b.Graph()) {
		t.Errorf("task is %s, finished: %t", task.Status, task.IsFinished(b.Graph()))
	}
	if err := b.Cancel(t.Context(), id); err != nil {
		t.Errorf("cancelling twice: %v", err)
	}
	if err := b.Cancel(t.Context(), store.ID{1}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("cancelling an unknown task: %v", err)
	}
}

func TestRetry_RepeatsOnlyMissingStages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	siblings := b.exchange(w, 1, []engine.Report{completed(b.claim(w, ingest))}).Claims
	r := failed(siblings[0], 0)
	r.Dead = true
	b.exchange(w, 1, []engine.Report{r, completed(siblings[1])})
	b.wantStatuses(id, done, dead, done, pending, pending)
	if err := b.Retry(t.Context(), id, ""); err != nil {
		t.Fatal(err)
	}
	b.wantStatuses(id, done, pending, done, pending, pending)
	c := b.claim(w, transcode)
	if c.Attempt != 1 {
		t.Errorf("the attempt is %d, want 1", c.Attempt)
	}
	b.completeAll(w, c)
	if got := b.get(id).Status; got != done {
		t.Errorf("task is %s", got)
	}
}

func TestRetry_FromAStageRevokesLaterClaims(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	siblings := b.exchange(w, 1, []engine.Report{completed(b.claim(w, ingest))}).Claims
	if err := b.Retry(t.Context(), id, "ingest"); err != nil {
		t.Fatal(err)
	}
	b.wantStatuses(id, pending, pending, pending, pending, pending)
	if lost, err := b.heartbeat(w, siblings...); err != nil || len(lost) != 2 {
		t.Errorf("the heartbeat reports %d lost claims, want both: %v", len(lost), err)
	}
	for name, err := range map[string]error{
		"unknown task":  b.Retry(t.Context(), store.ID{1}, ""),
		"unknown stage": b.Retry(t.Context(), id, "nonsense"),
	} {
		if !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrNoStage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRetryAll_RetriesOnlyMatchingTasks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	var ids []store.ID
	for i := range 6 {
		ids = append(ids, b.submitTask(store.Submission{Source: fmt.Sprint("v", i), UserID: fmt.Sprint("u", i%2)}))
	}
	for i, c := range b.exchange(w, 6, nil, ingest).Claims {
		r := failed(c, 0)
		r.Dead = i < 4
		r.Error = fmt.Sprint("disk ", i)
		b.exchange(w, 0, []engine.Report{r})
	}
	r, err := b.RetryAll(t.Context(), store.Filter{Error: "disk 0"}, "", store.RetryAllOptions{})
	if err != nil || r.Retried != 1 {
		t.Errorf("retried %+v by error, %v; want 1", r, err)
	}
	r, err = b.RetryAll(t.Context(), store.Filter{Status: dead, UserID: "u1"}, "", store.RetryAllOptions{})
	if err != nil || r.Retried != 2 {
		t.Errorf("retried %+v of the user's dead tasks, %v; want 2", r, err)
	}
	if got := b.statuses(ids[2])[ingest]; got != dead {
		t.Errorf("a task that does not match became %s", got)
	}
}

func TestOverride_OldTasksAreNeverClaimed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	w := b.worker()
	running, waiting := b.submit(), b.submit()
	held := b.claim(w, ingest)

	by, err := b.Override(ctx, []store.ID{running, waiting}, store.Submission{Source: "better.mp4"})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []store.ID{running, waiting} {
		if got := b.get(id).OverriddenBy; got != by.ID {
			t.Errorf("overridden_by is %s, want %s", got, by.ID)
		}
		if err := b.Retry(ctx, id, ""); !errors.Is(err, store.ErrOverridden) {
			t.Errorf("retry of an overridden task: %v, want ErrOverridden", err)
		}
	}
	if lost, _ := b.heartbeat(w, held); len(lost) != 1 {
		t.Error("the claim of an overridden task is not lost")
	}
	out := b.exchange(w, 9, nil, ingest)
	if len(out.Claims) != 1 || out.Claims[0].Task != by.ID {
		t.Errorf("claims are %+v, want the new task only", out.Claims)
	}

	for name, old := range map[string][]store.ID{"twice": {running}, "unknown": {by.ID, {1}}} {
		_, err := b.Override(ctx, old, store.Submission{Source: "c", RequestID: name})
		if !errors.Is(err, store.ErrOverridden) && !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
		if left, _ := b.List(ctx, store.ListQuery{Filter: store.Filter{RequestID: name}}); len(left) != 0 {
			t.Errorf("%s: the new task exists although no task was overridden", name)
		}
	}
}

func TestList_PagesReturnEachMatchOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	for i := range 25 {
		b.submitTask(store.Submission{Source: fmt.Sprint("s", i), UserID: []string{"", "u"}[i%2]})
	}
	var seen []string
	f := store.Filter{UserID: "u", Limit: 5}
	for {
		page, err := b.List(ctx, store.ListQuery{Filter: f})
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, task := range page {
			seen = append(seen, task.Source)
		}
		f.After = page[len(page)-1].ID
	}
	if len(seen) != 12 || seen[0] != "s23" || seen[11] != "s1" {
		t.Errorf("listed %v, want the 12 odd ones, newest first", seen)
	}
	for name, c := range map[string]struct {
		f    store.Filter
		want int
	}{
		"status":       {store.Filter{Status: pending}, 25},
		"other status": {store.Filter{Status: dead}, 0},
		"stage":        {store.Filter{Stage: "ingest", StageStatus: pending}, 25},
		"source":       {store.Filter{Source: "s1"}, 11},
	} {
		if got, err := b.List(ctx, store.ListQuery{Filter: c.f}); err != nil || len(got) != c.want {
			t.Errorf("%s: %d tasks, %v; want %d", name, len(got), err, c.want)
		}
	}
	if _, err := b.List(ctx, store.ListQuery{Filter: store.Filter{Stage: "nonsense"}}); !errors.Is(err, store.ErrNoStage) {
		t.Errorf("unknown stage: %v", err)
	}
}

func TestFind_AcceptsTheEndOfAnID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submit()
	b.submit()
	for _, text := range []string{id.String(), id.String()[24:], id.String()[30:]} {
		if got, err := b.Find(t.Context(), text); err != nil || got != id {
			t.Errorf("%s finds %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "zz", "%%%%", "abc", "ffffffffffff"} {
		if _, err := b.Find(t.Context(), text); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%q: %v, want ErrNotFound", text, err)
		}
	}
}

func TestFindHeldClaims_ShowsWhatAFailedExchangeDid(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	b.submit()
	w := b.worker()
	c := b.claim(w, ingest)
	held, err := b.FindHeldClaims(ctx, w)
	if err != nil || len(held) != 1 || held[0].Token != c.Token || held[0].Worker != w {
		t.Errorf("held claims are %+v, %v", held, err)
	}
	r := completed(c)
	if got, err := b.FindRecordedOutcomes(ctx, []engine.Report{r}); err != nil || got[c.Token] {
		t.Errorf("the outcome is recorded before it was reported: %v", err)
	}
	b.exchange(w, 0, []engine.Report{r})
	if got, err := b.FindRecordedOutcomes(ctx, []engine.Report{r}); err != nil || !got[c.Token] {
		t.Errorf("the outcome is not recorded after it was reported: %v", err)
	}
}

func TestSetParams_AreThoseOfLaterAttempts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	id := b.submitTask(store.Submission{Source: "a", Params: json.RawMessage(`{"n": 1}`)})
	if err := b.SetParams(t.Context(), id, json.RawMessage(`{"n": 2}`)); err != nil {
		t.Fatal(err)
	}
	if got := b.claim(w, ingest); string(got.Params) != `{"n": 2}` {
		t.Errorf("the claim has the params %s", got.Params)
	}
	if got, err := b.Params(t.Context(), id); string(got) != `{"n": 2}` || err != nil {
		t.Errorf("the task has the params %s, %v", got, err)
	}
	if _, err := b.Params(t.Context(), store.ID{1}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the error for the params of a missing task is %v", err)
	}
	if err := b.SetParams(t.Context(), store.ID{1}, json.RawMessage(`{}`)); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the error for a missing task is %v", err)
	}
}
