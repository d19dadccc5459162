package remote_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/store"
)

// submitMany adds tasks.
func (s *site) submitMany(n int) {
	s.t.Helper()
	subs := make([]store.Submission, n)
	for i := range subs {
		subs[i].Source = "a source"
	}
	if _, err := s.SubmitAll(context.Background(), subs); err != nil {
		s.t.Fatal(err)
	}
}

// claimSome offers slots of the first stage, and returns the claims.
func (s *site) claimSome(key string, worker store.ID, slots int, wait string) []claimed {
	s.t.Helper()
	var out exchanged
	s.call(key, "/exchange", fmt.Sprintf(`{"worker_id":%q,"free_slots":{"first":%d},"wait_s":%s}`, worker, slots, wait), &out)
	return out.Claims
}

func TestRegister_LimitsTheWorkersOfAKey(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	s.coordinator = s.startCoordinator(func(o *remote.Options) { o.MaxWorkers = 2 })
	one := s.register("key-1")
	s.register("key-1")
	const body = `{"protocol":1,"pipeline":"test","host":"h","pid":1}`
	if status, text := s.sendAs("key-1", "POST", "/register", body); status != http.StatusTooManyRequests ||
		!strings.Contains(string(text), "too-many-workers") {
		t.Errorf("the third got %d: %s", status, text)
	}
	s.register("key-2")
	s.send("POST", "/deregister", fmt.Sprintf(`{"worker_id":%q}`, one), http.StatusNoContent, nil)
	s.register("key-1")
}

func TestCoordinator_LimitsTheClaimsOfAKey(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	s.coordinator = s.startCoordinator(func(o *remote.Options) { o.MaxClaims = 3 })
	a, b, other := s.register("key-1"), s.register("key-1"), s.register("key-2")
	s.submitMany(5)
	held := s.claimSome("key-1", a, 5, "5")
	if len(held) != 3 {
		t.Fatalf("the first worker got %d claims, want 3", len(held))
	}
	granted := make(chan []claimed, 1)
	go func() { granted <- s.claimSome("key-1", b, 5, "30") }()
	waittest.Equal(t, "the number of waiting requests", 1, s.Waiting)
	if got := s.claimSome("key-2", other, 1, "5"); len(got) != 1 {
		t.Errorf("the worker of another key got %d claims, want 1", len(got))
	}
	select {
	case got := <-granted:
		t.Fatalf("beyond the limit of the key, a worker got %v", got)
	default:
	}
	s.report("key-1", a, held[0].Token, `"outcome":"completed","result":1`)
	if got := <-granted; len(got) != 1 {
		t.Errorf("after a report the waiting worker got %d claims, want 1", len(got))
	}
}

func TestCoordinator_LimitsTheClaimsOfAWorker(t *testing.T) {
	t.Parallel()
	const most = 256
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	worker := s.register("key-1")
	s.submitMany(most + 10)
	if got := s.claimSome("key-1", worker, 1000, "5"); len(got) != most {
		t.Errorf("it got %d claims, want %d", len(got), most)
	}
	if got := s.claimSome("key-1", worker, 1000, "0"); len(got) != 0 {
		t.Errorf("it got %d claims more", len(got))
	}
}

func TestCoordinator_EndsAWorkerThatOnlyRegistered(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	const lease = `"lease_s":3600`
	used, silent, elsewhere := s.registerWith("key-1", lease), s.registerWith("key-1", lease), s.registerWith("key-1", lease)
	s.exchange(used, `"free_slots":{"first":1}`)
	time.Sleep(20 * time.Millisecond)
	// As another coordinator does after a request.
	if _, err := s.pool.Exec(t.Context(), "update test_workers set heartbeat_at = now() + interval '1 min' where id = $1",
		elsewhere); err != nil {
		t.Fatal(err)
	}
	if err := s.EndUnused(t.Context(), 10*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for worker, want := range map[store.ID]bool{used: true, silent: false, elsewhere: true} {
		found, err := s.FindWorkers(t.Context(), []store.ID{worker})
		if err != nil || len(found) != 1 || found[0].Connected != want {
			t.Errorf("%v: %+v, %v; want connected %t", worker, found, err, want)
		}
	}
	s.exchange(silent, `"free_slots":{"first":1}`) // it may come back before it is expired
}

// rowTracer has the most rows that a query has returned.
type rowTracer struct{ most atomic.Int64 }

func (r *rowTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (r *rowTracer) TraceQueryEnd(_ context.Context, _ *pgx.Conn, d pgx.TraceQueryEndData) {
	r.most.Store(max(r.most.Load(), d.CommandTag.RowsAffected()))
}

func TestCoordinator_ReadsNoWorkersOfOtherKeys(t *testing.T) {
	t.Parallel()
	s := setup(t, stages.Stage{Name: "first", Work: echo})
	worker := s.register("key-1")
	for range 5 {
		s.register("key-2")
	}
	rows := &rowTracer{}
	config := s.pool.Config()
	config.ConnConfig.Tracer = rows
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	c := s.at(s.startCoordinator(func(o *remote.Options) { o.Pool = pool }))
	c.exchange(worker, `"free_slots":{"first":1}`)
	c.send("GET", "/workers", "", http.StatusOK, nil)
	c.send("POST", "/workers/expire", fmt.Sprintf(`{"worker_ids":[%q]}`, worker), http.StatusOK, nil)
	if n := rows.most.Load(); n != 1 {
		t.Errorf("a query has returned %d rows, want 1", n)
	}
}
