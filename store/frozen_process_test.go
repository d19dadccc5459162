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
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// interruptibleConn is a connection of a process that a test can freeze while it sends a
// request. The end of the request, the Sync message, is then never sent, and the
// connection stays open.
type interruptibleConn struct {
	net.Conn
	interrupted *atomic.Bool
	endReached  bool // the rest of the request is dropped
}

func (c *interruptibleConn) Write(b []byte) (int, error) {
	sent := b
	if sync := []byte("S\x00\x00\x00\x04"); c.interrupted.Load() {
		sent = bytes.TrimSuffix(b, sync)
		if c.endReached {
			sent = nil
		}
		c.endReached = true
	}
	_, err := c.Conn.Write(sent)
	return len(b), err
}

func (c *interruptibleConn) Close() error {
	if c.interrupted.Load() {
		return nil
	}
	return c.Conn.Close()
}

// interruptible returns the bundle with its own pool of one connection, as of another
// process. After freeze is called, that process freezes in the middle of its next request.
func (b bundle) interruptible() (process bundle, freeze func()) {
	b.t.Helper()
	var interrupted atomic.Bool
	config := b.pool.Config()
	config.MinConns, config.MaxConns = 0, 1
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if interrupted.Load() {
			return nil, net.ErrClosed // so that no second connection sends a cancel request
		}
		conn, err := dial(ctx, network, address)
		if err == nil {
			b.t.Cleanup(func() { conn.Close() })
		}
		return &interruptibleConn{Conn: conn, interrupted: &interrupted}, err
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	must(b.t, err)
	b.t.Cleanup(pool.Close)
	return newBundle(b.t, pool, b.Graph()), func() { interrupted.Store(true) }
}

// workerWithShortLease registers a worker with a lease of a second.
func (b bundle) workerWithShortLease() store.ID {
	b.t.Helper()
	id, err := b.RegisterWorker(b.t.Context(), store.Worker{Host: "test", PID: 1, Lease: time.Second})
	must(b.t, err)
	return id
}

// sendPartially makes a request whose end is not sent.
func (b bundle) sendPartially(request func(context.Context) error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := request(ctx); err == nil {
		b.t.Error("the request was answered")
	}
}

// sweepUntil sweeps until the condition is true.
func (b bundle) sweepUntil(condition string, isTrue func(engine.SweepResult) bool) {
	b.t.Helper()
	waittest.Until(b.t, condition, func() bool {
		out, err := b.Sweep(b.t.Context(), engine.SweepRequest{
			Credit: &engine.OutageCredit{}, MaxAttempts: []int{3, 3, 3, 3, 3},
		})
		must(b.t, err)
		return isTrue(out)
	})
}

func TestSweep_EndsTheExchangeOfAFrozenProcess(t *testing.T) {
	t.Parallel()
	b := setup(t)
	process, freeze := b.interruptible()
	w := process.workerWithShortLease()
	b.submit()
	process.exchange(w, 1, []engine.Report{completed(process.claim(w, ingest))}) // so that all statements are prepared
	b.exec("delete from tasks")
	id := b.submit()
	c := process.claim(w, ingest)
	freeze()
	process.sendPartially(func(ctx context.Context) error {
		_, err := process.Exchange(ctx, exchangeRequest(w, 1, []engine.Report{completed(c)}))
		return err
	})
	later := b.submit()
	if b.hasEventOf(later) {
		t.Fatal("the exchange's transaction is not open: readers see later events")
	}
	b.sweepUntil("the worker is lost", func(out engine.SweepResult) bool { return slices.Contains(out.ExpiredWorkers, w) })
	b.sweepUntil("its claim has expired", func(engine.SweepResult) bool { return b.statuses(id)[ingest] == failing })
	b.wantStatuses(id, failing, pending, pending, pending, pending)
	if !b.hasEventOf(later) {
		t.Error("readers of events still do not see the later event")
	}
}

func TestSweep_ExpiresAWorkerFrozenInItsHeartbeat(t *testing.T) {
	t.Parallel()
	b := setup(t)
	process, freeze := b.interruptible()
	w := process.workerWithShortLease()
	id := b.submit()
	process.claim(w, ingest)
	_, err := process.heartbeat(w)
	must(t, err)
	freeze()
	process.sendPartially(func(ctx context.Context) error {
		_, err := process.Heartbeat(ctx, engine.HeartbeatRequest{Worker: w})
		return err
	})
	if n := b.queryInt(`select count(*) from (select from workers for update skip locked) as free`); n != 0 {
		t.Fatal("the worker's row is not locked")
	}
	b.sweepUntil("the worker is lost", func(out engine.SweepResult) bool { return slices.Contains(out.ExpiredWorkers, w) })
	b.sweepUntil("its claim has expired", func(engine.SweepResult) bool { return b.statuses(id)[ingest] == failing })
}

func TestSweep_ExpiresAWorkerFrozenInItsDeregistration(t *testing.T) {
	t.Parallel()
	b := setup(t)
	process, freeze := b.interruptible()
	must(t, process.DeregisterWorker(t.Context(), process.workerWithShortLease())) // so that all statements are prepared
	w := process.workerWithShortLease()
	freeze()
	process.sendPartially(func(ctx context.Context) error { return process.DeregisterWorker(ctx, w) })
	later := b.submit()
	if b.hasEventOf(later) {
		t.Fatal("the transaction is not open: readers see later events")
	}
	b.sweepUntil("the worker is lost", func(out engine.SweepResult) bool { return slices.Contains(out.ExpiredWorkers, w) })
	if !b.hasEventOf(later) {
		t.Error("readers of events still do not see the later event")
	}
}

func TestRegisterWorker_FrozenProcessDelaysNoReader(t *testing.T) {
	t.Parallel()
	b := setup(t)
	process, freeze := b.interruptible()
	process.workerWithShortLease() // so that all statements are prepared
	freeze()
	process.sendPartially(func(ctx context.Context) error {
		_, err := process.RegisterWorker(ctx, store.Worker{Host: "test", PID: 1})
		return err
	})
	if later := b.submit(); !b.hasEventOf(later) {
		t.Error("readers of events do not see the later event")
	}
}

func (b bundle) hasEventOf(task store.ID) bool {
	b.t.Helper()
	return slices.ContainsFunc(b.events(0), func(e store.Event) bool { return e.Task == task })
}

func TestSweep_IgnoresSessionsOfOtherApplications(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, name := range []string{
		strings.Repeat("-", 36), strings.Repeat("0", 36), "01a2037a-04ec-76e1-88a6-47847a9c449b",
	} {
		session, err := pgx.ConnectConfig(t.Context(), b.pool.Config().ConnConfig)
		must(t, err)
		defer session.Close(context.Background())
		_, err = session.Exec(t.Context(), "select set_config('application_name', $1, false)", "cuelight "+name)
		must(t, err)
	}
	if lost := b.sweepExpired(nil); len(lost) > 0 {
		t.Errorf("workers %v expired", lost)
	}
}

// A sweep by a role that may not end the transaction reports it, and continues.
func TestSweep_ReportsATransactionItMayNotEnd(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t, pgtest.ServerOptions{})
	g := store.Video()
	pool := server.New(pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
	b := newBundle(t, pool, g)
	b.exec(`create role other login`)
	b.exec(`grant all on all tables in schema public to other; grant all on all sequences in schema public to other`)
	process, freeze := b.interruptible()
	w := process.workerWithShortLease()
	_, err := process.heartbeat(w)
	must(t, err)
	freeze()
	process.sendPartially(func(ctx context.Context) error {
		_, err := process.Heartbeat(ctx, engine.HeartbeatRequest{Worker: w})
		return err
	})
	config := b.pool.Config()
	config.ConnConfig.User = "other"
	otherPool, err := pgxpool.NewWithConfig(t.Context(), config)
	must(t, err)
	defer otherPool.Close()
	other := newBundle(t, otherPool, g)
	other.sweepUntil("the transaction is reported",
		func(out engine.SweepResult) bool { return slices.Equal(out.OpenTransactions, []store.ID{w}) })
	b.sweepUntil("a sweep of its own role expires the worker",
		func(out engine.SweepResult) bool { return slices.Contains(out.ExpiredWorkers, w) })
}

// PostgreSQL 17 can limit the time of a transaction, and then ends that of a frozen
// process by itself.
func TestExchange_SetsTransactionTimeout(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if b.queryInt(`select current_setting('server_version_num')::int`) < 170000 {
		t.Skip("transaction_timeout is new in PostgreSQL 17")
	}
	b.exec(`create table timeouts (value text)`)
	b.exec(`create function record_timeout() returns trigger language plpgsql as $$
		begin insert into timeouts values (current_setting('transaction_timeout')); return null; end $$`)
	b.exec(`create trigger record_timeout after update on tasks for each statement execute function record_timeout()`)
	b.exec(`create trigger record_timeout after update on workers for each statement execute function record_timeout()`)
	b.submit()
	w := b.worker()
	b.claim(w, ingest)
	_, err := b.heartbeat(w)
	must(t, err)
	if n := b.queryInt(`select count(*) from timeouts where value = '30s'`); n != 2 {
		t.Errorf("%d of two requests, an exchange and a heartbeat, set transaction_timeout", n)
	}
}
