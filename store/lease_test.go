package store_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// session opens a session that holds a worker's lock; the function it returns
// ends it as a killed process would.
func (b bundle) session(key int64) (end func()) {
	b.t.Helper()
	conn, err := pgx.ConnectConfig(b.t.Context(), b.pool.Config().ConnConfig)
	if err != nil {
		b.t.Fatal(err)
	}
	var pid int
	if err := conn.QueryRow(b.t.Context(), `select pg_backend_pid() from pg_advisory_lock_shared($1)`, key).Scan(&pid); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.Close(b.t.Context()) })
	return func() {
		b.t.Helper()
		conn.PgConn().Conn().Close()
		late := time.Now().Add(time.Minute)
		for there := true; there; {
			if time.Now().After(late) {
				b.t.Fatal("the session does not end")
			}
			row := b.pool.QueryRow(b.t.Context(), `select exists (select from pg_stat_activity where pid = $1)`, pid)
			if err := row.Scan(&there); err != nil {
				b.t.Fatal(err)
			}
		}
	}
}

// lost are the workers that a sweep of somebody who was never away gives up, after change has had its way with it. change may be nil.
func (b bundle) lost(change func(*engine.SweepRequest)) []store.ID {
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

// silent makes it so long since the worker's last beat and its last claim.
func (b bundle) silent(w store.ID, ago string) {
	b.t.Helper()
	b.exec("update workers set heartbeat_at = now() - $2::interval where id = $1", w, ago)
	b.exec("update tasks set ingest_locked_at = now() - $2::interval where ingest_locked_by = $1", w, ago)
}

func TestWorkerWhoseSessionEndedIsGivenUpAfterTheGrace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const key = 1<<40 + 1<<31 + 7
	id, w, other := b.submit(), b.worker(), b.worker()
	b.claim(w, ingest)
	end := b.session(key)
	if _, err := b.Heartbeat(t.Context(), engine.HeartbeatRequest{Worker: w, Session: key}); err != nil {
		t.Fatal(err)
	}
	gone := func() bool {
		t.Helper()
		out, err := b.Heartbeat(t.Context(), engine.HeartbeatRequest{Worker: other, Credit: &engine.OutageCredit{}})
		brief, briefErr := b.Heartbeat(t.Context(), engine.HeartbeatRequest{Worker: other, Credit: &engine.OutageCredit{}, SkipChecks: true})
		if err := errors.Join(err, briefErr); err != nil {
			t.Fatal(err)
		}
		if brief.WorkerExpired != out.WorkerExpired {
			t.Errorf("a brief heartbeat says %v, another one %v", brief.WorkerExpired, out.WorkerExpired)
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
	// A beat while the listener connects anew does not make the session forgotten.
	if _, err := b.beat(w); err != nil {
		t.Fatal(err)
	}
	b.silent(w, "8 s")
	if lost := b.lost(nil); len(lost) > 0 || gone() || !connected() {
		t.Errorf("given up although its session is open: %v", lost)
	}
	end()
	b.silent(w, "6 s")
	if lost := b.lost(nil); len(lost) > 0 || gone() || connected() {
		t.Errorf("given up within the grace: %v", lost)
	}
	b.silent(w, "8 s")
	if lost := b.lost(func(s *engine.SweepRequest) { s.Credit.Grace = 2 * time.Second }); len(lost) > 0 {
		t.Errorf("given up by somebody who was away himself for 2 s of that: %v", lost)
	}
	if !gone() {
		t.Error("others are not told that it is gone")
	}
	if lost := b.lost(nil); !slices.Equal(lost, []store.ID{w}) {
		t.Errorf("lost are %v, want %s", lost, w)
	}
	b.want(id, failing, pending, pending, pending, pending)
	if gone() {
		t.Error("it is told of twice")
	}
}

func TestHeartbeat_ThatSkipsChecksIsOneStatementAndASignOfLife(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.silent(w, "6 s")
	out, err := b.Heartbeat(t.Context(), engine.HeartbeatRequest{Worker: w, Credit: &engine.OutageCredit{}, SkipChecks: true})
	if err != nil || out.Paused != nil || out.Now.IsZero() {
		t.Errorf("%+v, %v; want nothing of what is paused", out, err)
	}
	if n := b.number("select count(*) from workers where heartbeat_at > now() - interval '5 s'"); n != 1 {
		t.Error("it was no sign of life")
	}
	if out, err = b.Heartbeat(t.Context(), engine.HeartbeatRequest{Worker: w, Credit: &engine.OutageCredit{}}); err != nil || len(out.Paused) != 5 {
		t.Errorf("%+v, %v; want which of five stages are paused", out, err)
	}
}

func TestWorkerWithoutASessionIsGivenUpAfterItsOwnLease(t *testing.T) {
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
	usual, patient := register(0), register(10*time.Minute)
	b.silent(usual, "35 s")
	b.silent(patient, "9 minutes")
	if lost := b.lost(nil); len(lost) > 0 {
		t.Errorf("given up within their leases: %v", lost)
	}
	b.silent(usual, "37 s")
	if lost := b.lost(func(s *engine.SweepRequest) { s.Credit.Lease = 2 * time.Second }); len(lost) > 0 {
		t.Errorf("given up by somebody who was away: %v", lost)
	}
	if lost := b.lost(func(s *engine.SweepRequest) { s.Credit = nil }); len(lost) > 0 {
		t.Errorf("given up by somebody who may not: %v", lost)
	}
	if lost := b.lost(nil); !slices.Equal(lost, []store.ID{usual}) {
		t.Errorf("lost are %v, want %s", lost, usual)
	}
	b.silent(patient, "11 minutes")
	if lost := b.lost(nil); !slices.Equal(lost, []store.ID{patient}) {
		t.Errorf("lost are %v, want %s", lost, patient)
	}
}

func TestWorkerThatRegisteredAndNeverBeatIsGivenUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.exec("update workers set started_at = now() - interval '1 minute', heartbeat_at = now() - interval '1 minute' where id = $1", w)
	if lost := b.lost(nil); !slices.Equal(lost, []store.ID{w}) {
		t.Errorf("lost are %v", lost)
	}
}

func TestWorkerWithAYoungClaimIsNotGivenUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.submit()
	w := b.worker()
	b.claim(w, ingest)
	b.exec("update workers set heartbeat_at = now() - interval '1 minute' where id = $1", w)
	if lost := b.lost(nil); len(lost) > 0 {
		t.Errorf("given up a moment after it claimed: %v", lost)
	}
}

// A clock that was changed makes everybody look silent, or nobody.
func TestChangedClockOfTheDatabaseGivesUpNobodyWhoLives(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.worker()
	b.silent(w, "1 hour") // as it looks when the clock was put an hour ahead
	for _, off := range []time.Duration{-time.Hour, -3 * time.Second, 3 * time.Second, time.Hour} {
		if lost := b.lost(func(s *engine.SweepRequest) { s.ExpectedClock = time.Now().Add(off) }); len(lost) > 0 {
			t.Errorf("given up although the clock is %s off", off)
		}
	}
	b.silent(w, "-1 hour") // put back after its last beat
	if lost := b.lost(func(s *engine.SweepRequest) { s.ExpectedClock = time.Now() }); !slices.Equal(lost, []store.ID{w}) {
		t.Errorf("lost are %v: a beat from the future is none", lost)
	}
}

func TestBeatThatArrivesWhileItsWorkerIsGivenUpWins(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	b.claim(w, ingest)
	b.silent(w, "1 minute")
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.New(tx, b.Graph()).Heartbeat(t.Context(), engine.HeartbeatRequest{Worker: w}); err != nil {
		t.Fatal(err)
	}
	if lost := b.lost(nil); len(lost) > 0 {
		t.Errorf("given up while it beats: %v", lost)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lost := b.lost(nil); len(lost) > 0 {
		t.Errorf("given up after it has beaten: %v", lost)
	}
	b.want(id, inprogress, pending, pending, pending, pending)
}

func TestDeadWorkersAreGivenUpOnWord(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	c := b.claim(w, ingest)
	for _, want := range [][]store.ID{{w}, nil} {
		if lost, err := b.ExpireWorkers(t.Context(), []store.ID{w}); err != nil || !slices.Equal(lost, want) {
			t.Errorf("given up are %v, %v; want %v", lost, err, want)
		}
	}
	if _, err := b.beat(w); !errors.Is(err, store.ErrWorkerUnknown) {
		t.Errorf("it may go on: %v", err)
	}
	b.lost(nil)
	b.want(id, failing, pending, pending, pending, pending)
	if out := b.turn(w, 0, []engine.Report{completed(c)}); len(out.Stale) != 1 {
		t.Error("its late report was taken")
	}
}

// A worker that stops while somebody has the outbox locked has stopped all the same.
func TestLeave_CountsNoAttemptAlsoWhileTheOutboxIsLocked(t *testing.T) {
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
	b.lost(nil)
	b.want(id, pending, pending, pending, pending, pending)
}

// Whoever sweeps passes over rows that somebody has locked, and says so.
func TestSweepTellsOfClaimsItCouldNotTake(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.submit()
	w := b.worker()
	b.claim(w, ingest)
	if _, err := b.ExpireWorkers(t.Context(), []store.ID{w}); err != nil {
		t.Fatal(err)
	}
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select from tasks for update"); err != nil {
		t.Fatal(err)
	}
	in := engine.SweepRequest{MaxAttempts: []int{3, 3, 3, 3, 3}}
	if out, err := b.Sweep(t.Context(), in); err != nil || out.ExpiredClaims != 0 || !out.RowsLocked {
		t.Errorf("swept %+v, %v", out, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out, err := b.Sweep(t.Context(), in); err != nil || out.ExpiredClaims != 1 || out.RowsLocked {
		t.Errorf("swept %+v, %v", out, err)
	}
}

func TestTurnHasALimitOfItsOwnWhateverTheRoleMayTake(t *testing.T) {
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
	if out, err := s.Exchange(t.Context(), turn(b.worker(), 1, nil, ingest)); err != nil || len(out.Claims) != 1 {
		t.Errorf("claimed %d, %v", len(out.Claims), err)
	}
}

func TestWorkersOfOtherPipelinesAreNobodysBusiness(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w, other := b.worker(), b.worker()
	b.silent(other, "1 hour")
	b.exec("update workers set pipeline = 'other' where id = $1", other)
	if lost := b.lost(nil); len(lost) > 0 {
		t.Errorf("given up are %v", lost)
	}
	out, err := b.Heartbeat(t.Context(), engine.HeartbeatRequest{Worker: w, Credit: &engine.OutageCredit{}})
	if err != nil || out.WorkerExpired {
		t.Errorf("somebody is told to be gone: %v", err)
	}
}

// Somebody may have set the counter by hand while the stage was running.
func TestCounterThatWasSetByHandStopsNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id, w := b.submit(), b.worker()
	c := b.claim(w, ingest)
	b.exec("update tasks set ingest_attempts = 0")
	released := engine.Report{Task: c.Task, Stage: c.Stage, Token: c.Token, Outcome: engine.Released}
	if out := b.turn(w, 0, []engine.Report{released}); len(out.Stale) != 0 {
		t.Errorf("stale is %v", out.Stale)
	}
	b.claim(w, ingest)
	b.exec("update tasks set ingest_attempts = 0")
	if err := b.DeregisterWorker(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	b.lost(nil)
	b.want(id, pending, pending, pending, pending, pending)
}
