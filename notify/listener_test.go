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

// testTimeout is how long a test waits for something that must happen.
const testTimeout = 20 * time.Second

// change is a call of OnChange.
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
			t.Error("the listener is connected after its end")
		}
	})
	return b
}

// listen starts a Listener and waits until it is connected.
func listen(t testing.TB, pool *pgxpool.Pool, o notify.Options) bundle {
	t.Helper()
	b := start(t, pool, o)
	b.wantChange(true)
	return b
}

// wantChange waits for a call of OnChange, and returns its error.
func (b bundle) wantChange(want bool) error {
	b.t.Helper()
	select {
	case got := <-b.changes:
		if got.connected != want || (got.err == nil) != want {
			b.t.Fatalf("OnChange got connected %t, error %v; want %t", got.connected, got.err, want)
		}
		return got.err
	case <-time.After(testTimeout):
		b.t.Fatalf("connected did not become %t", want)
		return nil
	}
}

// wantNoChange fails the test if there was another call of OnChange.
func (b bundle) wantNoChange() {
	b.t.Helper()
	select {
	case got := <-b.changes:
		b.t.Errorf("OnChange got connected %t, error %v, without a change", got.connected, got.err)
	default:
	}
}

// takeWakes waits for notifications and returns their channels.
func (b bundle) takeWakes() []string {
	b.t.Helper()
	for {
		select {
		case <-b.C():
			var channels []string
			for _, wake := range b.Take() {
				channels = append(channels, wake.Channel)
			}
			if channels != nil {
				return channels
			}
		case <-time.After(testTimeout):
			b.t.Fatal("no notification within 20 s")
		}
	}
}

// wantReconnect waits for the end of the connection and for the next one, which must wake
// every channel and receive notifications.
func (b bundle) wantReconnect() {
	b.t.Helper()
	b.wantChange(false)
	b.wantChange(true)
	if got := b.takeWakes(); !slices.Equal(got, []string{"a"}) {
		b.t.Errorf("woken channels are %v, want all after a reconnect", got)
	}
	b.exec(`notify a`)
	b.takeWakes()
}

func (b bundle) exec(sql string, args ...any) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.t.Context(), sql, args...); err != nil {
		b.t.Fatal(err)
	}
}

// lockHolders returns the process ids of the sessions that hold the Listener's lock.
func (b bundle) lockHolders() []int32 {
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

func TestListener_WakesEveryChannelAfterConnecting(t *testing.T) {
	t.Parallel()
	b := listen(t, pgtest.New(t, pgtest.Schema{}), notify.Options{Channels: []string{"a", "B c", "a"}})
	if got := b.takeWakes(); !slices.Equal(got, []string{"B c", "a"}) {
		t.Errorf("woken channels are %v, want both", got)
	}
	b.exec(`notify a; notify "B c", 'ignored payload'; notify a; notify other`)
	woken := map[string]bool{} // they arrive one by one
	for !woken["a"] || !woken["B c"] {
		for _, channel := range b.takeWakes() {
			woken[channel] = true
		}
	}
	if woken["other"] {
		t.Error("a channel that is not listened to was woken")
	}
}

func TestListener_ReconnectsAfterItsSessionEnded(t *testing.T) {
	t.Parallel()
	b := listen(t, pgtest.New(t, pgtest.Schema{}), notify.Options{})
	b.takeWakes()
	for range 3 {
		b.exec(`select pg_terminate_backend($1)`, b.lockHolders()[0])
		b.wantReconnect()
	}
	b.wantNoChange()
}

func TestSession_LockIsVisibleUntilTheSessionEnds(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema{})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	connected := make(chan bool, 10)
	b := bundle{t: t, pool: pool}
	b.Listener = notify.New(pool, notify.Options{
		Channels: []string{"a"}, OnChange: func(c bool, _ error) { connected <- c },
	})
	first, held := b.Session()
	if first <= 0 || held {
		t.Errorf("before it runs: key %d, held %t", first, held)
	}
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	<-connected
	for range 2 {
		if key, held := b.Session(); key != first || !held {
			t.Errorf("key %d, held %t; want %d, true", key, held, first)
		}
		pids := b.lockHolders()
		if len(pids) != 1 {
			t.Fatalf("%d sessions hold the lock, want 1", len(pids))
		}
		b.exec(`select pg_terminate_backend($1)`, pids[0])
		if <-connected || !<-connected {
			t.Fatal("the listener did not reconnect")
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	waittest.Until(t, "the lock is released", func() bool { return len(b.lockHolders()) == 0 })
	if other, _ := notify.New(pool, notify.Options{}).Session(); other == first {
		t.Error("two Listeners have the same key")
	}
}

// A session that takes the key's lock exclusively keeps the Listener from holding its
// lock, but not from receiving notifications.
func TestListener_WorksWithoutItsLock(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema{})
	b := listen(t, pool, notify.Options{})
	b.takeWakes()
	key, _ := b.Session()
	other, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.Background())
	took := make(chan error, 1)
	go func() {
		_, err := other.Exec(context.Background(), `select pg_advisory_lock($1)`, key)
		took <- err
	}()
	waittest.Until(t, "the other session waits for the lock", func() (waits bool) {
		row := pool.QueryRow(t.Context(),
			`select exists (select from pg_locks where pid = $1 and locktype = 'advisory' and not granted)`,
			other.PgConn().PID())
		return row.Scan(&waits) == nil && waits
	})
	b.exec(`select pg_terminate_backend($1)`, b.lockHolders()[0])
	b.wantReconnect()
	if err := <-took; err != nil {
		t.Fatal(err)
	}
	if _, held := b.Session(); held {
		t.Error("Session reports a lock that another session holds exclusively")
	}
}

func TestListener_ReportsAFailureToConnectOnce(t *testing.T) {
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
	var reported []error
	l := notify.New(pool, notify.Options{
		Channels: []string{"a"}, MaxRetryDelay: 5 * time.Millisecond,
		OnChange: func(_ bool, err error) { reported = append(reported, err) },
	})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := l.Run(ctx); err != nil || l.Connected() {
		t.Errorf("run returned %v, connected %t", err, l.Connected())
	}
	if len(reported) != 1 || reported[0] == nil {
		t.Errorf("reported %v, want one error", reported)
	}
	if err := notify.New(pool, notify.Options{}).Run(t.Context()); err == nil {
		t.Error("a Listener without channels ran")
	}
}

func TestAlsoWake_ReceivesTheSameChannels(t *testing.T) {
	t.Parallel()
	other := notify.NewWakes()
	b := listen(t, pgtest.New(t, pgtest.Schema{}), notify.Options{AlsoWake: []*notify.Wakes{other}})
	both := bundle{Listener: &notify.Listener{Wakes: other}, t: t}
	for range 2 {
		for name, got := range map[string][]string{"the listener's": b.takeWakes(), "the other's": both.takeWakes()} {
			if !slices.Equal(got, []string{"a"}) {
				t.Errorf("%s channels are %v", name, got)
			}
		}
		b.exec(`notify a`)
	}
}
