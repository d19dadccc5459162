package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
)

func TestAlerts_AreSentOnlyToWebhooksThatRequestThem(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	all, lost, none := newReceiver(t, nil), newReceiver(t, nil), newReceiver(t, nil)
	b.add(all.URL, "alert")
	b.add(lost.URL, AlertWorkerLost, "worker_lost")
	b.add(none.URL)
	task := b.submit()
	b.addEvent(store.WorkerLost, store.ID{}, "", 0, `{"host": "media-1", "pid": 7}`)
	b.addEvent(store.StageDead, task, "transcode", 2, `{"error": "no"}`)
	b.addEvent(store.AttemptFailed, task, "ingest", 2, "")
	b.addEvent(store.AttemptExpired, task, "ingest", 3, `{"error": "went away"}`)
	must(t, b.Raise(t.Context(), AlertListenerDown, nil))
	must(t, b.Raise(t.Context(), AlertDiskLow, map[string]any{"dir": "/data", "free_bytes": 5}))
	b.run()
	got := all.waitForRequests(b, 5)
	byType := map[string]request{}
	for _, m := range got {
		byType[m.Type] = m
	}
	for typ, want := range map[string]string{
		AlertWorkerLost: "media-1", AlertDead: `"stage":"transcode"`, AlertRepeatedFailure: "went away",
		AlertListenerDown: "listener_down", AlertDiskLow: "/data",
	} {
		if m := byType[typ]; !strings.Contains(m.body, want) || strings.Contains(m.body, "suppressed") {
			t.Errorf("%s: %s", typ, m.body)
		}
	}
	got = lost.waitForRequests(b, 2)
	names := []string{got[0].Type, got[1].Type}
	slices.Sort(names)
	if fmt.Sprint(names) != "[alert.worker_lost worker_lost]" {
		t.Errorf("got %v", names)
	}
	b.waitForPending(0)
	if len(all.requests()) != 5 || len(lost.requests()) != 2 || strings.Contains(eventTypes(none.requests()), "alert") {
		t.Errorf("got %s; %s; %s", eventTypes(all.requests()), eventTypes(lost.requests()), eventTypes(none.requests()))
	}
}

func TestAlerts_AreSuppressedWithinTheCooldown(t *testing.T) {
	t.Parallel()
	var seen resultLog
	b := setup(t, Options{OnDelivery: seen.add})
	rc, eager := newReceiver(t, nil), newReceiver(t, nil)
	h := b.register(Settings{URL: rc.URL, Types: []string{"alert"}, Cooldown: new(time.Minute)})
	b.register(Settings{URL: eager.URL, Types: []string{"alert"}, Cooldown: new(time.Duration(0))})
	// The times of the events count, not the times of the polls.
	hour := time.Now().UTC().Truncate(time.Hour).Add(-25 * time.Hour)
	at := func(seconds int, typ store.EventType) {
		b.exec("insert into outbox (type, at) values ($1, $2)", string(typ), hour.Add(time.Duration(seconds)*time.Second))
	}
	at(0, store.WorkerLost)
	at(30, store.WorkerLost)
	at(40, store.StageDead)
	at(59, store.WorkerLost)
	at(60, store.WorkerLost)
	stop := b.run()
	rc.waitForRequests(b, 3)
	b.waitForPending(0)
	stop()
	b.start(b.newWebhooks(Options{})) // the cooldown applies to all processes
	at(119, store.WorkerLost)
	at(120, store.WorkerLost)
	rc.waitForRequests(b, 4)
	eager.waitForRequests(b, 7)
	b.waitForPending(0)

	var sent []string
	for _, m := range rc.requests() {
		sent = append(sent, fmt.Sprintf("%s %s %d", m.Type, m.Timestamp.Format("04:05"), m.Data.Suppressed))
	}
	slices.Sort(sent)
	want := "alert.dead 00:40 0; alert.worker_lost 00:00 0; alert.worker_lost 01:00 2; alert.worker_lost 02:00 1"
	if got := strings.Join(sent, "; "); got != want {
		t.Errorf("got %s,\nwant %s", got, want)
	}
	if got := strings.Count(seen.text(), "alert.worker_lost suppressed"); got != 2 {
		t.Errorf("results are %s", seen.text())
	}
	// Suppressed alerts are listed, and can be redelivered.
	held, err := b.Deliveries(t.Context(), DeliveryFilter{Webhook: h.ID, Status: "suppressed"})
	if err != nil || len(held) != 3 {
		t.Fatalf("suppressed are %+v, %v", held, err)
	}
	must(t, b.Redeliver(t.Context(), held[0].ID))
	if got := rc.waitForRequests(b, 5)[4]; got.id() != held[0].ID.String() || !strings.Contains(got.body, ":01:59Z") {
		t.Errorf("sent %s", got.body)
	}
}

// A check every 30 s raises the alerts always in the same order.
func TestAlerts_HaveOneCooldownPerHostAndDisk(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	rc := newReceiver(t, nil)
	h := b.add(rc.URL, "alert")
	for second := 0; second < 660; second += 30 {
		for i, data := range []string{
			`{"name": "disk_low", "host": "a", "disk": "data"}`, `{"name": "disk_low", "host": "a", "disk": "published"}`,
			`{"name": "disk_low", "host": "b", "disk": "data"}`, `{"name": "listener_down", "host": "a"}`,
			`{"name": "listener_down", "host": "b"}`,
		} {
			b.exec(`insert into outbox (type, at, data)
				values ('alert', timestamptz '2026-03-01 12:00:00Z' + make_interval(secs => $1), $2)`,
				float64(second)+float64(i)/100, data)
		}
	}
	b.exec(`insert into outbox (type, data) values ('worker_lost', '{"host": "a"}'), ('worker_lost', '{"host": "b"}'),
		('worker_lost', '{"host": "a"}')`)
	b.run()
	got := rc.waitForRequests(b, 17)
	b.waitForPending(0)
	counts := map[string]int{}
	for _, m := range got {
		var about struct{ Host, Disk string }
		must(t, json.Unmarshal(m.Data.Details, &about))
		counts[fmt.Sprint(m.Type, about)]++
	}
	want := map[string]int{
		"alert.disk_low{a data}": 3, "alert.disk_low{a published}": 3, "alert.disk_low{b data}": 3,
		"alert.listener_down{a }": 3, "alert.listener_down{b }": 3, "alert.worker_lost{a }": 1, "alert.worker_lost{b }": 1,
	}
	if !maps.Equal(counts, want) || len(rc.requests()) != 17 {
		t.Errorf("got %v,\nwant %v", counts, want)
	}
	// Old cooldowns are deleted.
	waittest.Until(b.t, "the old cooldowns are deleted", func() bool {
		return b.count("select count(*) from cuelight_alert_cooldowns where webhook_id = $1", h.ID) == 2
	})
}

func TestAlerts_SecondDeathOfAStageIsARepeatedFailure(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	rc := newReceiver(t, nil)
	b.register(Settings{URL: rc.URL, Types: []string{AlertRepeatedFailure, "submitted"}, Cooldown: new(time.Duration(0))})
	b.run()
	died := func(task store.ID, stage string) {
		b.exec(`insert into attempts (task_id, token, stage, attempt, worker_id, started_at, finished_at, outcome, error)
			values ($1, gen_random_uuid(), $2, 1, gen_random_uuid(), now(), now(), 'failed', 'no')`, task, stage) // an event, too
	}
	first, second := b.submit(), b.submit()
	died(first, "ingest")
	died(second, "ingest")
	died(first, "metadata")
	b.submit() // planned after all of these
	rc.waitForRequests(b, 3)
	died(first, "ingest")
	b.submit()
	got := rc.waitForRequests(b, 5)
	n := 0
	for _, m := range got {
		if m.Type == AlertRepeatedFailure {
			n++
			if m.Data.Task.ID != first || m.Data.Stage != "ingest" {
				t.Errorf("got %s", m.body)
			}
		}
	}
	if n != 1 {
		t.Errorf("got %s", eventTypes(got))
	}
}

func TestRaise_AcceptsOnlyAlertsOfProcesses(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	h := b.add("https://example.com/")
	for _, alert := range []string{"", AlertDead, "disk_low", "alert.else"} {
		if err := b.Raise(t.Context(), alert, nil); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", alert, err)
		}
	}
	if err := b.Raise(t.Context(), AlertDiskLow, map[string]any{"free": func() {}}); err == nil {
		t.Error("raised invalid JSON")
	}
	if n := b.count("select count(*) from outbox"); n != 0 {
		t.Errorf("%d events", n)
	}
	must(t, b.Disable(t.Context(), h.ID, "")) // no enabled webhook remains
	must(t, b.Raise(t.Context(), AlertDiskLow, nil))
	if n := b.count("select count(*) from outbox"); n != 0 {
		t.Errorf("%d events without a webhook", n)
	}
	must(t, b.Enable(t.Context(), h.ID))
	must(t, b.Raise(t.Context(), AlertDiskLow, nil))
	if n := b.count("select count(*) from outbox"); n != 1 {
		t.Errorf("%d events with a webhook", n)
	}
}
