package store_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// session opens a session that holds a worker's lock. The returned function ends it as
// the death of the process would.
func (b bundle) session(key int64) (end func()) {
	b.t.Helper()
	conn, err := pgx.ConnectConfig(b.t.Context(), b.pool.Config().ConnConfig)
	if err != nil {
		b.t.Fatal(err)
	}
	var pid int
	err = conn.QueryRow(b.t.Context(), `select pg_backend_pid() from pg_advisory_lock_shared($1)`, key).Scan(&pid)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.Close(b.t.Context()) })
	return func() {
		b.t.Helper()
		conn.PgConn().Conn().Close()
		waittest.Until(b.t, "the session has ended", func() (ended bool) {
			row := b.pool.QueryRow(b.t.Context(), `select not exists (select from pg_stat_activity where pid = $1)`, pid)
			must(b.t, row.Scan(&ended))
			return ended
		})
	}
}

// sweepExpired sweeps without outage credit, and returns the workers that expired. change,
// if not nil, changes the request.
func (b bundle) sweepExpired(change func(*engine.SweepRequest)) []store.ID {
	b.t.Helper()
	in := engine.SweepRequest{Credit: &engine.OutageCredit{}, MaxAttempts: []int{3, 3, 3, 3, 3}}
	if change != nil {
		change(&in)
	}
	out, err := b.Sweep(b.t.Context(), in)
	if err != nil {
		b.t.Fatal(err)
	}
	return out.ExpiredWorkers
}

// setLastHeartbeat sets how long ago the worker's last heartbeat and claims were.
func (b bundle) setLastHeartbeat(w store.ID, ago string) {
	b.t.Helper()
	b.exec("update workers set heartbeat_at = now() - $2::interval where id = $1", w, ago)
	b.exec("update steps set locked_at = now() - $2::interval where locked_by = $1", w, ago)
}

func TestSweep_ExpiresAWorkerWithoutItsSessionAfterTheGrace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const key = 1<<40 + 1<<31 + 7
	id, w, other := b.submit(), b.worker(), b.worker()
	b.claim(w, ingest)
	end := b.session(key)
	if _, err := b.Heartbeat(t.Context(), engine.HeartbeatRequest{Worker: w, Session: key}); err != nil {
		t.Fatal(err)
	}
	expired := func() bool {
		t.Helper()
		out, err := b.Heartbeat(t.Context(), engine.HeartbeatRequest{Worker: other, Credit: &engine.OutageCredit{}})
		unchecked, uncheckedErr := b.Heartbeat(t.Context(), engine.HeartbeatRequest{
			Worker: other, Credit: &engine.OutageCredit{}, SkipChecks: true,
		})
		if err := errors.Join(err, uncheckedErr); err != nil {
			t.Fatal(err)
		}
		if unchecked.WorkerExpired != out.WorkerExpired {
			t.Errorf("WorkerExpired is %v without checks, and %v with them", unchecked.WorkerExpired, out.WorkerExpired)
		}
		return out.WorkerExpired
	}
	connected := func() bool {
		t.Helper()
		all, err := b.Workers(t.Context(), false)
		if err != nil || len(all) != 2 || all[0].ID != w {
			t.Fatal(all, err)
		}
		return all[0].Connected
	}
	// A heartbeat without a session, while the listener reconnects, keeps the session's key.
	if _, err := b.heartbeat(w); err != nil {
		t.Fatal(err)
	}
	b.setLastHeartbeat(w, "8 s")
	if lost := b.sweepExpired(nil); len(lost) > 0 || expired() || !connected() {
		t.Errorf("expired although the session is open: %v", lost)
	}
	end()
	b.setLastHeartbeat(w, "6 s")
	if lost := b.sweepExpired(nil); len(lost) > 0 || expired() || connected() {
		t.Errorf("expired within the grace: %v", lost)
	}
	b.setLastHeartbeat(w, "8 s")
	if lost := b.sweepExpired(func(s *engine.SweepRequest) { s.Credit.DisconnectGrace = 2 * time.Second }); len(lost) > 0 {
		t.Errorf("expired despite an outage credit of 2 s: %v", lost)
	}
	if !expired() {
		t.Error("other workers' heartbeats do not report the expired worker")
	}
	if lost := b.sweepExpired(nil); !slices.Equal(lost, []store.ID{w}) {
		t.Errorf("expired workers are %v, want %s", lost, w)
	}
	b.wantStatuses(id, failing, pending, pending, pending, pending)
	if expired() {
		t.Error("the expired worker is reported twice")
	}
}

// With a long lease the grace is as many heartbeats.
func TestSweep_ExpiresAWorkerWithALongLeaseAfterItsGrace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for lease, want := range map[time.Duration]time.Duration{
		5 * time.Second: time.Second, store.DefaultLease: 7 * time.Second, 2 * time.Minute: 7 * time.Second, time.Hour: 211 * time.Second,
	} {
		grace := store.DisconnectGrace(lease)
		if grace.Truncate(time.Second) != want || grace < 3*store.HeartbeatInterval(lease) {
			t.Errorf("the grace of a lease of %s is %s, want %s, and a heartbeat is sent every %s",
				lease, grace, want, store.HeartbeatInterval(lease))
		}
		w, err := b.RegisterWorker(t.Context(), store.Worker{Host: "test", PID: 1, Lease: lease})
		must(t, err)
		b.exec("update workers set session = 1 where id = $1", w) // which nobody has
		b.setLastHeartbeat(w, (grace - 500*time.Millisecond).String())
		if lost := b.sweepExpired(nil); len(lost) > 0 {
			t.Errorf("expired within the grace of a lease of %s: %v", lease, lost)
		}
		b.setLastHeartbeat(w, (grace + 500*time.Millisecond).String())
		if lost := b.sweepExpired(nil); !slices.Equal(lost, []store.ID{w}) {
			t.Errorf("after the grace of a lease of %s, expired are %v", lease, lost)
		}
	}
}

func TestHeartbeat_WithoutChecksRenewsTheLease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.setLastHeartbeat(w, "6 s")
	out, err := b.Heartbeat(t.Context(), engine.HeartbeatRequest{
		Worker: w, Credit: &engine.OutageCredit{}, SkipChecks: true,
	})
	if err != nil || out.Paused != nil || out.Now.IsZero() {
		t.Errorf("%+v, %v; want Paused nil, and the time", out, err)
	}
	if n := b.queryInt("select count(*) from workers where heartbeat_at > now() - interval '5 s'"); n != 1 {
		t.Error("the heartbeat did not renew the lease")
	}
	out, err = b.Heartbeat(t.Context(), engine.HeartbeatRequest{Worker: w, Credit: &engine.OutageCredit{}})
	if err != nil || len(out.Paused) != 5 {
		t.Errorf("%+v, %v; want Paused of five stages", out, err)
	}
}

func TestSweep_ExpiresAWorkerAfterItsOwnLease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	register := func(lease time.Duration) store.ID {
		t.Helper()
		id, err := b.RegisterWorker(t.Context(), store.Worker{Host: "test", PID: 1, Lease: lease})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	short, long := register(0), register(10*time.Minute)
	b.setLastHeartbeat(short, "35 s")
	b.setLastHeartbeat(long, "9 minutes")
	if lost := b.sweepExpired(nil); len(lost) > 0 {
		t.Errorf("expired within their leases: %v", lost)
	}
	b.setLastHeartbeat(short, "37 s")
	if lost := b.sweepExpired(func(s *engine.SweepRequest) { s.Credit.Lease = 2 * time.Second }); len(lost) > 0 {
		t.Errorf("expired despite an outage credit of 2 s: %v", lost)
	}
	if lost := b.sweepExpired(func(s *engine.SweepRequest) { s.Credit = nil }); len(lost) > 0 {
		t.Errorf("expired by a sweep that must not expire workers: %v", lost)
	}
	if lost := b.sweepExpired(nil); !slices.Equal(lost, []store.ID{short}) {
		t.Errorf("expired workers are %v, want %s", lost, short)
	}
	b.setLastHeartbeat(long, "11 minutes")
	if lost := b.sweepExpired(nil); !slices.Equal(lost, []store.ID{long}) {
		t.Errorf("expired workers are %v, want %s", lost, long)
	}
}

func TestSweep_ExpiresAWorkerThatNeverSentAHeartbeat(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.exec(`update workers set started_at = now() - interval '1 minute', heartbeat_at = now() - interval '1 minute'
		where id = $1`, w)
	if lost := b.sweepExpired(nil); !slices.Equal(lost, []store.ID{w}) {
		t.Errorf("expired workers are %v", lost)
	}
}

func TestSweep_KeepsAWorkerWithARecentClaim(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.submit()
	w := b.worker()
	b.claim(w, ingest)
	b.exec("update workers set heartbeat_at = now() - interval '1 minute' where id = $1", w)
	if lost := b.sweepExpired(nil); len(lost) > 0 {
		t.Errorf("expired right after it claimed: %v", lost)
	}
}

// After a change of the database's clock, heartbeats seem too old or too new.
func TestSweep_ExpiresNoWorkerAfterAClockChange(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.setLastHeartbeat(w, "1 hour") // as after the clock was set an hour ahead
	for _, change := range []time.Duration{-time.Hour, -3 * time.Second, 3 * time.Second, time.Hour} {
		if lost := b.sweepExpired(func(s *engine.SweepRequest) { s.ExpectedClock = time.Now().Add(change) }); len(lost) > 0 {
			t.Errorf("expired although the clock is wrong by %s", change)
		}
	}
	b.setLastHeartbeat(w, "-1 hour") // as after the clock was set back
	lost := b.sweepExpired(func(s *engine.SweepRequest) { s.ExpectedClock = time.Now() })
	if !slices.Equal(lost, []store.ID{w}) {
		t.Errorf("expired workers are %v; a heartbeat in the future must not count", lost)
	}
}

func TestExpireWorkers_FreesTheirClaims(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	c := b.claim(w, ingest)
	for _, want := range [][]store.ID{{w}, nil} {
		if lost, err := b.ExpireWorkers(t.Context(), []store.ID{w}); err != nil || !slices.Equal(lost, want) {
			t.Errorf("expired workers are %v, %v; want %v", lost, err, want)
		}
	}
	if _, err := b.heartbeat(w); !errors.Is(err, store.ErrWorkerUnknown) {
		t.Errorf("the expired worker's heartbeat returned %v", err)
	}
	b.sweepExpired(nil)
	b.wantStatuses(id, failing, pending, pending, pending, pending)
	if out := b.exchange(w, 0, []engine.Report{completed(c)}); len(out.Stale) != 1 {
		t.Error("its late report was accepted")
	}
}

// A worker that stops while the outbox is locked is recorded as stopped.
func TestDeregisterWorker_CountsNoAttemptWhileTheOutboxIsLocked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	b.claim(w, ingest)
	tx, err := b.pool.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), "lock table outbox")
	must(t, err)
	must(t, b.DeregisterWorker(t.Context(), w))
	must(t, tx.Rollback(t.Context()))
	b.sweepExpired(nil)
	b.wantStatuses(id, pending, pending, pending, pending, pending)
}

func TestExchange_IgnoresTheRolesStatementTimeout(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(`create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(1); return new; end $$`)
	b.exec(`create trigger slow before update on tasks for each statement execute function slow()`)
	config := b.pool.Config().ConnConfig.Copy()
	config.RuntimeParams["statement_timeout"] = "500"
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	s := engine.New(conn, b.Graph())
	b.submit()
	out, err := s.Exchange(t.Context(), exchangeRequest(b.worker(), 1, nil, ingest))
	if err != nil || len(out.Claims) != 1 {
		t.Errorf("claimed %d, %v", len(out.Claims), err)
	}
}

// An operator may set the counter of attempts by hand while the stage is running.
func TestRelease_WorksAfterAttemptsWereSetByHand(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	c := b.claim(w, ingest)
	b.exec("update steps set attempts = 0")
	released := engine.Report{Task: c.Task, Stage: c.Stage, Token: c.Token, Outcome: engine.Released}
	if out := b.exchange(w, 0, []engine.Report{released}); len(out.Stale) != 0 {
		t.Errorf("stale is %v", out.Stale)
	}
	b.claim(w, ingest)
	b.exec("update steps set attempts = 0")
	if err := b.DeregisterWorker(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	b.sweepExpired(nil)
	b.wantStatuses(id, pending, pending, pending, pending, pending)
}
