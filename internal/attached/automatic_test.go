package attached_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/attached"
	"github.com/cuelight/cuelight/store"
)

// published completes all stages of a task.
func published(t *testing.T, st *store.Store, task store.ID) {
	t.Helper()
	execSQL(t, st, `update tasks set ingest_status = 'completed', transcode_status = 'completed', metadata_status = 'completed',
		assemble_status = 'completed', publish_status = 'completed' where id = $1`, task)
}

func execSQL(t *testing.T, st *store.Store, sql string, args ...any) {
	t.Helper()
	if _, err := st.DB().Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

func request(t *testing.T, c attached.Captions, task store.ID) {
	t.Helper()
	if err := c.RequestAutomatic(t.Context(), task, "de"); err != nil {
		t.Fatal(err)
	}
}

// claim returns the next claim, which must be there if want is not 0.
func claim(t *testing.T, c attached.Captions, wantAttempt int) attached.AutomaticClaim {
	t.Helper()
	got, ok, err := c.ClaimAutomatic(t.Context(), time.Minute)
	if err != nil || ok != (wantAttempt > 0) || got.Attempt != wantAttempt {
		t.Fatalf("%+v, %v, %v; want attempt %d", got, ok, err, wantAttempt)
	}
	return got
}

const expireSQL = `update cuelight_automatic_captions set run_at = now() - interval '1 s' where run_at is not null`

func TestAutomatic_AreClaimedOnceWhenTheVideoIsPublished(t *testing.T) {
	t.Parallel()
	st, task := setup(t)
	c := attached.New(st)
	request(t, c, task)
	claim(t, c, 0)
	published(t, st, task)
	first := claim(t, c, 1)
	if first.Task != task || first.Spoken != "de" {
		t.Errorf("%+v", first)
	}
	request(t, c, task) // it is published again meanwhile
	claim(t, c, 0)

	// The process was killed, or had no contact for longer than its claim is valid.
	execSQL(t, st, expireSQL)
	second := claim(t, c, 2)
	for _, wait := range []time.Duration{time.Minute, attached.Never} {
		if err := c.ScheduleAutomatic(t.Context(), first, wait, "late"); !errors.Is(err, attached.ErrClaimLost) {
			t.Errorf("the lost claim can still be scheduled: %v", err)
		}
	}
	if err := c.ScheduleAutomatic(t.Context(), second, attached.Never, ""); err != nil {
		t.Fatal(err)
	}
	if err := c.ScheduleAutomatic(t.Context(), second, time.Minute, ""); !errors.Is(err, attached.ErrClaimLost) {
		t.Errorf("what is done can be scheduled: %v", err)
	}
	request(t, c, task)
	claim(t, c, 0)
}

func TestAutomatic_AreTriedSomeTimesUntilTheyAreRequestedAgain(t *testing.T) {
	t.Parallel()
	st, task := setup(t)
	c := attached.New(st)
	published(t, st, task)
	request(t, c, task)
	for n := 1; n <= attached.MaxAutomaticAttempts; n++ {
		got := claim(t, c, n)
		if err := c.ScheduleAutomatic(t.Context(), got, time.Hour, "it failed"); err != nil {
			t.Fatal(err)
		}
		claim(t, c, 0)
		request(t, c, task) // changes nothing
		claim(t, c, 0)
		execSQL(t, st, expireSQL)
	}
	claim(t, c, 0)
	request(t, c, task)
	last := claim(t, c, 1)

	// A process that stops gives its attempt back.
	last.Attempt--
	if err := c.ScheduleAutomatic(t.Context(), last, 0, "stopped"); err != nil {
		t.Fatal(err)
	}
	claim(t, c, 1)
}
