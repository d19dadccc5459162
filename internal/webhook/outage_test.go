package webhook

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
)

// A receiver that is down for an hour then gets everything.
func TestRun_DeliversEverythingInOrderAfterAnOutage(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	down := newReceiver(t, nil)
	addr := down.Listener.Addr().String()
	h := b.add(down.URL)
	down.Close()
	b.run()

	const tasks = 20
	order := map[store.ID][]int64{} // event ids by task
	var all []store.ID
	for range tasks {
		id := b.submit()
		all = append(all, id)
	}
	for i := range 12 {
		for _, id := range all {
			b.addEvent(store.StageStarted, id, "ingest", i+1, "")
		}
		if i%4 == 3 { // twenty minutes pass
			waittest.Until(b.t, "each due delivery was attempted", func() bool {
				return b.count("select count(*) from cuelight_deliveries where status = 'pending' and run_at > now()") ==
					tasks*(i+2)
			})
			b.exec(`update cuelight_deliveries
				set run_at = run_at - interval '20 min', created_at = created_at - interval '20 min'`)
		}
	}
	b.waitForPending(tasks * 13)
	if s, err := b.Stats(t.Context()); err != nil || s.Pending != tasks*13 || s.OldestAge < time.Hour {
		t.Errorf("stats are %+v, %v", s, err)
	}
	for _, d := range b.deliveries(h) {
		order[d.Task] = append(order[d.Task], d.Event)
	}
	for id := range order {
		slices.Sort(order[id])
	}

	up := newReceiverOn(t, addr, nil)
	b.exec("update cuelight_deliveries set run_at = run_at - interval '20 min'")
	b.waitForPending(0)
	arrived := map[store.ID][]int64{}
	for _, m := range up.requests() {
		if err := m.verify(h.Secret); err != nil {
			t.Fatal(err)
		}
		arrived[m.Data.Task.ID] = append(arrived[m.Data.Task.ID], m.Data.EventID)
	}
	for id, want := range order {
		if !slices.Equal(arrived[id], want) || len(want) != 13 {
			t.Errorf("task %v: %v arrived, want %v", id, arrived[id], want)
		}
	}
}

// The deliveries do not wait for hours for their next attempts.
func TestRun_RetriesUnreachedDeliveriesWhenTheReceiverRecovers(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	down.Store(true)
	b := setup(t, Options{})
	var refused store.ID
	rc := newReceiver(t, func(_ int, r request, w http.ResponseWriter) {
		switch {
		case r.Data.Task.ID == refused:
			w.WriteHeader(http.StatusBadRequest)
		case down.Load():
			w.WriteHeader(http.StatusBadGateway)
		}
	})
	h := b.add(rc.URL)
	refused = b.submit()
	for range 6 {
		b.submit()
	}
	b.run()
	waittest.Until(b.t, "all have failed", func() bool {
		return b.count("select count(*) from cuelight_deliveries where attempts > 0 and run_at > now()") == 7
	})
	// Only the recovery makes them due.
	b.exec("update cuelight_deliveries set run_at = now() + interval '5 hours'")
	down.Store(false)
	b.submit()
	b.waitForPending(1)
	for _, d := range b.deliveries(h) {
		if waits := d.Task == refused; waits != (d.Status == "pending") || waits && time.Until(d.RunAt) < 4*time.Hour {
			t.Errorf("the row is %+v", d)
		}
	}
}

// A broken application answers with server errors. Another daemon may notice its recovery.
func TestRun_RetriesServerErrorsWhenTheReceiverRecovers(t *testing.T) {
	t.Parallel()
	var healthy atomic.Bool
	b := setup(t, Options{})
	rc := newReceiver(t, func(_ int, _ request, w http.ResponseWriter) {
		if !healthy.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	h := b.add(rc.URL, "submitted", "completed")
	for range 4 {
		id := b.submit()
		b.addEvent(store.TaskCompleted, id, "", 0, "")
	}
	stop := b.run()
	waittest.Until(b.t, "all have failed", func() bool {
		return b.count("select count(*) from cuelight_deliveries where attempts > 0 and run_at > now()") == 4
	})
	stop()
	b.exec("update cuelight_deliveries set run_at = now() + interval '5 hours'")
	// A delivery after many attempts waits: the event itself may be the cause.
	poison := b.submit()
	b.exec(`insert into cuelight_deliveries (webhook_id, event_id, type, task_id, payload, attempts, response, run_at)
		values ($1, 1, 'submitted', $2, '{}', 6, 500, now() + interval '5 hours')`, h.ID, poison)
	healthy.Store(true)
	b.start(b.newWebhooks(Options{}))
	b.submit()
	b.waitForPending(2)
	for _, d := range b.deliveries(h) {
		if (d.Status == "pending") != (d.Task == poison) {
			t.Errorf("the row is %+v", d)
		}
	}
}

// The statistics show that no process delivers.
func TestStats_CountsUnreadEvents(t *testing.T) {
	t.Parallel()
	b, rc := setup(t, Options{}), newReceiver(t, nil)
	b.submit()
	if s, err := b.Stats(t.Context()); err != nil || s != (Stats{}) {
		t.Errorf("without webhooks stats are %+v, %v", s, err)
	}
	h := b.add(rc.URL)
	b.submit()
	b.submit()
	b.exec("update outbox set at = at - interval '1 hour'")
	s, err := b.Stats(t.Context())
	if err != nil || s.Unread != 2 || s.Pending != 0 || s.OldestAge < time.Hour || s.OldestAge > 2*time.Hour {
		t.Errorf("stats are %+v, %v", s, err)
	}
	stop := b.run()
	rc.waitForRequests(b, 2)
	b.waitForPending(0)
	stop()
	if s, err := b.Stats(t.Context()); err != nil || s != (Stats{}) {
		t.Errorf("stats are %+v, %v", s, err)
	}
	b.submit()
	must(t, b.Disable(t.Context(), h.ID, ""))
	if s, err := b.Stats(t.Context()); err != nil || s != (Stats{}) {
		t.Errorf("with a webhook that is disabled stats are %+v, %v", s, err)
	}
}

func TestRun_ReportsMissedEvents(t *testing.T) {
	t.Parallel()
	var seen resultLog
	b := setup(t, Options{OnDelivery: seen.add})
	rc := newReceiver(t, nil)
	b.add(rc.URL)
	b.submit()
	b.exec("update outbox set at = now() - interval '1 year'")
	_, _, err := b.store.PruneEvents(t.Context(), time.Hour)
	must(t, err)
	kept := b.submit()
	b.run()
	if got := rc.waitForRequests(b, 1); got[0].Data.Task.ID != kept {
		t.Errorf("got %s", got[0].body)
	}
	waittest.Until(b.t, "the deliveries are reported", func() bool { return seen.text() == "missed, submitted delivered 204" })
}

// brokenStore cannot read the events before until.
type brokenStore struct {
	*store.Store
	until int64
}

// Events fails for events before until.
func (s brokenStore) Events(ctx context.Context, q store.EventQuery) ([]store.Event, error) {
	if q.After < s.until {
		return nil, errSevered
	}
	return s.Store.Events(ctx, q)
}

// Even a lagging webhook that cannot continue does not delay others.
func TestRun_LaggingWebhookDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	rc, other := newReceiver(t, nil), newReceiver(t, nil)
	h := b.add(rc.URL)
	must(t, b.Disable(t.Context(), h.ID, "paused"))
	b.submit()
	last, err := b.store.EventWatermark(t.Context())
	must(t, err)
	b.add(other.URL)
	must(t, b.Enable(t.Context(), h.ID))
	errs := make(chan error, 10)
	b.start(b.newWebhooks(Options{Store: brokenStore{b.store, last}, OnError: func(err error) { errs <- err }}))
	if err := <-errs; !errors.Is(err, errSevered) {
		t.Errorf("OnError got %v", err)
	}
	for n := range 3 {
		b.submit()
		other.waitForRequests(b, n+1)
	}
	if got := len(rc.requests()); got != 0 || len(errs) != 0 {
		t.Errorf("it got %d requests; %d more errors", got, len(errs))
	}
}

func TestSplitByCursor_ChoosesLaggingWebhooksAtRandom(t *testing.T) {
	t.Parallel()
	at := func(cursors ...int64) (all []endpoint) {
		for _, c := range cursors {
			all = append(all, endpoint{cursor: c})
		}
		return all
	}
	if current, lagging := splitByCursor(at(7, 7)); len(current) != 2 || len(lagging) != 0 {
		t.Errorf("for equal cursors: %v, %v", current, lagging)
	}
	seen := map[string]bool{}
	for len(seen) < 2 { // endless if one of them is never chosen
		current, lagging := splitByCursor(at(9, 1, 5, 5))
		if len(current) != 1 || current[0].cursor != 9 {
			t.Fatalf("current are %v", current)
		}
		var cursors []int64
		for _, h := range lagging {
			cursors = append(cursors, h.cursor)
		}
		text := fmt.Sprint(cursors)
		if text != "[1 5 5]" && text != "[5 5]" {
			t.Fatalf("lagging are %s", text)
		}
		seen[text] = true
	}
}

func TestRun_LaggingWebhookCatchesUpWithoutDuplicatesForOthers(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	rc, other := newReceiver(t, nil), newReceiver(t, nil)
	h := b.add(rc.URL)
	b.add(other.URL)
	must(t, b.Disable(t.Context(), h.ID, "paused"))
	b.run()
	const events = maxEventsPerRead + 50 // more than one read returns
	b.exec("insert into outbox (type) select 'worker_started' from generate_series(1, $1)", events)
	other.waitForRequests(b, events)
	must(t, b.Enable(t.Context(), h.ID))
	rc.waitForRequests(b, events)
	b.waitForPending(0)
	if len(rc.requests()) != events || len(other.requests()) != events {
		t.Errorf("got %d and %d", len(rc.requests()), len(other.requests()))
	}
	if b.count("select count(distinct cursor) from cuelight_webhooks") != 1 {
		t.Error("one still lags")
	}
}
