package ops

import (
	"context"
	"errors"
	"testing"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/access"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
)

func TestActions_AreCommittedWithTheirEntry(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers, operators.SQL))
	st := store.New(pool, store.Video())
	actions := Actions{Store: st, Authorize: func(context.Context, access.Scope) (string, error) { return "anna", nil }}
	r, err := st.Submit(t.Context(), store.Submission{Source: "a.mp4"})
	if err != nil {
		t.Fatal(err)
	}
	want := func(act string, status store.Status, entries int) {
		t.Helper()
		task, err := st.Get(t.Context(), r.ID)
		all, listErr := operators.Audits(t.Context(), pool, 0, 0)
		if err := errors.Join(err, listErr); err != nil || task.Status != status || len(all) != entries {
			t.Errorf("after %s the task is %s, with the entries %+v: %v", act, task.Status, all, err)
		}
	}
	exec := func(sql string) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if err := actions.Cancel(t.Context(), store.ID{15: 1}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("an unknown task is cancelled: %v", err)
	}
	want("an action that failed", store.StatusPending, 0)
	exec("alter table cuelight_audit add constraint none check (actor <> 'anna')")
	if err := actions.Cancel(t.Context(), r.ID); err == nil {
		t.Error("an action is committed without its entry")
	}
	want("an entry that failed", store.StatusPending, 0)
	exec("alter table cuelight_audit drop constraint none")
	if err := actions.Cancel(t.Context(), r.ID); err != nil {
		t.Error(err)
	}
	want("both", store.StatusCancelled, 1)
}
