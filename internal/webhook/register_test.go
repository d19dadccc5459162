package webhook

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
)

func TestAdd_RejectsAddressesThatCannotBeCalled(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.1.0.0/16")},
	})
	for _, url := range []string{
		"https://example.com/hook?key=a", "https://example.com:8443", "https://93.184.216.34/",
		"http://127.0.0.1:80/", "http://localhost/", "https://10.1.2.3/", "http://10.1.2.3/", "HTTPS://EXAMPLE.com/",
	} {
		if _, err := b.Add(t.Context(), Settings{URL: url}); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	for url, why := range map[string]string{
		"":                                     "https",
		"example.com/hook":                     "https",
		"ftp://example.com/":                   "https",
		"http://example.com/":                  "http is for",
		"http://93.184.216.34/":                "http is for",
		"https://10.2.2.3/":                    "not a public",
		"https://[::1]/":                       "not a public",
		"https://[fe80::1%25eth0]/":            "not a public",
		"https://169.254.169.254/":             "not a public",
		"https:///hook":                        "no host",
		"https:example.com":                    "no host",
		"https://u:p@example.com/":             "signatures",
		"https://example.com/#a":               "#",
		"https://example.com/#":                "#",
		"https://example.com:/":                "port",
		"https://example.com:0/":               "port",
		"https://example.com:99999/":           "port",
		"https://example.com/ a":               "not a URL",
		"https://example.com/\x00":             "not a URL",
		"https://example.com/%zz":              "not a URL",
		"https://" + longAddress + ".example/": "longer",
	} {
		_, err := b.Add(t.Context(), Settings{URL: url})
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, want %q", url, err, why)
		}
	}
	_, err := b.newWebhooks(Options{AllowHTTP: true}).Add(t.Context(), Settings{URL: "http://example.com/"})
	if err != nil {
		t.Error(err)
	}
	_, err = b.Add(t.Context(), Settings{URL: "https://example.com/", Types: []string{"completed", "finished"}})
	if !errors.Is(err, ErrInvalid) {
		t.Errorf("an unknown type: %v", err)
	}
	if _, err := b.Add(t.Context(), Settings{URL: "https://example.com/", Types: Types()}); err != nil {
		t.Error(err)
	}
}

var longAddress = strings.Repeat("a", maxAddress)

func TestAdd_ShowsTheSecretOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	h := b.register(Settings{URL: "https://example.com/", Types: []string{"completed"}, Cooldown: new(90 * time.Second)})
	if !strings.HasPrefix(h.Secret, "whsec_") || len(h.Secret) != 50 {
		t.Fatalf("the secret is %s", h.Secret)
	}
	got := b.get(h.ID)
	if got.Secret != h.Secret[:10]+"…" || got.URL != h.URL || !slices.Equal(got.Types, h.Types) ||
		got.Cooldown != 90 || got.CreatedAt.IsZero() {
		t.Errorf("listed %+v", got)
	}
	if got := maskSecret("short"); got != "whsec_…" {
		t.Errorf("masked %s", got)
	}
}

func TestRotateSecret_SignsWithBothSecretsDuringTheOverlap(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	rc := newReceiver(t, nil)
	h := b.add(rc.URL)
	b.run()
	nextRequest := func() request {
		t.Helper()
		n := len(rc.requests())
		b.submit()
		return rc.waitForRequests(b, n+1)[n]
	}
	second, err := b.RotateSecret(t.Context(), h.ID, DefaultOverlap)
	must(t, err)
	if second.Secret == h.Secret || second.OldSecretUntil == nil || time.Until(*second.OldSecretUntil) < 23*time.Hour {
		t.Errorf("rotated to %+v", second)
	}
	m := nextRequest()
	if err := errors.Join(m.verify(h.Secret), m.verify(second.Secret)); err != nil {
		t.Error(err)
	}
	if n := len(strings.Fields(m.header.Get("webhook-signature"))); n != 2 {
		t.Errorf("%d signatures", n)
	}
	third, err := b.RotateSecret(t.Context(), h.ID, time.Hour)
	must(t, err)
	m = nextRequest()
	if m.verify(h.Secret) == nil || m.verify(second.Secret) != nil || m.verify(third.Secret) != nil {
		t.Error("the last two secrets do not both sign")
	}
	b.exec("update cuelight_webhooks set old_until = now()")
	m = nextRequest()
	if m.verify(second.Secret) == nil || m.verify(third.Secret) != nil || b.get(h.ID).OldSecretUntil != nil {
		t.Error("the new secret does not sign alone")
	}
	fourth, err := b.RotateSecret(t.Context(), h.ID, 0)
	must(t, err)
	m = nextRequest()
	if m.verify(third.Secret) == nil || m.verify(fourth.Secret) != nil {
		t.Error("without an overlap the new secret does not sign alone")
	}
}

func TestEnable_DeliversEventsSinceDisable(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	rc, other := newReceiver(t, nil), newReceiver(t, nil)
	h := b.add(rc.URL)
	b.add(other.URL)
	must(t, b.Disable(t.Context(), h.ID, "is moving"))
	must(t, b.Disable(t.Context(), h.ID, "again"))
	b.run()
	b.submit()
	other.waitForRequests(b, 1)
	if got := b.get(h.ID); got.DisabledAt == nil || got.DisabledReason != "is moving" || len(rc.requests()) != 0 {
		t.Errorf("listed %+v, called %d times", got, len(rc.requests()))
	}
	must(t, b.Enable(t.Context(), h.ID))
	rc.waitForRequests(b, 1)
}

func TestRemove_DeletesTheDeliveries(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	rc := newReceiver(t, respondWith(http.StatusInternalServerError))
	h := b.add(rc.URL)
	b.submit()
	b.run()
	rc.waitForRequests(b, 1)
	must(t, b.Remove(t.Context(), h.ID))
	if all, err := b.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("listed %v, %v", all, err)
	}
	if n := b.count("select count(*) from cuelight_deliveries"); n != 0 {
		t.Errorf("%d deliveries", n)
	}
}

func TestWebhooks_ReturnErrNotFound(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	h := b.add("https://example.com/")
	b.exec(`insert into cuelight_deliveries (webhook_id, event_id, type, payload, status)
		values ($1, 1, 'completed', '{}', 'dead')`,
		h.ID)
	delivery := b.deliveries(h)[0].ID
	podcast, err := store.NewGraph("podcast", store.Node{Name: "fetch"})
	must(t, err)
	other := b.newWebhooks(Options{Graph: podcast})
	for name, call := range map[string]func(w *Webhooks, id store.ID) error{
		"rotate":    func(w *Webhooks, id store.ID) error { _, err := w.RotateSecret(t.Context(), id, 0); return err },
		"disable":   func(w *Webhooks, id store.ID) error { return w.Disable(t.Context(), id, "") },
		"enable":    func(w *Webhooks, id store.ID) error { return w.Enable(t.Context(), id) },
		"remove":    func(w *Webhooks, id store.ID) error { return w.Remove(t.Context(), id) },
		"test":      func(w *Webhooks, id store.ID) error { _, err := w.Test(t.Context(), id); return err },
		"redeliver": func(w *Webhooks, id store.ID) error { return w.Redeliver(t.Context(), id) },
		"change":    func(w *Webhooks, id store.ID) error { _, err := w.Update(t.Context(), id, Settings{}); return err },
		"dead":      func(w *Webhooks, id store.ID) error { _, err := w.RedeliverDead(t.Context(), id); return err },
	} {
		if err := call(b.Webhooks, newID()); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
		there := h.ID
		if name == "redeliver" {
			there = delivery
		}
		if err := call(other, there); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s in another pipeline: %v", name, err)
		}
	}
	for want := range 2 { // the second time it has none
		if n, err := b.RedeliverDead(t.Context(), h.ID); err != nil || n != 1-want {
			t.Errorf("redelivered %d, %v", n, err)
		}
	}
	if all, err := other.Deliveries(t.Context(), DeliveryFilter{}); err != nil || len(all) != 0 {
		t.Errorf("another pipeline's deliveries are %v, %v", all, err)
	}
}

func TestTest_SendsASignedPing(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	status := http.StatusOK
	rc := newReceiver(t, func(_ int, _ request, w http.ResponseWriter) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte("{\"error\":\n\x00 \"unknown video\"}" + strings.Repeat("é", 200)))
	})
	h := b.add(rc.URL)
	must(t, b.Disable(t.Context(), h.ID, "")) // an operator tests before enabling
	got, err := b.Test(t.Context(), h.ID)
	if err != nil || !got.OK || got.Status != 200 || got.Duration <= 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	status = http.StatusForbidden
	got, err = b.Test(t.Context(), h.ID)
	if err != nil || got.OK || got.Status != 403 || len(got.Error) > 350 || !utf8.ValidString(got.Error) ||
		!strings.HasPrefix(got.Error, `the answer was 403 Forbidden: {"error": "unknown video"}éé`) {
		t.Errorf("got %+v, %v", got, err)
	}
	m := rc.requests()[0]
	err = m.verify(h.Secret)
	if err != nil || m.Type != "ping" || m.Data.Webhook != h.ID || m.id() == rc.requests()[1].id() {
		t.Errorf("%v: sent %s", err, m.body)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Test(over, h.ID); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if n := b.count("select count(*) from cuelight_deliveries"); n != 0 {
		t.Errorf("%d deliveries", n)
	}
}

func TestDeliveries_ListsPages(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	h, other := b.add("https://example.com/"), b.add("https://example.com/")
	for _, id := range []store.ID{h.ID, other.ID} {
		b.exec(`insert into cuelight_deliveries (webhook_id, event_id, type, payload, status)
			select $1, n, 'completed', '{}', case when n % 2 = 0 then 'dead' else 'pending' end from generate_series(1, 10) n`,
			id)
	}
	var events []int64
	f := DeliveryFilter{Webhook: h.ID, Status: "dead", Limit: 2}
	for {
		page, err := b.Deliveries(t.Context(), f)
		must(t, err)
		if len(page) == 0 {
			break
		}
		for _, d := range page {
			events = append(events, d.Event)
		}
		f.After = page[len(page)-1].ID
	}
	if !slices.Equal(events, []int64{10, 8, 6, 4, 2}) {
		t.Errorf("read %v", events)
	}
	if all, err := b.Deliveries(t.Context(), DeliveryFilter{}); err != nil || len(all) != 20 {
		t.Errorf("all are %d, %v", len(all), err)
	}
	if _, err := b.Deliveries(t.Context(), DeliveryFilter{Status: "lost"}); !errors.Is(err, ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

func TestRedeliver_KeepsIDsAndOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{schedule: []time.Duration{}})
	var healthy = make(chan struct{})
	rc := newReceiver(t, func(_ int, _ request, w http.ResponseWriter) {
		select {
		case <-healthy:
		default:
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	h := b.add(rc.URL)
	var tasks []store.ID
	for range 5 {
		id := b.submit()
		tasks = append(tasks, id)
		b.addEvent(store.StageStarted, id, "ingest", 1, "")
		b.addEvent(store.TaskCompleted, id, "", 0, "")
	}
	b.run()
	waittest.Until(b.t, "all deliveries are dead", func() bool { return b.get(h.ID).Dead == 15 })
	dead := b.deliveries(h)
	failed := len(rc.requests())
	close(healthy)

	must(t, b.Redeliver(t.Context(), dead[0].ID))
	if got := rc.waitForRequests(b, failed+1)[failed]; got.id() != dead[0].ID.String() {
		t.Errorf("sent %s", got.body)
	}
	b.waitForPending(0)
	must(t, b.Redeliver(t.Context(), dead[0].ID)) // a delivered one
	rc.waitForRequests(b, failed+2)
	b.waitForPending(0)

	if n, err := b.RedeliverDead(t.Context(), h.ID); err != nil || n != 14 {
		t.Errorf("redelivered %d, %v", n, err)
	}
	got := rc.waitForRequests(b, failed+16)[failed+2:]
	b.waitForPending(0)
	byTask := map[store.ID]string{}
	for _, m := range got {
		byTask[m.Data.Task.ID] += m.Type + " "
	}
	for i, id := range tasks {
		want := "submitted started completed "
		if i == 0 {
			want = "started completed "
		}
		if byTask[id] != want {
			t.Errorf("task %d got %s", i, byTask[id])
		}
	}
	if s, err := b.Stats(t.Context()); err != nil || s != (Stats{}) {
		t.Errorf("stats are %+v, %v", s, err)
	}
}
