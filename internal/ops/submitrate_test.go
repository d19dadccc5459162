package ops

import (
	"testing"
	"time"

	"github.com/cuelight/cuelight"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
)

func TestSubmissionDelay_LimitsTheTasksOfOneUserPerMinute(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.SQL(cuelight.Schema, cuelight.Triggers))
	st := store.New(pool, store.Video())
	submit := func(user string) store.ID {
		t.Helper()
		r, err := st.Submit(t.Context(), store.Submission{Source: "a.mp4", UserID: user})
		if err != nil {
			t.Fatal(err)
		}
		return r.ID
	}
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	want := func(user string, n int, low, high time.Duration) {
		t.Helper()
		if got, err := SubmissionDelay(t.Context(), st, user, n, 3); err != nil || got < low || got > high {
			t.Errorf("%s must wait %s before %d more, %v; want %s to %s", user, got, n, err, low, high)
		}
	}
	want("anna", 3, 0, 0)
	for i := range 3 {
		exec("update tasks set created_at = created_at - $1::interval where id = $2",
			time.Duration(50-20*i)*time.Second, submit("anna"))
	}
	submit("max")
	want("anna", 1, 5*time.Second, 10*time.Second)  // the first one is 50 s old
	want("anna", 2, 25*time.Second, 30*time.Second) // the second one is 30 s old
	want("max", 2, 0, 0)
	want("max", 3, 55*time.Second, time.Minute)
	exec("update tasks set created_at = created_at - interval '10 s' where user_id = 'anna'")
	want("anna", 1, 0, 0)
}
