package store_test

import (
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
)

func TestSubmissionDelay_LimitsTheTasksOfOneUserPerMinute(t *testing.T) {
	t.Parallel()
	b := setup(t)
	want := func(user string, n int, low, high time.Duration) {
		t.Helper()
		if got, err := b.SubmissionDelay(t.Context(), user, n, 3); err != nil || got < low || got > high {
			t.Errorf("%s must wait %s before %d more, %v; want %s to %s", user, got, n, err, low, high)
		}
	}
	want("anna", 3, 0, 0)
	for i := range 3 {
		id := b.submitTask(store.Submission{Source: "a.mp4", UserID: "anna"})
		b.exec("update tasks set created_at = created_at - $1::interval where id = $2", time.Duration(50-20*i)*time.Second, id)
	}
	b.submitTask(store.Submission{Source: "a.mp4", UserID: "max"})
	want("anna", 1, 5*time.Second, 10*time.Second)  // the first one is 50 s old
	want("anna", 2, 25*time.Second, 30*time.Second) // the second one is 30 s old
	want("max", 2, 0, 0)
	want("max", 3, 55*time.Second, time.Minute)
	b.exec("update tasks set created_at = created_at - interval '10 s' where user_id = 'anna'")
	want("anna", 1, 0, 0)
}
