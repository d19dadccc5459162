package store_test

import (
	"bytes"
	"context"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// stopped is a connection of a process that may be stopped while it sends a request:
// then the end, the Sync, never leaves it, and it does not close.
type stopped struct {
	net.Conn
	now  *atomic.Bool
	last bool // what was sent is all that ever will be
}

func (c *stopped) Write(b []byte) (int, error) {
	sent := b
	if sync := []byte("S\x00\x00\x00\x04"); c.now.Load() {
		sent = bytes.TrimSuffix(b, sync)
		if c.last {
			sent = nil
		}
		c.last = true
	}
	_, err := c.Conn.Write(sent)
	return len(b), err
}

func (c *stopped) Close() error {
	if c.now.Load() {
		return nil
	}
	return c.Conn.Close()
}

// stopping is the bundle in a process of its own, with one connection, which stops in
// the middle of its next request once stop is called.
func (b bundle) stopping() (process bundle, stop func()) {
	b.t.Helper()
	var now atomic.Bool
	config := b.pool.Config()
	config.MinConns, config.MaxConns = 0, 1
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if now.Load() {
			return nil, net.ErrClosed // no second connection to cancel anything
		}
		conn, err := dial(ctx, network, address)
		if err == nil {
			b.t.Cleanup(func() { conn.Close() })
		}
		return &stopped{Conn: conn, now: &now}, err
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	must(b.t, err)
	b.t.Cleanup(pool.Close)
	return newBundle(b.t, pool, b.Graph()), func() { now.Store(true) }
}

// hurried registers a worker whose lease is over in a moment.
func (b bundle) hurried() store.ID {
	b.t.Helper()
	id, err := b.RegisterWorker(b.t.Context(), store.Worker{Host: "test", PID: 1, Lease: time.Second})
	must(b.t, err)
	return id
}

// half sends a request of which the end is missing.
func (b bundle) half(request func(context.Context) error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := request(ctx); err == nil {
		b.t.Error("the request was answered")
	}
}

// sweepUntil sweeps until what is to be so is so.
func (b bundle) sweepUntil(what string, is func(engine.SweepResult) bool) {
	b.t.Helper()
	for late := time.Now().Add(30 * time.Second); time.Now().Before(late); time.Sleep(20 * time.Millisecond) {
		out, err := b.Sweep(b.t.Context(), engine.SweepRequest{Credit: &engine.OutageCredit{}, MaxAttempts: []int{3, 3, 3, 3, 3}})
		must(b.t, err)
		if is(out) {
			return
		}
	}
	b.t.Fatalf("%s: not so after 30 s", what)
}

func TestSweep_EndsTheTurnOfAProcessThatStandsStill(t *testing.T) {
	t.Parallel()
	b := setup(t)
	process, stop := b.stopping()
	w := process.hurried()
	b.submit()
	process.turn(w, 1, []engine.Report{completed(process.claim(w, ingest))}) // so that all is prepared
	b.exec("delete from tasks")
	id := b.submit()
	c := process.claim(w, ingest)
	stop()
	process.half(func(ctx context.Context) error {
		_, err := process.Exchange(ctx, turn(w, 1, []engine.Report{completed(c)}))
		return err
	})
	late := b.submit()
	if b.hasEventOf(late) {
		t.Fatal("the turn is not open: readers see what came after it")
	}
	b.sweepUntil("the worker is given up", func(out engine.SweepResult) bool { return slices.Contains(out.ExpiredWorkers, w) })
	b.sweepUntil("its rows are free", func(engine.SweepResult) bool { return b.statuses(id)[ingest] == failing })
	b.want(id, failing, pending, pending, pending, pending)
	if !b.hasEventOf(late) {
		t.Error("readers of events are still held up")
	}
}

func TestSweep_GivesUpAWorkerThatStandsStillInItsHeartbeat(t *testing.T) {
	t.Parallel()
	b := setup(t)
	process, stop := b.stopping()
	w := process.hurried()
	id := b.submit()
	process.claim(w, ingest)
	_, err := process.beat(w)
	must(t, err)
	stop()
	process.half(func(ctx context.Context) error {
		_, err := process.Heartbeat(ctx, engine.HeartbeatRequest{Worker: w})
		return err
	})
	if n := b.number(`select count(*) from (select from workers for update skip locked) as free`); n != 0 {
		t.Fatal("its row is not locked")
	}
	b.sweepUntil("the worker is given up", func(out engine.SweepResult) bool { return slices.Contains(out.ExpiredWorkers, w) })
	b.sweepUntil("its claim is free", func(engine.SweepResult) bool { return b.statuses(id)[ingest] == failing })
}

func TestSweep_EndsAWorkerThatStandsStillWhileItLeaves(t *testing.T) {
	t.Parallel()
	b := setup(t)
	process, stop := b.stopping()
	must(t, process.DeregisterWorker(t.Context(), process.hurried())) // so that all is prepared
	w := process.hurried()
	stop()
	process.half(func(ctx context.Context) error { return process.DeregisterWorker(ctx, w) })
	late := b.submit()
	if b.hasEventOf(late) {
		t.Fatal("its transaction is not open: readers see what came after it")
	}
	b.sweepUntil("the worker is given up", func(out engine.SweepResult) bool { return slices.Contains(out.ExpiredWorkers, w) })
	if !b.hasEventOf(late) {
		t.Error("readers of events are still held up")
	}
}

func TestRegister_ThatStandsStillHoldsUpNoReader(t *testing.T) {
	t.Parallel()
	b := setup(t)
	process, stop := b.stopping()
	process.hurried() // so that all is prepared
	stop()
	process.half(func(ctx context.Context) error {
		_, err := process.RegisterWorker(ctx, store.Worker{Host: "test", PID: 1})
		return err
	})
	if late := b.submit(); !b.hasEventOf(late) {
		t.Error("readers of events are held up")
	}
}

func (b bundle) hasEventOf(task store.ID) bool {
	b.t.Helper()
	return slices.ContainsFunc(b.events(0), func(e store.Event) bool { return e.Task == task })
}

func TestSweep_TakesNoStrangersSessionForAWorkers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, name := range []string{strings.Repeat("-", 36), strings.Repeat("0", 36), "01a2037a-04ec-76e1-88a6-47847a9c449b"} {
		stranger, err := pgx.ConnectConfig(t.Context(), b.pool.Config().ConnConfig)
		must(t, err)
		defer stranger.Close(context.Background())
		_, err = stranger.Exec(t.Context(), "select set_config('application_name', $1, false)", "cuelight "+name)
		must(t, err)
	}
	if lost := b.lost(nil); len(lost) > 0 {
		t.Errorf("%v were given up", lost)
	}
}

// A role that may not end the transaction of another says so, and fails in nothing else.
func TestSweep_TellsOfATransactionThatItMayNotEnd(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, pgtest.ServerOptions{})
	g := store.Video()
	pool := server.New(pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
	b := newBundle(t, pool, g)
	b.exec(`create role other login`)
	b.exec(`grant all on all tables in schema public to other; grant all on all sequences in schema public to other`)
	process, stop := b.stopping()
	w := process.hurried()
	_, err := process.beat(w)
	must(t, err)
	stop()
	process.half(func(ctx context.Context) error {
		_, err := process.Heartbeat(ctx, engine.HeartbeatRequest{Worker: w})
		return err
	})
	config := b.pool.Config()
	config.ConnConfig.User = "other"
	as, err := pgxpool.NewWithConfig(t.Context(), config)
	must(t, err)
	defer as.Close()
	other := newBundle(t, as, g)
	other.sweepUntil("it is told", func(out engine.SweepResult) bool { return slices.Equal(out.OpenTransactions, []store.ID{w}) })
	b.sweepUntil("its own role gives it up", func(out engine.SweepResult) bool { return slices.Contains(out.ExpiredWorkers, w) })
}

// Where the server has a limit for whole transactions, one whose process stands still
// ends by itself.
func TestTurn_IsEndedByAServerThatHasALimitForTransactions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if b.number(`select current_setting('server_version_num')::int`) < 170000 {
		t.Skip("transaction_timeout is new in PostgreSQL 17")
	}
	b.exec(`create table seen (value text)`)
	b.exec(`create function see() returns trigger language plpgsql as $$
		begin insert into seen values (current_setting('transaction_timeout')); return null; end $$`)
	b.exec(`create trigger see after update on tasks for each statement execute function see()`)
	b.exec(`create trigger see after update on workers for each statement execute function see()`)
	b.submit()
	w := b.worker()
	b.claim(w, ingest)
	_, err := b.beat(w)
	must(t, err)
	if n := b.number(`select count(*) from seen where value = '30s'`); n != 2 {
		t.Errorf("%d of a turn and a heartbeat have a limit", n)
	}
}
