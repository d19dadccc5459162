package webhook

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
)

func TestRun_DeliversSignedEventsInOrder(t *testing.T) {
	t.Parallel()
	b, rc := setup(t, Options{UserAgent: "Test/1"}), newReceiver(t, nil)
	h := b.add(rc.URL)
	b.run()
	r, err := b.store.Submit(t.Context(), store.Submission{
		Source: "https://user:secret@example.com/a%20b.mp4?token=secret#secret", UserID: "u-7", RequestID: "r-7",
	})
	must(t, err)
	err = b.store.Cancel(t.Context(), r.ID)
	must(t, err)

	got := rc.waitForRequests(b, 2)
	if eventTypes(got) != "submitted cancelled" {
		t.Fatalf("got %s", eventTypes(got))
	}
	for _, m := range got {
		if err := m.verify(h.Secret); err != nil {
			t.Error(err)
		}
		if strings.Contains(m.body, "secret") {
			t.Errorf("sent %s", m.body)
		}
		task := m.Data.Task
		if task == nil || task.ID != r.ID || task.Source != "https://example.com/a%20b.mp4" || task.UserID != "u-7" ||
			task.RequestID != "r-7" {
			t.Errorf("task is %+v", task)
		}
		if m.header.Get("User-Agent") != "Test/1" || m.header.Get("Content-Type") != "application/json" {
			t.Errorf("headers are %v", m.header)
		}
		if m.Data.EventID == 0 || m.Data.Pipeline != "video" || time.Since(m.Timestamp).Abs() > time.Minute {
			t.Errorf("sent %s", m.body)
		}
	}
	last := got[1]
	if last.Data.Task.Status != store.StatusCancelled || !strings.Contains(string(last.Data.Details), "transcode") {
		t.Errorf("sent %s", last.body)
	}
	b.waitForPending(0)
	for _, d := range b.deliveries(h) {
		if d.Status != "delivered" || d.Attempts != 1 || d.Response != 204 || d.FinishedAt == nil ||
			d.Error != "" || d.Task != r.ID {
			t.Errorf("the row is %+v", d)
		}
	}
}

func TestRun_DeliversTheLargestContextUnchanged(t *testing.T) {
	t.Parallel()
	b, rc := setup(t, Options{}), newReceiver(t, nil)
	b.add(rc.URL)
	b.run()
	text := `{"z":"<1>&\u2028` + "\u2028" + `","a":[1.50,1e3,12345678901234567890123],"a":"`
	text += strings.Repeat("x", store.MaxUserContext-len(text)-2) + `"}`
	r, err := b.store.Submit(t.Context(), store.Submission{Source: "a.mp4", UserContext: []byte(text)})
	must(t, err)
	must(t, b.store.Delete(t.Context(), r.ID, store.DeleteOptions{}))
	for _, m := range rc.waitForRequests(b, 2) {
		if !strings.Contains(m.body, `"user_context":`+text) {
			t.Errorf("%s has another context: %s", m.Type, m.body)
		}
	}
}

func TestRun_DeliversOnlyRequestedTypes(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	everything, progress, finished := newReceiver(t, nil), newReceiver(t, nil), newReceiver(t, nil)
	b.add(everything.URL)
	b.add(progress.URL, "progress")
	b.add(finished.URL, "completed", "cancelled")
	b.run()
	task := b.submit()
	b.exec("insert into outbox (type, data) values ('progress', $1::jsonb)",
		`[{"task": "`+task.String()+`", "stage": "transcode", "attempt": 1, "percent": 40, "speed": 2.5}]`)
	must(t, b.Raise(t.Context(), AlertDiskLow, map[string]any{"dir": "/data"}))
	b.addEvent(store.WorkerStarted, store.ID{}, "", 0, `{"host": "a"}`)
	b.addEvent(store.TaskCompleted, task, "", 0, "")

	if got := eventTypes(finished.waitForRequests(b, 1)); got != "completed" {
		t.Errorf("got %s", got)
	}
	got := progress.waitForRequests(b, 1)
	if eventTypes(got) != "progress" || got[0].Data.Stage != "transcode" ||
		!strings.Contains(string(got[0].Data.Details), "2.5") {
		t.Errorf("got %v", got)
	}
	everything.waitForRequests(b, 3)
	b.waitForPending(0)
	seen := map[string]bool{}
	for _, m := range everything.requests() {
		seen[m.Type] = true
	}
	if len(seen) != 3 || !seen["submitted"] || !seen["worker_started"] || !seen["completed"] {
		t.Errorf("without a filter it got %v", seen)
	}
	if len(progress.requests()) != 1 || len(finished.requests()) != 1 {
		t.Errorf("got %s and %s", eventTypes(progress.requests()), eventTypes(finished.requests()))
	}
}

func TestRun_DeliversNothingFromBeforeTheRegistration(t *testing.T) {
	t.Parallel()
	b, rc := setup(t, Options{}), newReceiver(t, nil)
	b.submit()
	b.add(rc.URL)
	second := b.submit()
	b.run()
	rc.waitForRequests(b, 1)
	b.waitForPending(0)
	if got := rc.requests(); len(got) != 1 || got[0].Data.Task.ID != second {
		t.Errorf("got %s", eventTypes(got))
	}
}

func TestRun_RetriesAFailureBeforeLaterEventsOfTheTask(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{schedule: shortSchedule(9)})
	rc := newReceiver(t, func(n int, r request, w http.ResponseWriter) {
		if n <= 4 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	h := b.add(rc.URL)
	task := b.submit()
	b.addEvent(store.TaskCompleted, task, "", 0, "")
	b.run()
	got := rc.waitForRequests(b, 6)
	if eventTypes(got) != "submitted submitted submitted submitted submitted completed" {
		t.Fatalf("got %s", eventTypes(got))
	}
	for _, m := range got {
		if err := m.verify(h.Secret); err != nil {
			t.Error(err)
		}
	}
	if got[0].id() != got[4].id() || got[4].id() == got[5].id() {
		t.Errorf("ids are %s … %s, %s", got[0].id(), got[4].id(), got[5].id())
	}
	b.waitForPending(0)
	d := b.deliveries(h)[0]
	if d.Attempts != 5 || d.Status != "delivered" || d.Error != "" || d.ID.String() != got[0].id() {
		t.Errorf("the row is %+v", d)
	}
}

func TestRun_TasksDoNotDelayEachOther(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	var stuck store.ID
	rc := newReceiver(t, func(_ int, r request, w http.ResponseWriter) {
		if r.Data.Task.ID == stuck {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	h := b.add(rc.URL)
	stuck = b.submit()
	b.addEvent(store.TaskCompleted, stuck, "", 0, "")
	for range 5 {
		b.addEvent(store.TaskCompleted, b.submit(), "", 0, "")
	}
	b.run()
	b.waitForPending(2)
	for _, d := range b.deliveries(h) {
		if waits := d.Task == stuck; waits != (d.Status == "pending") || waits && time.Until(d.RunAt) <= 0 {
			t.Errorf("the row is %+v", d)
		}
	}
}

func TestRun_ContinuesAfterADeadDelivery(t *testing.T) {
	t.Parallel()
	var seen resultLog
	b := setup(t, Options{schedule: shortSchedule(3), OnDelivery: seen.add})
	rc := newReceiver(t, func(_ int, r request, w http.ResponseWriter) {
		if r.Type == "submitted" {
			http.Error(w, "no", http.StatusTeapot)
		}
	})
	h := b.add(rc.URL)
	b.addEvent(store.TaskCompleted, b.submit(), "", 0, "")
	b.run()
	waittest.Until(b.t, "both are finished", func() bool { return b.countPending() == 0 && len(rc.requests()) == 4 })
	all := b.deliveries(h)
	d := all[0]
	if d.Status != "dead" || d.Attempts != 3 || d.Response != http.StatusTeapot ||
		!strings.Contains(d.Error, "418 I'm a teapot") || d.FinishedAt == nil {
		t.Errorf("the row is %+v", d)
	}
	if d := all[1]; d.Status != "delivered" {
		t.Errorf("the row is %+v", d)
	}
	// OnDelivery is called after the result is stored.
	waittest.Equal(t, "the results",
		"submitted failed 418, submitted failed 418, submitted dead 418, completed delivered 200", seen.text)
	if s, err := b.Stats(t.Context()); err != nil || s.Dead != 1 || s.Pending != 0 || s.OldestAge != 0 {
		t.Errorf("stats are %+v, %v", s, err)
	}
	if got := b.get(h.ID); got.Dead != 1 || got.Pending != 0 {
		t.Errorf("listed %+v", got)
	}
}

func TestRun_HangingReceiverDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{Concurrency: 4, PerWebhook: 2, Timeout: 20 * time.Second, Grace: -1})
	release := make(chan struct{})
	hangs := newReceiver(t, func(int, request, http.ResponseWriter) { <-release })
	t.Cleanup(func() { close(release) })
	fine := newReceiver(t, nil)
	slow := b.add(hangs.URL)
	b.add(fine.URL)
	const tasks = 30
	for range tasks {
		b.submit()
	}
	b.run()
	fine.waitForRequests(b, tasks)
	if n := len(hangs.requests()); n != 2 {
		t.Errorf("%d calls are in flight, want 2", n)
	}
	if n := b.get(slow.ID).Pending; n != tasks {
		t.Errorf("%d are pending, want %d", n, tasks)
	}
}

func TestFreeSlots_LimitsFailingReceivers(t *testing.T) {
	t.Parallel()
	d := &deliverer{
		webhooks: New(Options{Concurrency: 8, PerWebhook: 3}), inFlight: map[store.ID]store.ID{},
		health: map[store.ID]*endpointHealth{},
	}
	var hooks []endpoint
	for range 7 {
		hooks = append(hooks, endpoint{id: newID()})
	}
	for _, h := range hooks[:6] {
		d.healthOf(h.id).failures = failuresToFailing
	}
	free := func() (failing, healthy, total int) {
		ids, n, total := d.freeSlots(hooks)
		for i, id := range ids {
			if id == hooks[6].id {
				healthy += n[i]
			} else {
				failing += n[i]
			}
		}
		return failing, healthy, total
	}
	if failing, healthy, total := free(); failing != 4 || healthy != 3 || total != 8 {
		t.Errorf("free slots: failing %d, healthy %d, total %d", failing, healthy, total)
	}
	for _, h := range hooks[:3] {
		d.inFlight[newID()] = h.id
	}
	if failing, healthy, total := free(); failing != 1 || healthy != 3 || total != 5 {
		t.Errorf("with three calls, free slots: failing %d, healthy %d, total %d", failing, healthy, total)
	}
}

func TestRun_DisablesAWebhookThatAnswers410(t *testing.T) {
	t.Parallel()
	var seen resultLog
	b := setup(t, Options{OnDelivery: seen.add})
	rc := newReceiver(t, func(n int, _ request, w http.ResponseWriter) {
		if n == 1 {
			w.WriteHeader(http.StatusGone)
		}
	})
	h := b.add(rc.URL)
	first := b.submit()
	b.run()
	waittest.Until(b.t, "the webhook is disabled", func() bool { return b.get(h.ID).DisabledAt != nil })
	if got := b.get(h.ID); !strings.Contains(got.DisabledReason, "410") || got.Pending != 1 {
		t.Errorf("listed %+v", got)
	}
	waittest.Equal(t, "the results", "submitted gone 410", seen.text)
	if s, err := b.Stats(t.Context()); err != nil || s.Pending != 0 || s.OldestAge != 0 {
		t.Errorf("deliveries of a disabled webhook count: %+v, %v", s, err)
	}
	b.addEvent(store.TaskCompleted, first, "", 0, "")
	must(t, b.Enable(t.Context(), h.ID))
	if got := rc.waitForRequests(b, 3); eventTypes(got) != "submitted submitted completed" {
		t.Errorf("got %s", eventTypes(got))
	}
	if got := b.get(h.ID); got.DisabledAt != nil || got.DisabledReason != "" {
		t.Errorf("listed %+v", got)
	}
}

func TestHasDue_CountsWhatIsToBeSentNow(t *testing.T) {
	t.Parallel()
	called, release := make(chan struct{}), make(chan struct{})
	b := setup(t, Options{schedule: []time.Duration{time.Hour}})
	rc := newReceiver(t, func(_ int, _ request, w http.ResponseWriter) {
		called <- struct{}{}
		<-release
		w.WriteHeader(http.StatusInternalServerError)
	})
	b.add(rc.URL, "submitted")
	hasDue := func() bool {
		isDue, err := b.HasDue(t.Context())
		must(t, err)
		return isDue
	}
	if hasDue() {
		t.Error("a delivery is due before there are any")
	}
	b.run()
	b.submit()
	<-called
	if !hasDue() {
		t.Error("no delivery is due during the call")
	}
	close(release)
	waittest.Until(t, "the next attempt is due in an hour", func() bool { return !hasDue() })
}
