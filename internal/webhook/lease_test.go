package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
)

// severablePool is a pool that loses its database when severed is set.
type severablePool struct {
	*pgxpool.Pool
	severed atomic.Bool
}

var errSevered = errors.New("severed")

// Begin fails when the pool is severed.
func (c *severablePool) Begin(ctx context.Context) (pgx.Tx, error) {
	if c.severed.Load() {
		return nil, errSevered
	}
	return c.Pool.Begin(ctx)
}

// Exec fails when the pool is severed.
func (c *severablePool) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if c.severed.Load() {
		return pgconn.CommandTag{}, errSevered
	}
	return c.Pool.Exec(ctx, sql, args...)
}

// Query fails when the pool is severed.
func (c *severablePool) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if c.severed.Load() {
		return nil, errSevered
	}
	return c.Pool.Query(ctx, sql, args...)
}

// QueryRow returns a row that fails when the pool is severed.
func (c *severablePool) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if c.severed.Load() {
		return severedRow{}
	}
	return c.Pool.QueryRow(ctx, sql, args...)
}

type severedRow struct{}

// Scan returns errSevered.
func (severedRow) Scan(...any) error { return errSevered }

// Each deliverer loses its database during its work. No event is missed.
func TestRun_ReplacesADeadDelivererWithoutLoss(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	rc := newReceiver(t, nil)
	h := b.add(rc.URL)
	const lease = 400 * time.Millisecond
	deliverer := func() *severablePool {
		c := &severablePool{Pool: b.pool}
		b.start(b.newWebhooks(Options{DB: c, Store: store.New(c, store.Video()), leaseDuration: lease}))
		return c
	}
	holder := func() (id store.ID) {
		err := b.pool.QueryRow(t.Context(), "select holder from cuelight_leases where until > now()").Scan(&id)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			t.Error(err)
		}
		return id
	}
	var all []store.ID
	var led store.ID
	another := func() bool { // holds the lease, and is not a severed one
		id := holder()
		if id.IsZero() || id == led {
			return false
		}
		led = id
		return true
	}
	for range 4 {
		first := deliverer()
		waittest.Until(b.t, "a leader is elected", another)
		second := deliverer()
		n := len(rc.requests())
		for range 20 {
			id := b.submit()
			b.addEvent(store.TaskCompleted, id, "", 0, "")
			all = append(all, id)
		}
		rc.waitForRequests(b, n+1)
		first.severed.Store(true)
		begun := time.Now()
		waittest.Until(b.t, "the other leads", another)
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("taken over after %v", took)
		}
		second.severed.Store(true)
	}
	deliverer()
	waittest.Until(b.t, "all are delivered", func() bool {
		return b.countPending() == 0 && len(b.deliveries(h)) == 2*len(all)
	})
	seen := map[store.ID][]string{}
	twice := map[string]int{}
	for _, m := range rc.requests() {
		if twice[m.id()]++; twice[m.id()] == 1 {
			seen[m.Data.Task.ID] = append(seen[m.Data.Task.ID], m.Type)
		}
	}
	for _, id := range all {
		if got := fmt.Sprint(seen[id]); got != "[submitted completed]" {
			t.Errorf("task %v got %s", id, got)
		}
	}
}

func TestLease_ChangesItsHolderWithinFifteenSeconds(t *testing.T) {
	t.Parallel()
	if longest := leaseDuration + leaseDuration/renewalsPerLease; longest > 15*time.Second {
		t.Errorf("after %v", longest)
	}
}

func TestDeliverer_WritesNothingWithoutTheLease(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{leaseDuration: time.Hour})
	h := b.add("https://example.com/")
	task := b.submit()
	deliverers := []*deliverer{{webhooks: b.Webhooks, holder: newID()}, {webhooks: b.Webhooks, holder: newID()}}
	for i, want := range []bool{true, false, true} {
		if i == 2 {
			b.exec("update cuelight_leases set until = now()")
		}
		if got, err := deliverers[min(i, 1)].acquire(t.Context()); err != nil || got != want {
			t.Fatalf("acquired %d: %v, %v", i, got, err)
		}
	}
	hooks, err := b.endpoints(t.Context())
	must(t, err)
	plans, _, err := b.planDeliveries(t.Context(), hooks)
	must(t, err)
	if len(plans) != 1 || len(plans[0].deliveries) != 1 || plans[0].deliveries[0].task != task {
		t.Fatalf("plans are %+v", plans)
	}
	if err := deliverers[0].write(t.Context(), plans); !errors.Is(err, errLeaseLost) {
		t.Errorf("without the lease: %v", err)
	}
	if n := len(b.deliveries(h)); n != 0 {
		t.Errorf("%d deliveries", n)
	}
	for range 2 { // the second write changes nothing
		if err := deliverers[1].write(t.Context(), plans); err != nil {
			t.Errorf("with the lease: %v", err)
		}
		if n := len(b.deliveries(h)); n != 1 {
			t.Errorf("%d deliveries", n)
		}
	}
	// The result of an attempt is also written once.
	r := attemptResult{
		dueDelivery: dueDelivery{id: b.deliveries(h)[0].ID, webhook: h.ID}, response: response{status: 500, failure: "no"},
	}
	b.classify(&r)
	for range 2 {
		deliverers[1].unwritten = []attemptResult{r}
		must(t, deliverers[1].write(t.Context(), nil))
	}
	if d := b.deliveries(h)[0]; d.Attempts != 1 || d.Error != "no" {
		t.Errorf("the row is %+v", d)
	}
	must(t, deliverers[0].release(t.Context()))
	if b.count("select count(*) from cuelight_leases") != 1 {
		t.Error("a deliverer released the lease of another")
	}
}

func TestRun_WaitsForTheDatabase(t *testing.T) {
	t.Parallel()
	errs := make(chan error, 100)
	b := setup(t, Options{})
	rc := newReceiver(t, nil)
	b.add(rc.URL)
	c := &severablePool{Pool: b.pool}
	b.start(b.newWebhooks(Options{
		DB: c, Store: store.New(c, store.Video()), leaseDuration: 2 * time.Second, OnError: func(err error) { errs <- err },
	}))
	b.submit()
	rc.waitForRequests(b, 1)
	c.severed.Store(true)
	if err := <-errs; !errors.Is(err, errSevered) {
		t.Errorf("OnError got %v", err)
	}
	b.submit()
	c.severed.Store(false)
	for err := range errs {
		if err == nil {
			break
		}
	}
	rc.waitForRequests(b, 2)
}

// slowStore delays Get.
type slowStore struct {
	*store.Store
	delay time.Duration
}

// Get waits before it reads the task.
func (f slowStore) Get(ctx context.Context, id store.ID) (store.Task, error) {
	_ = ctxsleep.For(ctx, f.delay)
	return f.Store.Get(ctx, id)
}

// Reading all tasks of the events takes longer than the lease lasts.
func TestRun_KeepsItsLeaseWithASlowDatabase(t *testing.T) {
	t.Parallel()
	const tasks, each = 40, 25 * time.Millisecond
	b := setup(t, Options{Concurrency: tasks, PerWebhook: tasks})
	b.Webhooks = b.newWebhooks(Options{
		Store: slowStore{b.store, each}, Concurrency: tasks, PerWebhook: tasks, leaseDuration: tasks * each / 2,
	})
	rc := newReceiver(t, nil)
	b.add(rc.URL, string(store.TaskSubmitted))
	for range tasks {
		b.submit()
	}
	b.run()
	got := map[store.ID]bool{}
	for _, r := range rc.waitForRequests(b, tasks) {
		got[r.Data.Task.ID] = true
	}
	if len(got) != tasks {
		t.Errorf("got %d tasks, want %d", len(got), tasks)
	}
}
