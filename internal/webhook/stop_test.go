package webhook

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
)

func TestRun_FinishesCallsAndReleasesTheLease(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{Grace: 10 * time.Second, leaseDuration: time.Hour})
	arrived, release := make(chan struct{}), make(chan struct{})
	rc := newReceiver(t, func(n int, _ request, w http.ResponseWriter) {
		if n == 1 {
			close(arrived)
			<-release
		}
	})
	h := b.add(rc.URL)
	b.submit()
	stop := b.run()
	<-arrived
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	close(release)
	<-stopped
	if d := b.deliveries(h)[0]; d.Status != "delivered" {
		t.Errorf("the row is %+v", d)
	}
	// The lease of an hour is released, so another process can deliver.
	b.start(b.newWebhooks(Options{}))
	b.submit()
	rc.waitForRequests(b, 2)
}

// noopDB executes nothing.
type noopDB struct{ store.DB }

// Exec does nothing.
func (noopDB) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, nil
}

func TestStop_WaitsForTheGrace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ grace, call, want time.Duration }{
		{0, 4 * time.Second, 4 * time.Second}, // the default is five
		{3 * time.Second, 4 * time.Second, 3 * time.Second},
		{-1, 4 * time.Second, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			calling, abort := context.WithCancel(t.Context())
			defer abort()
			d := deliverer{webhooks: New(Options{DB: noopDB{}, Grace: c.grace}), finished: make(chan attemptResult, 1)}
			r := attemptResult{dueDelivery: dueDelivery{id: newID()}, response: response{aborted: true}}
			d.inFlight = map[store.ID]store.ID{r.id: newID()}
			d.calls.Go(func() {
				_ = ctxsleep.For(calling, c.call)
				d.finished <- r
			})
			begun := time.Now()
			d.stop(t.Context(), abort)
			if took := time.Since(begun); took != c.want {
				t.Errorf("with a grace of %v it ended after %v, want %v", c.grace, took, c.want)
			}
		})
	}
}

func TestRun_DoesNotCountAnAbortedCall(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{Grace: -1})
	arrived, release := make(chan struct{}, 1), make(chan struct{})
	rc := newReceiver(t, func(int, request, http.ResponseWriter) { arrived <- struct{}{}; <-release })
	h := b.add(rc.URL)
	b.submit()
	stop := b.run()
	<-arrived
	stop()
	close(release)
	if d := b.deliveries(h)[0]; d.Status != "pending" || d.Attempts != 0 || d.Error != "" {
		t.Errorf("the row is %+v", d)
	}
}

func TestRun_EndsTheGraceOnAbort(t *testing.T) {
	t.Parallel()
	abort := make(chan struct{})
	b := setup(t, Options{Grace: time.Hour, Timeout: time.Hour, Abort: abort})
	arrived, release := make(chan struct{}, 1), make(chan struct{})
	rc := newReceiver(t, func(int, request, http.ResponseWriter) { arrived <- struct{}{}; <-release })
	h := b.add(rc.URL)
	b.submit()
	stop := b.run()
	<-arrived
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	close(abort)
	<-stopped
	close(release)
	if d := b.deliveries(h)[0]; d.Status != "pending" || d.Attempts != 0 {
		t.Errorf("the row is %+v", d)
	}
	if n := b.count("select count(*) from cuelight_leases"); n != 0 {
		t.Error("the lease was not released")
	}
}

func TestRun_DeletesFinishedDeliveries(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	h := b.add("https://example.com/")
	for i, row := range []struct{ status, age string }{
		{"delivered", "8 days"}, {"suppressed", "8 days"}, {"dead", "31 days"},
		{"delivered", "6 days"}, {"suppressed", "6 days"}, {"dead", "8 days"}, {"pending", "90 days"},
	} {
		b.exec(`insert into cuelight_deliveries (webhook_id, event_id, type, payload, status, created_at, run_at, finished_at)
			values ($1, $2, 'completed', '{}', $3, now() - $4::interval, now() + interval '1 day',
			  case when $3 <> 'pending' then now() - $4::interval end)`,
			h.ID, i, row.status, row.age)
	}
	b.run()
	waittest.Until(b.t, "three deliveries were deleted", func() bool { return len(b.deliveries(h)) == 4 })
	for _, d := range b.deliveries(h) {
		if d.Event < 3 {
			t.Errorf("the row is %+v", d)
		}
	}
}

func TestCleanup_KeepsARedeliveredDelivery(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	h := b.add("https://example.com/")
	b.exec(`insert into cuelight_deliveries (webhook_id, event_id, type, payload, status, finished_at)
		values ($1, 1, 'completed', '{}', 'dead', now() - interval '31 days')`, h.ID)
	swept := make(chan error, 1)
	must(t, pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		in := Webhooks{options: b.options, db: tx}
		if err := in.Redeliver(t.Context(), b.deliveries(h)[0].ID); err != nil {
			return err
		}
		go func() {
			_, err := b.pool.Exec(t.Context(), fmt.Sprintf(deleteFinishedSQL, "dead"), "video", 3600.0, maxDeletedRows)
			swept <- err
		}()
		waittest.Until(b.t, "the deletion waits for a lock",
			func() bool { return b.count("select count(*) from pg_locks where not granted") > 0 })
		return nil
	}))
	must(t, <-swept)
	if all := b.deliveries(h); len(all) != 1 || all[0].Status != "pending" {
		t.Errorf("the row is %+v", all)
	}
}

func TestRun_DeliversWhileCleanupFails(t *testing.T) {
	t.Parallel()
	b, rc := setup(t, Options{}), newReceiver(t, nil)
	b.add(rc.URL)
	b.exec("create function refuse() returns trigger language plpgsql as 'begin raise exception $$no$$; end'")
	b.exec("create trigger refuse before delete on cuelight_deliveries for each statement execute function refuse()")
	errs := make(chan error, 10)
	b.start(b.newWebhooks(Options{OnError: func(err error) { errs <- err }}))
	for n := range 3 {
		b.submit()
		rc.waitForRequests(b, n+1)
	}
	if err := <-errs; err == nil || !strings.Contains(err.Error(), "delete finished deliveries") {
		t.Errorf("OnError got %v", err)
	}
	if err := <-errs; err != nil { // until the next cleanup
		t.Errorf("OnError got %v", err)
	}
}

func TestRun_PollsImmediatelyAfterAWake(t *testing.T) {
	t.Parallel()
	wake := make(chan struct{}, 1)
	b, rc := setup(t, Options{Wake: wake}), newReceiver(t, nil)
	b.options.pollInterval = time.Hour
	b.add(rc.URL)
	b.run()
	waittest.Until(b.t, "a leader is elected", func() bool { return b.count("select count(*) from cuelight_leases") == 1 })
	b.submit()
	wake <- struct{}{}
	rc.waitForRequests(b, 1)
	close(wake) // a closed channel is harmless
}
