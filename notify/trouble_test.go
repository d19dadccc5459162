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

// quick tries again soon.
func quick() notify.Options {
	return notify.Options{CheckEvery: 50 * time.Millisecond, CheckWithin: 5 * time.Second, RetryAtMost: 200 * time.Millisecond}
}

func TestListenerComesBackWithTheServer(t *testing.T) {
	t.Parallel()
	s := pgtest.NewServer(t, pgtest.ServerOptions{})
	b := listen(t, s.New(pgtest.Schema{}), quick())
	b.news()
	for name, end := range map[string]func(){
		"fast":      func() { s.Stop(pgtest.Fast) },
		"immediate": func() { s.Stop(pgtest.Immediate) },
		"killed":    s.Kill,
	} {
		end()
		if err := b.change(false); err == nil {
			t.Errorf("%s: no reason was told", name)
		}
		s.Start()
		b.change(true)
		b.news()
		b.pool.Reset()
		b.exec(`notify a`)
		b.news()
		if _, held := b.Session(); !held || len(b.pids()) != 1 {
			t.Errorf("%s: the lock of the session is not back", name)
		}
	}
	b.unchanged()
}

// Its own process of the server stands still, with the lock: the next session
// does not wait for it.
func TestListenerLeavesASessionThatStandsStill(t *testing.T) {
	t.Parallel()
	s := pgtest.NewServer(t, pgtest.ServerOptions{})
	b := listen(t, s.New(pgtest.Schema{}), soon())
	b.news()
	still := int(b.pids()[0])
	must(t, syscall.Kill(still, syscall.SIGSTOP))
	t.Cleanup(func() { _ = syscall.Kill(still, syscall.SIGCONT) }) // where the test fails
	b.back()
	if n := len(b.pids()); n != 2 {
		t.Errorf("%d sessions hold the lock, want the still one and the new one", n)
	}
	must(t, syscall.Kill(still, syscall.SIGCONT))
	waittest.Until(t, "the end of the old session", func() bool { return len(b.pids()) == 1 })
	b.unchanged()
}

// All of the server stands still: the pool says nothing either, so nobody knows
// whether the connection is deaf, and it is not.
func TestServerThatStandsStillIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newServer(t, postgres.EphemeralOptions{})
	pool := connect(t, s.URL("postgres"))
	alive := make(pulse)
	b := listen(t, pool, notify.Options{CheckEvery: 50 * time.Millisecond, CheckWithin: time.Second, Alive: alive.beat})
	b.news()
	must(t, s.Pause())
	for range 4 {
		<-alive // it goes round
	}
	must(t, s.Resume())
	b.exec(`notify a`)
	b.news()
	b.unchanged()
}

func newServer(t *testing.T, o postgres.EphemeralOptions) *postgres.Ephemeral {
	t.Helper()
	s, err := postgres.StartEphemeral(t.Context(), o)
	if errors.Is(err, postgres.ErrNotInstalled) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
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

// A pool that has nothing to spare cannot send the check. That is no reason to
// give up a connection that hears.
func TestBusyPoolDoesNotMakeTheListenerDeaf(t *testing.T) {
	t.Parallel()
	free := pgtest.New(t, pgtest.Schema{})
	c := free.Config()
	c.MaxConns = 1
	one, err := pgxpool.NewWithConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(one.Close)
	checks := make(pulse)
	b := listen(t, one, notify.Options{CheckEvery: 5 * time.Millisecond, CheckWithin: 500 * time.Millisecond, Alive: checks.beat})
	busy, err := one.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		<-checks
	}
	b.pool = free
	b.exec(`notify a`)
	b.news()
	busy.Release()
	for range 4 {
		<-checks
	}
	b.unchanged()
}

// However much comes while nobody takes the news, it costs the server nothing:
// neither waits it for us, nor does it keep old rows because of us.
func TestSlowReaderHoldsNothingUp(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema{})
	stuck := make(chan struct{})
	told := make(chan struct{}, 1)
	b := bundle{t: t, pool: pool}
	b.Listener = notify.New(pool, notify.Options{
		Channels: []string{"a"},
		OnChange: func(bool, error) { told <- struct{}{}; <-stuck }, // not even this one
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
	<-told
	pid := b.pids()[0]
	payload := strings.Repeat("x", 5000)
	for range 20 {
		// 25 MB in all, far more than any socket's buffer.
		b.exec(`select pg_notify('a', i || $1) from generate_series(1, 250) i`, payload)
	}
	waittest.Until(t, "the listener's session being idle, with no transaction's snapshot", func() (idle bool) {
		err := pool.QueryRow(t.Context(), `select state = 'idle' and wait_event = 'ClientRead' and backend_xmin is null
			and pg_notification_queue_usage() < 0.001 from pg_stat_activity where pid = $1`, pid).Scan(&idle)
		return err == nil && idle
	})
	if got := b.news(); len(got) != 1 {
		t.Errorf("news is %v, want one channel once", got)
	}
}

// A listening session is idle for as long as nothing happens, and somebody may
// have decided that idle sessions end.
func TestListenerOutlastsIdleSessions(t *testing.T) {
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
	b := listen(t, pool, notify.Options{CheckEvery: time.Hour})
	b.news()
	// Somebody else who came later is thrown out.
	other, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	must(t, err)
	defer other.Close(context.Background())
	if _, err := other.WaitForNotification(t.Context()); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("the idle session ended with %v", err)
	}
	b.pool.Reset()
	b.exec(`notify a`)
	b.news()
	b.unchanged()
}

// Read-only transactions are no obstacle to notifications.
func TestListenerHearsOfAReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	s := pgtest.NewServer(t, pgtest.ServerOptions{Settings: []string{"default_transaction_read_only=on"}})
	b := listen(t, connect(t, s.URL("postgres")), quick())
	b.news()
	b.exec(`notify a`)
	b.news()
	b.unchanged()
}

// While nobody may connect, tries go on, and one reason is told.
func TestListenerComesBackWhenItMayConnectAgain(t *testing.T) {
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
	b := listen(t, pool, quick())
	b.news()

	for _, away := range []struct{ code, out, in string }{
		{"3D000", `drop database work with (force)`, `create database work`},
		{"28000", `drop role worker`, `create role worker login`},
		{"55000", `update pg_database set datallowconn = false where datname = 'work'`, `update pg_database set datallowconn = true where datname = 'work'`},
	} {
		do(away.out)
		do(`select pg_terminate_backend(pid) from pg_stat_activity where datname = 'work'`)
		b.change(false)
		waittest.Until(t, "a refusal", func() bool {
			err := pool.Ping(t.Context())
			var refused *pgconn.PgError
			return errors.As(err, &refused) && refused.Code == away.code
		})
		do(away.in)
		b.change(true)
		b.news()
		b.pool.Reset()
		b.exec(`notify a`)
		b.news()
	}
	b.unchanged()
}

// Of three hosts the first lets everybody in and says nothing, and the second
// becomes the one to write to only when the third is gone.
func TestListenerFollowsTheServerThatMayWrite(t *testing.T) {
	t.Parallel()
	primary := newServer(t, postgres.EphemeralOptions{Listen: []string{"127.0.0.1"}})
	standby, err := primary.Standby(t.Context(), postgres.StandbyOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, standby.Close()) })
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel lets them in
	must(t, err)
	t.Cleanup(func() { silent.Close() })

	c, err := pgxpool.ParseConfig(postgres.TCPURL("postgres", silent.Addr().String(), standby.Addr(), primary.Addr()))
	must(t, err)
	c.ConnConfig.ConnectTimeout = 500 * time.Millisecond
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	must(t, err)
	t.Cleanup(pool.Close)
	o := quick()
	o.CheckWithin = 2 * time.Second
	b := listen(t, pool, o)
	b.news()
	must(t, primary.Kill())
	b.change(false)
	must(t, standby.Promote(t.Context()))
	b.change(true)
	b.news()
	b.pool.Reset()
	b.exec(`notify a`)
	b.news()
	if _, held := b.Session(); !held || len(b.pids()) != 1 {
		t.Error("the lock of the session is not held on the new server")
	}
	b.unchanged()
}

// On a standby there is nothing to hear, which is said once, and right as soon
// as it is promoted.
func TestListenerOnAStandbyHearsFromItsPromotionOn(t *testing.T) {
	t.Parallel()
	primary := newServer(t, postgres.EphemeralOptions{})
	standby, err := primary.Standby(t.Context(), postgres.StandbyOptions{})
	must(t, err)
	t.Cleanup(func() { must(t, standby.Close()) })
	b := start(t, connect(t, standby.URL("postgres")), quick())
	b.change(false)
	must(t, standby.Promote(t.Context()))
	b.change(true)
	b.news()
	b.exec(`notify a`)
	b.news()
	b.unchanged()
}
