package notify_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/notify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// change is what OnChange was told.
type change struct {
	connected bool
	err       error
}

// bundle is a running Listener.
type bundle struct {
	*notify.Listener
	t       testing.TB
	pool    *pgxpool.Pool
	changes chan change
}

// start runs a Listener until the test ends.
func start(t testing.TB, pool *pgxpool.Pool, o notify.Options, before ...func(*notify.Listener)) bundle {
	t.Helper()
	b := bundle{t: t, pool: pool, changes: make(chan change, 100)}
	o.OnChange = func(connected bool, err error) { b.changes <- change{connected, err} }
	if o.Channels == nil {
		o.Channels = []string{"a"}
	}
	b.Listener = notify.New(pool, o)
	for _, do := range before {
		do(b.Listener)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if _, held := b.Session(); held || b.Connected() {
			t.Error("it says that it is connected, after its end")
		}
	})
	return b
}

// listen is start, and waits until the Listener hears.
func listen(t testing.TB, pool *pgxpool.Pool, o notify.Options) bundle {
	t.Helper()
	b := start(t, pool, o)
	b.change(true)
	return b
}

// change waits until the Listener says that it hears, or no longer does.
func (b bundle) change(want bool) error {
	b.t.Helper()
	select {
	case got := <-b.changes:
		if got.connected != want || (got.err == nil) != want {
			b.t.Fatalf("told connected %t, error %v; want %t", got.connected, got.err, want)
		}
		return got.err
	case <-time.After(patience):
		b.t.Fatalf("connected did not become %t", want)
		return nil
	}
}

// unchanged is for the end of a test: nothing was told that it did not ask for.
func (b bundle) unchanged() {
	b.t.Helper()
	select {
	case got := <-b.changes:
		b.t.Errorf("told connected %t, error %v, without a change", got.connected, got.err)
	default:
	}
}

// news waits for news and takes it.
func (b bundle) news() []string {
	b.t.Helper()
	for {
		select {
		case <-b.C():
			if got := b.Take(); got != nil {
				return got
			}
		case <-time.After(patience):
			b.t.Fatal("no news")
		}
	}
}

// back waits for the end of the present connection and for the next one, after
// which everything counts as news, and news arrives again.
func (b bundle) back() {
	b.t.Helper()
	b.change(false)
	b.change(true)
	if got := b.news(); !slices.Equal(got, []string{"a"}) {
		b.t.Errorf("news is %v, want everything after a reconnect", got)
	}
	b.exec(`notify a`)
	b.news()
}

func (b bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatal(err)
	}
}

// pids are the sessions that hold the lock of the Listener's session, as others
// find them.
func (b bundle) pids() []int32 {
	b.t.Helper()
	key, _ := b.Session()
	rows, err := b.pool.Query(b.t.Context(), `select pid from pg_locks
		where locktype = 'advisory' and objsubid = 1 and granted and mode = 'ShareLock'
		and classid = ($1::bigint >> 32)::oid and objid = ($1::bigint & 4294967295)::oid
		and database = (select oid from pg_database where datname = current_database())`, key)
	if err != nil {
		b.t.Fatal(err)
	}
	pids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		b.t.Fatal(err)
	}
	return pids
}

func TestNewConnectionCountsEverythingAsNews(t *testing.T) {
	t.Parallel()
	b := listen(t, pgtest.New(t, pgtest.Schema{}), notify.Options{Channels: []string{"a", "B c", "a"}})
	if got := b.news(); !slices.Equal(got, []string{"B c", "a"}) {
		t.Errorf("news is %v, want both channels", got)
	}
	b.exec(`notify a; notify "B c", 'a payload nobody reads'; notify a; notify other`)
	heard := map[string]bool{} // they arrive one by one
	for !heard["a"] || !heard["B c"] {
		for _, channel := range b.news() {
			heard[channel] = true
		}
	}
	if heard["other"] {
		t.Error("news came of a channel nobody listens to")
	}
}

func TestListenerComesBackWhenItsSessionIsEnded(t *testing.T) {
	t.Parallel()
	b := listen(t, pgtest.New(t, pgtest.Schema{}), notify.Options{})
	b.news()
	for range 3 {
		b.exec(`select pg_terminate_backend($1)`, b.pids()[0])
		b.back()
	}
	b.unchanged()
}

func TestSessionLockIsSeenWhileTheSessionLasts(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema{})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	hears := make(chan bool, 10)
	b := bundle{t: t, pool: pool}
	b.Listener = notify.New(pool, notify.Options{Channels: []string{"a"}, OnChange: func(c bool, _ error) { hears <- c }})
	first, held := b.Session()
	if first <= 0 || held {
		t.Errorf("before it runs: key %d, held %t", first, held)
	}
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	<-hears
	for range 2 {
		if key, held := b.Session(); key != first || !held {
			t.Errorf("key %d, held %t; want %d, true", key, held, first)
		}
		pids := b.pids()
		if len(pids) != 1 {
			t.Fatalf("%d sessions hold the lock, want 1", len(pids))
		}
		b.exec(`select pg_terminate_backend($1)`, pids[0])
		if <-hears || !<-hears {
			t.Fatal("it did not come back")
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	waittest.Until(t, "the end of the lock", func() bool { return len(b.pids()) == 0 })
	if other, _ := notify.New(pool, notify.Options{}).Session(); other == first {
		t.Error("two Listeners have one key")
	}
}

// Somebody who knows the key and takes it exclusively keeps us from being seen,
// not from hearing.
func TestListenerHearsWithoutItsLock(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema{})
	b := listen(t, pool, notify.Options{})
	b.news()
	key, _ := b.Session()
	rival, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer rival.Close(context.Background())
	took := make(chan error, 1)
	go func() {
		_, err := rival.Exec(context.Background(), `select pg_advisory_lock($1)`, key)
		took <- err
	}()
	waittest.Until(t, "the rival's wait", func() (waits bool) {
		row := pool.QueryRow(t.Context(), `select exists (select from pg_locks where pid = $1 and locktype = 'advisory' and not granted)`, rival.PgConn().PID())
		return row.Scan(&waits) == nil && waits
	})
	b.exec(`select pg_terminate_backend($1)`, b.pids()[0])
	b.back()
	if err := <-took; err != nil {
		t.Fatal(err)
	}
	if _, held := b.Session(); held {
		t.Error("it says that it holds a lock which is somebody else's alone")
	}
}

func TestListenerThatCannotConnectSaysSoOnceAndEndsWithItsContext(t *testing.T) {
	t.Parallel()
	c, err := pgxpool.ParseConfig("host=" + t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var told []error
	l := notify.New(pool, notify.Options{
		Channels: []string{"a"}, RetryAtMost: 5 * time.Millisecond,
		OnChange: func(_ bool, err error) { told = append(told, err) },
	})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := l.Run(ctx); err != nil || l.Connected() {
		t.Errorf("run returned %v, connected %t", err, l.Connected())
	}
	if len(told) != 1 || told[0] == nil {
		t.Errorf("told %v, want one reason", told)
	}
	if err := notify.New(pool, notify.Options{}).Run(t.Context()); err == nil {
		t.Error("a Listener without channels ran")
	}
}

func TestOtherReadersGetTheSameNews(t *testing.T) {
	t.Parallel()
	other := notify.NewWakes()
	b := listen(t, pgtest.New(t, pgtest.Schema{}), notify.Options{Also: []*notify.Wakes{other}})
	both := bundle{Listener: &notify.Listener{Wakes: other}, t: t}
	for range 2 {
		for name, got := range map[string][]string{"the listener's": b.news(), "the other's": both.news()} {
			if !slices.Equal(got, []string{"a"}) {
				t.Errorf("%s news is %v", name, got)
			}
		}
		b.exec(`notify a`)
	}
}
