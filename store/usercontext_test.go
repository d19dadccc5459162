package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// oddContext is an object that the type jsonb would change.
const oddContext = `{"z": 1, "a": [1.50, 1e3, 12345678901234567890123],  "a": "<é>", "\u00e9": "\ud83d\ude00"}`

func (b bundle) wantEventContexts(id store.ID, want string) {
	b.t.Helper()
	events, err := b.Events(b.t.Context(), store.EventQuery{Task: id})
	must(b.t, err)
	for _, e := range events {
		if string(e.UserContext) != want {
			b.t.Errorf("event %s has the context %s, want %s", e.Type, e.UserContext, want)
		}
	}
}

func TestUserContext_IsReturnedAsItWasGiven(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	one := b.submitTask(store.Submission{Source: "a.mp4", UserContext: raw(oddContext)})
	many, err := b.SubmitAll(ctx, []store.Submission{{Source: "b.mp4", UserContext: raw(oddContext)}, {Source: "c.mp4"}})
	must(t, err)
	w := b.worker()
	b.exchange(w, 0, []engine.Report{completed(b.claim(w, ingest))})
	tasks, err := b.List(ctx, store.ListQuery{OldestFirst: true})
	must(t, err)
	for i, want := range []string{oddContext, oddContext, ""} {
		if string(tasks[i].UserContext) != want || string(b.get(tasks[i].ID).UserContext) != want {
			t.Errorf("task %d has the context %s, want %s", i, tasks[i].UserContext, want)
		}
		b.wantEventContexts(tasks[i].ID, want)
	}
	for _, id := range []store.ID{one, many[0].ID} {
		must(t, b.Delete(ctx, id, store.DeleteOptions{}))
		d, err := b.GetDeleted(ctx, id)
		if err != nil || string(d.UserContext) != oddContext {
			t.Errorf("the deleted task has the context %s, %v", d.UserContext, err)
		}
		b.wantEventContexts(id, oddContext)
		must(t, b.Undelete(ctx, id, ""))
		must(t, b.Retry(ctx, id, "ingest"))
		if got := b.get(id).UserContext; string(got) != oddContext {
			t.Errorf("the restored task has the context %s", got)
		}
	}
}

func TestUserContext_IsAnObjectOfLimitedSize(t *testing.T) {
	t.Parallel()
	b := setup(t)
	longest := `{"a": "` + strings.Repeat("x", store.MaxUserContext-9) + `"}`
	b.submitTask(store.Submission{Source: "a", UserContext: raw(longest)})
	b.exec("insert into tasks (source, user_context) values ('a', $1::text::json)", longest)
	for _, text := range []string{`[]`, `"a"`, `null`, ` 7`, longest + " "} {
		if _, err := b.Submit(t.Context(), store.Submission{Source: "a", UserContext: raw(text)}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("Submit of %.9s returned %v", text, err)
		}
		_, err := b.pool.Exec(t.Context(), "insert into tasks (source, user_context) values ('a', $1::text::json)", text)
		if err == nil || !strings.Contains(err.Error(), "user_context_of_10_kib") {
			t.Errorf("insert of %.9s returned %v", text, err)
		}
	}
	// Readers that use jsonb, or extract a member, would fail.
	for _, text := range []string{`{"a": "\u0000"}`, `{"a": "\ud83d"}`} {
		if _, err := b.Submit(t.Context(), store.Submission{Source: "a", UserContext: raw(text)}); !store.IsRejected(err) {
			t.Errorf("Submit of %s returned %v", text, err)
		}
	}
	for _, text := range []string{`{`, ` `, "{\"a\": \"\xff\"}"} {
		if _, err := b.Submit(t.Context(), store.Submission{Source: "a", UserContext: raw(text)}); !errors.Is(err, store.ErrInvalid) {
			t.Errorf("Submit of %q returned %v", text, err)
		}
	}
}

// As for params, a repeated submission does not compare it, and an overriding task has its own.
func TestUserContext_IsThatOfTheFirstSubmission(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	first := b.submitTask(store.Submission{Source: "a", RequestID: "r", UserContext: raw(`{"n": 1}`)})
	again, err := b.Submit(ctx, store.Submission{Source: "a", RequestID: "r", UserContext: raw(`{"n": 2}`)})
	if err != nil || !again.Existed || string(b.get(first).UserContext) != `{"n": 1}` {
		t.Errorf("%+v, %v, context %s", again, err, b.get(first).UserContext)
	}
	by, err := b.Override(ctx, []store.ID{first}, store.Submission{Source: "b", UserContext: raw(`{"n": 3}`)})
	must(t, err)
	b.wantEventContexts(first, `{"n": 1}`)
	b.wantEventContexts(by.ID, `{"n": 3}`)
}

func TestUserContext_IsPurgedWithItsTask(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	for _, remember := range []string{"", "watch"} {
		id := b.submitTask(store.Submission{Source: "a", RequestID: "watch" + remember, UserContext: raw(`{"n": 1}`)})
		must(t, b.Delete(ctx, id, store.DeleteOptions{Purge: true}))
		_, err := b.ClaimToPurge(ctx, time.Hour)
		must(t, err)
		must(t, b.Purge(ctx, id, remember))
		b.wantEventContexts(id, "")
	}
	var kept int
	must(t, b.pool.QueryRow(ctx, "select count(user_context) from deleted_tasks").Scan(&kept))
	if kept != 0 {
		t.Errorf("%d purged tasks have a context", kept)
	}
}

func TestPrune_KeepsTheContextForEventsUntilThePurge(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.submitTask(store.Submission{Source: "a", UserContext: raw(oddContext)})
	must(t, b.Cancel(t.Context(), id))
	b.age(2*month, id)
	b.wantPruned(store.PruneOptions{Finished: month, HasFiles: true}, store.PruneResult{Finished: 1})
	b.wantEventContexts(id, oddContext)
	d, err := b.GetDeleted(t.Context(), id)
	if err != nil || string(d.UserContext) != oddContext {
		t.Errorf("the deleted task has the context %s, %v", d.UserContext, err)
	}
}
