package notify_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/notify"
)

// fastRetries are options with short delays between attempts to connect.
func fastRetries() notify.Options {
	return notify.Options{
		CheckInterval: 50 * time.Millisecond, CheckTimeout: 5 * time.Second, MaxRetryDelay: 200 * time.Millisecond,
	}
}

func TestListener_ReconnectsAfterAServerRestart(t *testing.T) {
	t.Parallel()
	s := pgtest.NewServer(t, pgtest.ServerOptions{})
	b := listen(t, s.New(pgtest.Schema{}), fastRetries())
	b.takeWakes()
	for name, end := range map[string]func(){
		"fast":      func() { s.Stop(pgtest.Fast) },
		"immediate": func() { s.Stop(pgtest.Immediate) },
		"killed":    s.Kill,
	} {
		end()
		if err := b.wantChange(false); err == nil {
			t.Errorf("%s: OnChange got no error", name)
		}
		s.Start()
		b.wantChange(true)
		b.takeWakes()
		b.pool.Reset()
		b.exec(`notify a`)
		b.takeWakes()
		if _, held := b.Session(); !held || len(b.lockHolders()) != 1 {
			t.Errorf("%s: the session's lock is not held again", name)
		}
	}
	b.wantNoChange()
}

// The server process of the session is suspended, with the lock. The next session does
// not wait for it.
func TestListener_ReplacesAFrozenSession(t *testing.T) {
	t.Parallel()
	s := pgtest.NewServer(t, pgtest.ServerOptions{})
	b := listen(t, s.New(pgtest.Schema{}), fastChecks())
	b.takeWakes()
	suspended := int(b.lockHolders()[0])
	must(t, syscall.Kill(suspended, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(suspended, syscall.SIGCONT) }) // where the test fails
	b.wantReconnect()
	if n := len(b.lockHolders()); n != 2 {
		t.Errorf("%d sessions hold the lock, want the suspended one and the new one", n)
	}
	must(t, syscall.Kill(suspended, syscall.SIGCONT))
	waittest.Until(t, "the old session has ended", func() bool { return len(b.lockHolders()) == 1 })
	b.wantNoChange()
}

// The whole server is suspended. The pool gets no answer either, so the connection may be
// intact, and is kept.
func TestListener_WaitsForASuspendedServer(t *testing.T) {
	t.Parallel()
	s := newServer(t, pgtest.EphemeralOptions{})
	pool := connect(t, s.URL("postgres"))
	alive := make(aliveSignal)
	b := listen(t, pool, notify.Options{
		CheckInterval: 50 * time.Millisecond, CheckTimeout: time.Second, OnAlive: alive.signal,
	})
	b.takeWakes()
	must(t, s.Freeze())
	for range 4 {
		<-alive
	}
	must(t, s.Thaw())
	b.exec(`notify a`)
	b.takeWakes()
	b.wantNoChange()
}

func newServer(t *testing.T, o pgtest.EphemeralOptions) *pgtest.Ephemeral {
	t.Helper()
	s, err := pgtest.StartEphemeral(t.Context(), o)
	if errors.Is(err, postgres.ErrNotInstalled) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

func newStandby(t *testing.T, primary *pgtest.Ephemeral) *pgtest.Ephemeral {
	t.Helper()
	pgtest.Program(t, "pg_basebackup")
	standby, err := primary.Standby(t.Context(), "standby")
	must(t, err)
	t.Cleanup(func() { must(t, standby.Close()) })
	return standby
}

func connect(t *testing.T, address string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), address)
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A busy pool cannot send the check. The connection must be kept.
func TestCheck_IgnoresABusyPool(t *testing.T) {
	t.Parallel()
	free := pgtest.New(t, pgtest.Schema{})
	c := free.Config()
	c.MaxConns = 1
	one, err := pgxpool.NewWithConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(one.Close)
	checks := make(aliveSignal)
	b := listen(t, one, notify.Options{
		CheckInterval: 5 * time.Millisecond, CheckTimeout: 500 * time.Millisecond, OnAlive: checks.signal,
	})
	busy, err := one.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		<-checks
	}
	b.pool = free
	b.exec(`notify a`)
	b.takeWakes()
	busy.Release()
	for range 4 {
		<-checks
	}
	b.wantNoChange()
}

// The server does not wait for a reader that takes no notifications, and vacuum can remove
// old rows.
func TestListener_SlowReaderDelaysNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema{})
	stuck := make(chan struct{})
	called := make(chan struct{}, 1)
	b := bundle{t: t, pool: pool}
	b.Listener = notify.New(pool, notify.Options{
		Channels: []string{"a"},
		OnChange: func(bool, error) { called <- struct{}{}; <-stuck }, // OnChange blocks, too
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	t.Cleanup(func() {
		close(stuck)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-called
	pid := b.lockHolders()[0]
	payload := strings.Repeat("x", 5000)
	for range 20 {
		// 25 MB in all, far more than any socket's buffer.
		b.exec(`select pg_notify('a', i || $1) from generate_series(1, 250) i`, payload)
	}
	waittest.Until(t, "the listener's session is idle, without a snapshot", func() (idle bool) {
		err := pool.QueryRow(t.Context(), `select state = 'idle' and wait_event = 'ClientRead' and backend_xmin is null
			and pg_notification_queue_usage() < 0.001 from pg_stat_activity where pid = $1`, pid).Scan(&idle)
		return err == nil && idle
	})
	if got := b.takeWakes(); len(got) != 1 {
		t.Errorf("woken channels are %v, want one channel once", got)
	}
}

// A listening session is idle while nothing happens. It must not end by
// idle_session_timeout.
func TestListener_SurvivesIdleSessionTimeout(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema{})
	var version int
	if err := pool.QueryRow(t.Context(), `select current_setting('server_version_num')::int`).Scan(&version); err != nil {
		t.Fatal(err)
	}
	if version < 140000 {
		t.Skip("no idle_session_timeout before PostgreSQL 14")
	}
	var name string
	if err := pool.QueryRow(t.Context(), `select current_database()`).Scan(&name); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `alter database `+name+` set idle_session_timeout = '1s'`); err != nil {
		t.Fatal(err)
	}
	b := listen(t, pool, notify.Options{CheckInterval: time.Hour})
	b.takeWakes()
	// Another session, opened later, ends by the timeout.
	other, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	must(t, err)
	defer other.Close(context.Background())
	if _, err := other.WaitForNotification(t.Context()); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("the idle session ended with %v", err)
	}
	b.pool.Reset()
	b.exec(`notify a`)
	b.takeWakes()
	b.wantNoChange()
}

// Notifications work with read-only transactions.
func TestListener_WorksWithAReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	s := pgtest.NewServer(t, pgtest.ServerOptions{Settings: []string{"default_transaction_read_only=on"}})
	b := listen(t, connect(t, s.URL("postgres")), fastRetries())
	b.takeWakes()
	b.exec(`notify a`)
	b.takeWakes()
	b.wantNoChange()
}

// While connections are refused, the attempts continue, and one error is reported.
func TestListener_ReconnectsAfterRefusedConnections(t *testing.T) {
	t.Parallel()
	s := pgtest.NewServer(t, pgtest.ServerOptions{})
	admin := connect(t, s.URL("postgres"))
	do := func(sql string) {
		t.Helper()
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	do(`create role worker login`)
	do(`create database work`)
	c, err := pgxpool.ParseConfig(s.URL("work"))
	if err != nil {
		t.Fatal(err)
	}
	c.ConnConfig.User = "worker"
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	b := listen(t, pool, fastRetries())
	b.takeWakes()

	for _, outage := range []struct{ code, begin, end string }{
		{"3D000", `drop database work with (force)`, `create database work`},
		{"28000", `drop role worker`, `create role worker login`},
		{
			"55000", `update pg_database set datallowconn = false where datname = 'work'`,
			`update pg_database set datallowconn = true where datname = 'work'`,
		},
	} {
		do(outage.begin)
		do(`select pg_terminate_backend(pid) from pg_stat_activity where datname = 'work'`)
		b.wantChange(false)
		waittest.Until(t, "the server refuses connections", func() bool {
			pool.Reset() // a session that began before the outage may still be in the pool
			err := pool.Ping(t.Context())
			var refused *pgconn.PgError
			return errors.As(err, &refused) && refused.Code == outage.code
		})
		do(outage.end)
		b.wantChange(true)
		b.takeWakes()
		b.pool.Reset()
		b.exec(`notify a`)
		b.takeWakes()
	}
	b.wantNoChange()
}

// The first of three hosts accepts connections and does not answer. The second becomes the
// primary after the third has failed.
func TestListener_FollowsThePrimary(t *testing.T) {
	t.Parallel()
	primary := newServer(t, pgtest.EphemeralOptions{Listen: []string{"127.0.0.1"}})
	standby := newStandby(t, primary)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts connections
	must(t, err)
	t.Cleanup(func() { silent.Close() })

	c, err := pgxpool.ParseConfig(pgtest.TCPURL("postgres", silent.Addr().String(), standby.Addr(), primary.Addr()))
	must(t, err)
	c.ConnConfig.ConnectTimeout = 500 * time.Millisecond
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	must(t, err)
	t.Cleanup(pool.Close)
	o := fastRetries()
	o.CheckTimeout = 2 * time.Second
	b := listen(t, pool, o)
	b.takeWakes()
	must(t, primary.Kill())
	b.wantChange(false)
	must(t, standby.Promote(t.Context()))
	b.wantChange(true)
	b.takeWakes()
	b.pool.Reset()
	b.exec(`notify a`)
	b.takeWakes()
	if _, held := b.Session(); !held || len(b.lockHolders()) != 1 {
		t.Error("the lock of the session is not held on the new server")
	}
	b.wantNoChange()
}

// A standby sends no notifications: that is reported once, and the listener connects after
// the promotion.
func TestListener_WorksOnAStandbyAfterItsPromotion(t *testing.T) {
	t.Parallel()
	primary := newServer(t, pgtest.EphemeralOptions{})
	standby := newStandby(t, primary)
	b := start(t, connect(t, standby.URL("postgres")), fastRetries())
	b.wantChange(false)
	must(t, standby.Promote(t.Context()))
	b.wantChange(true)
	b.takeWakes()
	b.exec(`notify a`)
	b.takeWakes()
	b.wantNoChange()
}
