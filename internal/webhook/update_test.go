package webhook

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
)

func TestUpdate_KeepsPendingDeliveries(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	old, moved := newReceiver(t, func(_ int, _ request, w http.ResponseWriter) {
		w.Header().Set("Retry-After", "3600") // does not apply to the new URL
		w.WriteHeader(http.StatusServiceUnavailable)
	}), newReceiver(t, nil)
	h := b.register(Settings{URL: old.URL, Types: []string{"submitted"}, Cooldown: new(time.Minute)})
	b.run()
	first := b.submit()
	waittest.Until(b.t, "the first attempt has failed", func() bool {
		return b.count("select count(*) from cuelight_deliveries where attempts > 0 and run_at > now()") == 1
	})
	b.exec("update cuelight_deliveries set run_at = now() + interval '5 hours'")

	got, err := b.Update(t.Context(), h.ID, Settings{Types: []string{"submitted", "completed"}})
	if err != nil || got.URL != old.URL || len(got.Types) != 2 || got.Cooldown != 60 || got.Pending != 1 ||
		got.Secret == h.Secret {
		t.Errorf("changed to %+v, %v", got, err)
	}
	got, err = b.Update(t.Context(), h.ID, Settings{URL: moved.URL, Cooldown: new(time.Duration(0))})
	if err != nil || got.URL != moved.URL || len(got.Types) != 2 || got.Cooldown != 0 {
		t.Errorf("changed to %+v, %v", got, err)
	}
	b.addEvent(store.TaskCompleted, first, "", 0, "")
	all := moved.waitForRequests(b, 2) // the pending one without a wait
	if eventTypes(all) != "submitted completed" {
		t.Errorf("got %s", eventTypes(all))
	}
	for _, m := range all {
		if err := m.verify(h.Secret); err != nil {
			t.Error(err)
		}
	}
	if got, err = b.Update(t.Context(), h.ID, Settings{Types: []string{}}); err != nil || len(got.Types) != 0 {
		t.Errorf("changed to %+v, %v", got, err)
	}
	for _, bad := range []Settings{{URL: "http://10.0.0.1/"}, {URL: "nonsense"}, {Types: []string{"nonsense"}}} {
		if _, err := b.Update(t.Context(), h.ID, bad); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

// A response of the old URL changes nothing.
func TestUpdate_IgnoresTheResponseOfTheOldURL(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusInternalServerError, http.StatusGone} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			b := setup(t, Options{schedule: []time.Duration{time.Hour}})
			arrived, release := make(chan struct{}), make(chan struct{})
			old, moved := newReceiver(t, func(_ int, _ request, w http.ResponseWriter) {
				close(arrived)
				<-release
				w.WriteHeader(status)
			}), newReceiver(t, nil)
			h := b.add(old.URL)
			b.submit()
			b.run()
			<-arrived
			_, err := b.Update(t.Context(), h.ID, Settings{URL: moved.URL})
			close(release)
			must(t, err)
			moved.waitForRequests(b, 1)
			if all, err := b.List(t.Context()); err != nil || all[0].DisabledAt != nil {
				t.Errorf("webhooks are %+v, %v", all, err)
			}
		})
	}
}

// Only the latest progress of a stage is delivered.
func TestDeliverer_DropsOutdatedProgress(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{leaseDuration: time.Hour})
	h := b.add("https://example.com/", "started", "progress")
	d := deliverer{webhooks: b.Webhooks, holder: newID(), inFlight: map[store.ID]store.ID{}}
	if held, err := d.acquire(t.Context()); err != nil || !held {
		t.Fatal(held, err)
	}
	task, other := newID(), newID()
	progress := func(task store.ID, stage string, percent int) {
		b.exec(`insert into outbox (type, data) values ('progress', jsonb_build_array(jsonb_build_object(
			'task', $1::uuid, 'stage', $2::text, 'attempt', 1, 'percent', $3::int)))`, task, stage, percent)
	}
	// pending writes the new deliveries, and returns the pending ones.
	pending := func() (all []Delivery, text string) {
		hooks, err := b.endpoints(t.Context())
		must(t, err)
		plans, _, err := b.planDeliveries(t.Context(), hooks)
		must(t, err)
		must(t, d.write(t.Context(), plans))
		all = b.deliveries(h)
		var details []string
		for _, d := range all {
			_, text, _ := strings.Cut(d.Payload, `"details":`)
			details = append(details, strings.TrimRight(text, "}"))
		}
		return all, strings.ReplaceAll(strings.Join(details, "; "), `{"percent":`, "")
	}
	b.addEvent(store.StageStarted, task, "transcode", 1, `{"percent":0}`)
	progress(task, "transcode", 1)
	progress(task, "metadata", 2)
	progress(other, "transcode", 3)
	progress(task, "transcode", 4)
	if _, text := pending(); text != "0; 2; 3; 4" {
		t.Fatalf("pending are %s", text)
	}
	progress(task, "transcode", 5)
	all, text := pending()
	if text != "0; 2; 3; 5" {
		t.Fatalf("pending are %s", text)
	}
	d.inFlight[all[3].ID] = h.ID // must not be overtaken
	b.exec("update cuelight_deliveries set attempts = 1 where id = $1", all[1].ID)
	progress(task, "transcode", 6)
	progress(task, "metadata", 7)
	if all, text = pending(); text != "0; 2; 3; 5; 6; 7" {
		t.Fatalf("pending are %s", text)
	}
	d.inFlight = map[store.ID]store.ID{all[5].ID: h.ID}
	progress(task, "transcode", 8)
	if _, text = pending(); text != "0; 2; 3; 7; 8" {
		t.Errorf("pending are %s", text)
	}
}
