package notify_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/notify"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bundle is a running Listener.
type bundle struct {
	*notify.Listener
	t       testing.TB
	pool    *pgxpool.Pool
	changes chan bool
}

// listen starts a Listener that connects as the pool does.
func listen(t testing.TB, pool *pgxpool.Pool, o notify.Options) bundle {
	t.Helper()
	b := bundle{t: t, pool: pool, changes: make(chan bool, 100)}
	o.OnChange = func(connected bool, _ error) { b.changes <- connected }
	b.Listener = notify.New(pool, o)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	b.change(true)
	return b
}

// change waits until the Listener says that it hears, or no longer does.
func (b bundle) change(want bool) {
	b.t.Helper()
	select {
	case got := <-b.changes:
		if got != want || b.Connected() != want {
			b.t.Fatalf("connected is told as %t and found %t, want %t", got, b.Connected(), want)
		}
	case <-time.After(20 * time.Second):
		b.t.Fatalf("connected did not become %t", want)
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
		case <-time.After(20 * time.Second):
			b.t.Fatal("no news")
		}
	}
}

func (b bundle) exec(sql string) {
	b.t.Helper()
	if _, err := b.pool.Exec(b.t.Context(), sql); err != nil {
		b.t.Fatal(err)
	}
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
	b := listen(t, pgtest.New(t, pgtest.Schema{}), notify.Options{Channels: []string{"a"}})
	b.news()
	for range 3 {
		b.exec(`select pg_terminate_backend(pid) from pg_stat_activity where query like 'listen %' and datname = current_database()`)
		b.change(false)
		b.change(true)
		if got := b.news(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("news is %v, want everything after a reconnect", got)
		}
	}
	b.exec(`notify a`)
	b.news()
}

// A connection whose other end is gone without a word: nothing arrives, and
// nothing says so.
func TestDeafConnectionIsFoundOut(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema{})
	p := newProxy(t, pool)
	c := pool.Config()
	c.ConnConfig.Host = p.dir
	through, err := pgxpool.NewWithConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(through.Close)
	b := listen(t, through, notify.Options{Channels: []string{"a"}, CheckEvery: 50 * time.Millisecond, CheckWithin: 500 * time.Millisecond})
	b.news()
	p.freeze() // the connections there are; new ones pass
	b.change(false)
	b.change(true)
	if got := b.news(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("news is %v, want everything after a reconnect", got)
	}
}

// Silence between the start of a session and the answer to LISTEN.
func TestConnectionThatNeverBeginsToHearIsFoundOut(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t, pgtest.Schema{})
	p := newProxy(t, pool)
	p.silence.Store(1) // the next connection gets no answer to its LISTEN
	c := pool.Config()
	c.ConnConfig.Host = p.dir
	through, err := pgxpool.NewWithConfig(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(through.Close)
	listen(t, through, notify.Options{Channels: []string{"a"}, CheckEvery: 20 * time.Millisecond, CheckWithin: 200 * time.Millisecond})
}

func TestListenerThatCannotConnectEndsWithItsContext(t *testing.T) {
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
	l := notify.New(pool, notify.Options{Channels: []string{"a"}})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := l.Run(ctx); err != nil || l.Connected() {
		t.Errorf("run returned %v, connected %t", err, l.Connected())
	}
	if err := notify.New(pool, notify.Options{}).Run(t.Context()); err == nil {
		t.Error("a Listener without channels ran")
	}
}

// proxy passes connections on to a server until they are frozen.
type proxy struct {
	dir     string
	frozen  atomic.Pointer[chan struct{}]
	silence atomic.Int64 // how many connections are to be frozen at their first LISTEN
}

func newProxy(t testing.TB, pool *pgxpool.Pool) *proxy {
	t.Helper()
	p := &proxy{dir: t.TempDir()}
	p.thaw()
	l, err := net.Listen("unix", filepath.Join(p.dir, ".s.PGSQL.5432"))
	if err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(pool.Config().ConnConfig.Host, ".s.PGSQL.5432")
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", target)
			if err != nil {
				client.Close()
				continue
			}
			frozen := *p.frozen.Load()
			var from io.Reader = client
			if p.silence.Add(-1) >= 0 {
				c := make(chan struct{})
				frozen, from = c, &until{client, "listen ", sync.OnceFunc(func() { close(c) })}
			}
			wg.Go(func() { defer client.Close(); pass(client, server, frozen) })
			wg.Go(func() { defer server.Close(); pass(server, from, frozen) })
		}
	})
	t.Cleanup(func() { l.Close(); p.thaw(); wg.Wait() })
	return p
}

// until reads on until the text comes, and then does something.
type until struct {
	io.Reader
	text string
	then func()
}

func (u *until) Read(p []byte) (int, error) {
	n, err := u.Reader.Read(p)
	if bytes.Contains(p[:n], []byte(u.text)) {
		u.then()
	}
	return n, err
}

// pass copies until an end closes, and only swallows once frozen.
func pass(to io.Writer, from io.Reader, frozen <-chan struct{}) {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		select {
		case <-frozen:
			continue
		default:
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) freeze() {
	c := make(chan struct{})
	close(*p.frozen.Swap(&c))
}

func (p *proxy) thaw() {
	c := make(chan struct{})
	p.frozen.Store(&c)
}
