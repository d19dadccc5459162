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

	"github.com/cuelight/cuelight/store"
)

// cord is a database that a process can be cut off from.
type cord struct {
	*pgxpool.Pool
	cut atomic.Bool
}

var errCut = errors.New("cut off")

func (c *cord) Begin(ctx context.Context) (pgx.Tx, error) {
	if c.cut.Load() {
		return nil, errCut
	}
	return c.Pool.Begin(ctx)
}

func (c *cord) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if c.cut.Load() {
		return pgconn.CommandTag{}, errCut
	}
	return c.Pool.Exec(ctx, sql, args...)
}

func (c *cord) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if c.cut.Load() {
		return nil, errCut
	}
	return c.Pool.Query(ctx, sql, args...)
}

func (c *cord) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if c.cut.Load() {
		return cutRow{}
	}
	return c.Pool.QueryRow(ctx, sql, args...)
}

type cutRow struct{}

func (cutRow) Scan(...any) error { return errCut }

// Deliverers come and go, each as if its host were cut off in the middle of its
// work, and no event is missed.
func TestDelivererThatDiesIsReplacedAndNothingIsMissed(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{})
	rc := receive(t, nil)
	h := b.add(rc.URL)
	const lease = 400 * time.Millisecond
	deliverer := func() *cord {
		c := &cord{Pool: b.pool}
		b.start(b.another(Options{DB: c, Store: store.New(c, store.Video()), lease: lease}))
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
	another := func() bool { // leads, and not one that was cut off, whose lease still runs
		id := holder()
		if id.IsZero() || id == led {
			return false
		}
		led = id
		return true
	}
	for range 4 {
		first := deliverer()
		b.until("it leads", another)
		second := deliverer()
		n := len(rc.got())
		for range 20 {
			id := b.submit()
			b.happen(store.TaskCompleted, id, "", 0, "")
			all = append(all, id)
		}
		rc.wait(b, n+1)
		first.cut.Store(true)
		begun := time.Now()
		b.until("the other leads", another)
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("taken over after %v", took)
		}
		second.cut.Store(true)
	}
	deliverer()
	b.until("all is delivered", func() bool {
		return b.undelivered() == 0 && len(b.deliveries(h)) == 2*len(all)
	})
	seen := map[store.ID][]string{}
	twice := map[string]int{}
	for _, m := range rc.got() {
		if twice[m.id()]++; twice[m.id()] == 1 {
			seen[m.Data.Task.ID] = append(seen[m.Data.Task.ID], m.Type)
		}
	}
	for _, id := range all {
		if got := fmt.Sprint(seen[id]); got != "[submitted done]" {
			t.Errorf("task %v was told %s", id, got)
		}
	}
}

func TestLeaseIsTakenOverWithinFifteenSeconds(t *testing.T) {
	t.Parallel()
	if longest := leaseFor + leaseFor/renewParts; longest > 15*time.Second {
		t.Errorf("after %v", longest)
	}
}

func TestWhoHasLostTheLeaseWritesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, Options{lease: time.Hour})
	h := b.add("https://example.com/")
	task := b.submit()
	deliverers := []*deliverer{{w: b.Webhooks, holder: newID()}, {w: b.Webhooks, holder: newID()}}
	for i, want := range []bool{true, false, true} {
		if i == 2 {
			b.exec("update cuelight_leases set until = now()")
		}
		if got, err := deliverers[min(i, 1)].acquire(t.Context()); err != nil || got != want {
			t.Fatalf("acquired %d: %v, %v", i, got, err)
		}
	}
	hooks, err := b.hooks(t.Context())
	must(t, err)
	plans, _, err := b.plans(t.Context(), hooks)
	must(t, err)
	if len(plans) != 1 || len(plans[0].rows) != 1 || plans[0].rows[0].task != task {
		t.Fatalf("plans are %+v", plans)
	}
	if err := deliverers[0].record(t.Context(), plans, nil, nil); !errors.Is(err, errLost) {
		t.Errorf("the first one: %v", err)
	}
	if n := len(b.deliveries(h)); n != 0 {
		t.Errorf("%d deliveries", n)
	}
	for range 2 { // and the same again changes nothing
		if err := deliverers[1].record(t.Context(), plans, nil, nil); err != nil {
			t.Errorf("the second one: %v", err)
		}
		if n := len(b.deliveries(h)); n != 1 {
			t.Errorf("%d deliveries", n)
		}
	}
	// What became of an attempt is written once, too.
	r := result{message: message{id: b.deliveries(h)[0].ID, hook: h.ID}, reply: reply{status: 500, err: "no"}}
	b.judge(&r)
	for range 2 {
		must(t, deliverers[1].record(t.Context(), nil, []result{r}, nil))
	}
	if d := b.deliveries(h)[0]; d.Attempts != 1 || d.Error != "no" {
		t.Errorf("kept %+v", d)
	}
	must(t, deliverers[0].release(t.Context()))
	if b.number("select count(*) from cuelight_leases") != 1 {
		t.Error("it gave back what it had not got")
	}
}

func TestDatabaseThatIsAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	troubles := make(chan error, 100)
	b := setup(t, Options{})
	rc := receive(t, nil)
	b.add(rc.URL)
	c := &cord{Pool: b.pool}
	b.start(b.another(Options{DB: c, Store: store.New(c, store.Video()), lease: 2 * time.Second, Trouble: func(err error) { troubles <- err }}))
	b.submit()
	rc.wait(b, 1)
	c.cut.Store(true)
	if err := <-troubles; !errors.Is(err, errCut) {
		t.Errorf("told %v", err)
	}
	b.submit()
	c.cut.Store(false)
	for err := range troubles {
		if err == nil {
			break
		}
	}
	rc.wait(b, 2)
}

// far is a store that takes its time.
type far struct {
	*store.Store
	each time.Duration
}

func (f far) Get(ctx context.Context, id store.ID) (store.Task, error) {
	pause(ctx, f.each)
	return f.Store.Get(ctx, id)
}

// What is known of many tasks may take longer to find out than the lease lasts.
func TestEventsOfManyTasksArePreparedThoughTheDatabaseIsFarAway(t *testing.T) {
	t.Parallel()
	const tasks, each = 40, 25 * time.Millisecond
	b := setup(t, Options{Concurrency: tasks, PerWebhook: tasks})
	b.Webhooks = b.another(Options{Store: far{b.store, each}, Concurrency: tasks, PerWebhook: tasks, lease: tasks * each / 2})
	rc := receive(t, nil)
	b.add(rc.URL, string(store.TaskSubmitted))
	for range tasks {
		b.submit()
	}
	b.run()
	got := map[store.ID]bool{}
	for _, r := range rc.wait(b, tasks) {
		got[r.Data.Task.ID] = true
	}
	if len(got) != tasks {
		t.Errorf("told of %d tasks, want %d", len(got), tasks)
	}
}
