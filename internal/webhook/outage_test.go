package webhook

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
)

// A receiver is down for an hour while tasks come and go, and gets everything then.
func TestReceiverThatIsDownForAnHourLosesNothingAndKeepsTheOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	down := receive(t, nil)
	addr := down.Listener.Addr().String()
	h := b.add(down.URL)
	down.Close()
	b.run()

	const tasks = 20
	order := map[store.ID][]int64{} // what was told, by task
	var all []store.ID
	for range tasks {
		id := b.submit()
		all = append(all, id)
	}
	for i := range 12 {
		for _, id := range all {
			b.happen(store.StageStarted, id, "ingest", i+1, "")
		}
		if i%4 == 3 { // twenty minutes pass
			b.until("what is due was tried", func() bool {
				return b.number("select count(*) from cuelight_deliveries where status = 'pending' and run_at > now()") == tasks*(i+2)
			})
			b.exec("update cuelight_deliveries set run_at = run_at - interval '20 min', created_at = created_at - interval '20 min'")
		}
	}
	b.until("all is planned", func() bool { return b.undelivered() == tasks*13 })
	if s, err := b.Stats(t.Context()); err != nil || s.Pending != tasks*13 || s.Oldest < time.Hour {
		t.Errorf("stats are %+v, %v", s, err)
	}
	for _, d := range b.deliveries(h) {
		order[d.Task] = append(order[d.Task], d.Event)
	}
	for id := range order {
		slices.Sort(order[id])
	}

	up := receiveOn(t, addr, nil)
	b.exec("update cuelight_deliveries set run_at = run_at - interval '20 min'")
	b.until("all is delivered", func() bool { return b.undelivered() == 0 })
	arrived := map[store.ID][]int64{}
	for _, m := range up.got() {
		if err := m.verify(h.Secret); err != nil {
			t.Fatal(err)
		}
		arrived[m.Data.Task.ID] = append(arrived[m.Data.Task.ID], m.Data.Event)
	}
	for id, want := range order {
		if !slices.Equal(arrived[id], want) || len(want) != 13 {
			t.Errorf("task %v: %v arrived, want %v", id, arrived[id], want)
		}
	}
}

// What waits for its next attempt is not left to wait for hours when the receiver
// is back.
func TestReceiverThatIsBackGetsAtOnceWhatCouldNotReachIt(t *testing.T) {
	t.Parallel()
	var down atomic.Bool
	down.Store(true)
	b := setup(t, Options{})
	var refused store.ID
	rc := receive(t, func(_ int, r received, w http.ResponseWriter) {
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
	b.until("all have failed", func() bool {
		return b.number("select count(*) from cuelight_deliveries where attempts > 0 and run_at > now()") == 7
	})
	// Long ago, so that nothing but the return of the receiver is a reason to hurry.
	b.exec("update cuelight_deliveries set run_at = now() + interval '5 hours'")
	down.Store(false)
	b.submit()
	b.until("all but one are delivered", func() bool { return b.undelivered() == 1 })
	for _, d := range b.deliveries(h) {
		if waits := d.Task == refused; waits != (d.Status == "pending") || waits && time.Until(d.RunAt) < 4*time.Hour {
			t.Errorf("kept %+v", d)
		}
	}
}

// That nobody delivers shows in the figures.
func TestEventsThatNobodyLooksAtAreCounted(t *testing.T) {
	t.Parallel()
	b, rc := setup(t, Options{}), receive(t, nil)
	b.submit()
	if s, err := b.Stats(t.Context()); err != nil || s != (Stats{}) {
		t.Errorf("without webhooks stats are %+v, %v", s, err)
	}
	h := b.add(rc.URL)
	b.submit()
	b.submit()
	b.exec("update outbox set at = at - interval '1 hour'")
	if s, err := b.Stats(t.Context()); err != nil || s.Unread != 2 || s.Pending != 0 || s.Oldest < time.Hour || s.Oldest > 2*time.Hour {
		t.Errorf("stats are %+v, %v", s, err)
	}
	stop := b.run()
	rc.wait(b, 2)
	b.until("nothing is left", func() bool { return b.undelivered() == 0 })
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

func TestDeletedEventsAreMissedAndSaidToBe(t *testing.T) {
	t.Parallel()
	var seen outcomes
	b := setup(t, Options{Observe: seen.add})
	rc := receive(t, nil)
	b.add(rc.URL)
	b.submit()
	b.exec("update outbox set at = now() - interval '1 year'")
	_, err := b.store.Forget(t.Context(), time.Hour)
	must(t, err)
	kept := b.submit()
	b.run()
	if got := rc.wait(b, 1); got[0].Data.Task.ID != kept {
		t.Errorf("got %s", got[0].text)
	}
	b.until("it is said", func() bool { return seen.text() == "missed, submitted delivered 204" })
}

func TestWebhookThatIsBehindCatchesUpWithoutRepeatingAnythingToOthers(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	rc, other := receive(t, nil), receive(t, nil)
	h := b.add(rc.URL)
	b.add(other.URL)
	must(t, b.Disable(t.Context(), h.ID, "paused"))
	b.run()
	const events = eventsMost + 50 // more than are read in one go
	b.exec("insert into outbox (type) select 'worker_started' from generate_series(1, $1)", events)
	other.wait(b, events)
	must(t, b.Enable(t.Context(), h.ID))
	rc.wait(b, events)
	b.until("nothing is left", func() bool { return b.undelivered() == 0 })
	if len(rc.got()) != events || len(other.got()) != events {
		t.Errorf("got %d and %d", len(rc.got()), len(other.got()))
	}
	if b.number("select count(distinct cursor) from cuelight_webhooks") != 1 {
		t.Error("one is still behind")
	}
}
