package webhook

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}

// shortSchedule returns a schedule for tests that wait for all attempts.
func shortSchedule(attempts int) []time.Duration {
	return slices.Repeat([]time.Duration{time.Millisecond}, attempts-1)
}

// fixture is a database with the video pipeline, for one test.
type fixture struct {
	*Webhooks
	t     *testing.T
	pool  *pgxpool.Pool
	store *store.Store
}

// setup sets the options that every test needs.
func setup(t *testing.T, o Options) *fixture {
	t.Helper()
	g := store.Video()
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL(), operators.SQL))
	b := &fixture{t: t, pool: pool, store: store.New(pool, g)}
	b.Webhooks = b.newWebhooks(o)
	return b
}

// newWebhooks returns the same webhooks as in another process.
func (b *fixture) newWebhooks(o Options) *Webhooks {
	if o.DB == nil {
		o.DB = b.pool
	}
	if o.Store == nil {
		o.Store = b.store
	}
	if o.Allow == nil {
		o.Allow = loopback
	}
	o.pollInterval = 20 * time.Millisecond
	return New(o)
}

// run calls Run until the test ends or stop is called.
func (b *fixture) run() (stop func()) { return b.start(b.Webhooks) }

func (b *fixture) start(w *Webhooks) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("Run returned %v", err)
		}
	})
	b.t.Cleanup(stop)
	return stop
}

func (b *fixture) add(url string, types ...string) Webhook {
	b.t.Helper()
	return b.register(Settings{URL: url, Types: types})
}

func (b *fixture) register(r Settings) Webhook {
	b.t.Helper()
	h, err := b.Add(b.t.Context(), r)
	must(b.t, err)
	return h
}

// submit submits a task.
func (b *fixture) submit() store.ID {
	b.t.Helper()
	r, err := b.store.Submit(b.t.Context(), store.Submission{Source: "a.mp4"})
	must(b.t, err)
	return r.ID
}

// addEvent writes an event to the outbox.
func (b *fixture) addEvent(typ store.EventType, task store.ID, stage string, attempt int, data string) {
	b.t.Helper()
	b.exec(`insert into outbox (type, tasks, stages, attempts, data)
		values ($1, array[$2::uuid], array[nullif($3, '')], array[nullif($4, 0)], nullif($5, '')::jsonb)`,
		string(typ), task, stage, attempt, data)
}

func (b *fixture) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), sql, args...)
	must(b.t, err)
}

// count queries a number.
func (b *fixture) count(sql string, args ...any) (n int) {
	b.t.Helper()
	must(b.t, b.pool.QueryRow(b.t.Context(), sql, args...).Scan(&n))
	return n
}

// deliveries returns a webhook's deliveries, the oldest first.
func (b *fixture) deliveries(h Webhook) []Delivery {
	b.t.Helper()
	all, err := b.Deliveries(b.t.Context(), DeliveryFilter{Webhook: h.ID, Limit: 10_000})
	must(b.t, err)
	slices.Reverse(all)
	return all
}

// countPending counts pending deliveries.
func (b *fixture) countPending() int {
	return b.count("select count(*) from cuelight_deliveries where status = 'pending'")
}

// waitForPending waits until n deliveries are pending.
func (b *fixture) waitForPending(n int) {
	b.t.Helper()
	waittest.Equal(b.t, "the number of pending deliveries", n, b.countPending)
}

// get returns a webhook as List does.
func (b *fixture) get(id store.ID) Webhook {
	b.t.Helper()
	all, err := b.List(b.t.Context())
	must(b.t, err)
	for _, h := range all {
		if h.ID == id {
			return h
		}
	}
	b.t.Fatalf("there is no webhook %v", id)
	return Webhook{}
}

// request is a request that a receiver got.
type request struct {
	header http.Header
	body   string
	payload
}

func (r request) id() string { return r.header.Get("webhook-id") }

// verify checks the signature as docs/webhooks.md says. Package e2e does so with the reference
// library of Standard Webhooks.
func (r request) verify(secret string) error {
	key, err1 := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	stamp := r.header.Get("webhook-timestamp")
	seconds, err2 := strconv.ParseInt(stamp, 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if age := time.Since(time.Unix(seconds, 0)); age.Abs() > 5*time.Minute {
		return fmt.Errorf("the timestamp is %v old", age)
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", r.id(), stamp, r.body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	if got := strings.Fields(r.header.Get("webhook-signature")); !slices.Contains(got, want) {
		return fmt.Errorf("signatures are %q; want %s", got, want)
	}
	return nil
}

// receiver is an HTTP server that records requests.
type receiver struct {
	*httptest.Server
	t        *testing.T
	mu       sync.Mutex
	received []request
	answer   func(n int, r request, w http.ResponseWriter) // n counts from 1
}

// newReceiver starts a receiver. By default it answers 204.
func newReceiver(t *testing.T, answer func(n int, r request, w http.ResponseWriter)) *receiver {
	t.Helper()
	return newReceiverOn(t, "127.0.0.1:0", answer)
}

func newReceiverOn(t *testing.T, addr string, answer func(n int, r request, w http.ResponseWriter)) *receiver {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil && strings.HasPrefix(addr, "127.0.0.2:") {
		t.Skipf("this host has no %s: %v", addr, err) // macOS has only 127.0.0.1
	}
	must(t, err)
	rc := &receiver{t: t, answer: answer}
	rc.Server = httptest.NewUnstartedServer(rc)
	rc.Listener.Close()
	rc.Listener = l
	rc.Config.ErrorLog = quietLog()
	rc.Start()
	t.Cleanup(rc.Close)
	return rc
}

func (rc *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	text, err := io.ReadAll(req.Body)
	r := request{header: req.Header, body: string(text)}
	if err := errors.Join(err, json.Unmarshal(text, &r.payload)); err != nil {
		rc.t.Errorf("received %q: %v", text, err)
	}
	rc.mu.Lock()
	rc.received = append(rc.received, r)
	n := len(rc.received)
	rc.mu.Unlock()
	if rc.answer == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	rc.answer(n, r, w)
}

func (rc *receiver) requests() []request {
	rc.mu.Lock()
	defer rc.mu.Unlock()
	return slices.Clone(rc.received)
}

// waitForRequests waits for n requests.
func (rc *receiver) waitForRequests(b *fixture, n int) []request {
	b.t.Helper()
	waittest.Until(b.t, fmt.Sprintf("%d requests were received", n), func() bool { return len(rc.requests()) >= n })
	return rc.requests()
}

// eventTypes returns the types of requests, in order.
func eventTypes(all []request) string {
	var s []string
	for _, r := range all {
		s = append(s, r.Type)
	}
	return strings.Join(s, " ")
}

func respondWith(status int) func(int, request, http.ResponseWriter) {
	return func(_ int, _ request, w http.ResponseWriter) { w.WriteHeader(status) }
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func quietLog() *log.Logger { return log.New(io.Discard, "", 0) }
