package web_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/web"
)

func TestRequestLimit_CountsPerPrincipal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limit := web.NewRequestLimit(2)
		enter := func(ctx context.Context, who string) (func(), error) { return limit(ctx, who, 5*time.Second) }
		release := make([]func(), 2)
		for i := range release {
			var err error
			if release[i], err = enter(t.Context(), "reader"); err != nil {
				t.Fatal(err)
			}
		}
		if other, err := enter(t.Context(), "somebody else"); err != nil {
			t.Errorf("another principal is refused: %v", err)
		} else {
			other()
		}
		began := time.Now()
		if _, err := enter(t.Context(), "reader"); err == nil ||
			!strings.Contains(err.Error(), "2 active requests") || time.Since(began) != 5*time.Second {
			t.Errorf("a third request gets %v after %v", err, time.Since(began))
		}
		time.AfterFunc(time.Second, func() { release[0](); release[0]() })
		began = time.Now()
		if _, err := enter(t.Context(), "reader"); err != nil || time.Since(began) != time.Second {
			t.Errorf("when one has ended, the next gets %v after %v", err, time.Since(began))
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := enter(gone, "reader"); !errors.Is(err, context.Canceled) {
			t.Errorf("a request whose client is gone gets %v", err)
		}
	})
}

func TestSlowRequestsOfOnePrincipal_DoNotBlockOthers(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *web.Options) { o.MaxRequestsPerPrincipal = 1 })
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "lock table tasks in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	key := b.key("read")
	var asking sync.WaitGroup
	statuses := make(chan int, 8)
	for range cap(statuses) {
		asking.Go(func() {
			statuses <- b.do(call{method: "GET", path: api + "/tasks?source=x", as: key}).status
		})
	}
	stream := make(chan int, 1)
	asking.Go(func() {
		stream <- b.do(call{method: "HEAD", path: api + "/events/stream", as: key}).status
	})
	for range cap(statuses) - 1 {
		if status := <-statuses; status != http.StatusTooManyRequests {
			t.Errorf("a request beyond the limit gets the status %d", status)
		}
	}
	waiting := ask[int](b, `select count(*) from pg_stat_activity
		where wait_event_type = 'Lock' and datname = current_database()`)
	if waiting != 1 {
		t.Errorf("the reader holds %d connections, want 1", waiting)
	}
	b.get(api+"/keys").wantStatus(http.StatusOK, nil)
	refused := b.do(call{method: "GET", path: api + "/tasks", as: key}).
		wantProblem(http.StatusTooManyRequests, "too-many-requests")
	if refused.header.Get("Retry-After") == "" {
		t.Error("Retry-After is missing")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	asking.Wait()
	if status := <-statuses; status != http.StatusOK {
		t.Errorf("the active request gets the status %d", status)
	}
	if status := <-stream; status != http.StatusOK {
		t.Errorf("a stream, which waits longer, gets the status %d", status)
	}
}

// A stream uses the database only while it starts.
func TestOpenStreams_DoNotCountAsActiveRequests(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *web.Options) { o.MaxRequestsPerPrincipal = 1 })
	for range 3 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+api+"/events/stream", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+readText)
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("a stream gets the status %d", resp.StatusCode)
		}
	}
	b.do(call{method: "GET", path: api + "/stages", as: readText}).wantStatus(http.StatusOK, nil)
}

func ask[T any](b *testServer, sql string) (v T) {
	b.t.Helper()
	if err := b.pool.QueryRow(b.t.Context(), sql).Scan(&v); err != nil {
		b.t.Fatal(err)
	}
	return v
}

// remoteListener replaces the remote addresses of its connections.
type remoteListener struct {
	net.Listener
	from <-chan string
}

type remoteConn struct {
	net.Conn
	addr net.Addr
}

func (c remoteConn) RemoteAddr() net.Addr { return c.addr }

func (l remoteListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return remoteConn{c, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(<-l.from))}, nil
}

func TestConnectionLimit_CountsPerAddress(t *testing.T) {
	t.Parallel()
	o := minimalOptions(t)
	o.MaxConnectionsPerAddress, o.Proxies = 2, []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:1::1/128"),
	}
	s, err := web.New(o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	from := make(chan string, 1)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, remoteListener{l, from}) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	// served opens a connection from an address and keeps it, if it is served.
	served := func(addr string) (net.Conn, bool) {
		from <- addr
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") // it may be closed already
		line, _ := bufio.NewReader(c).ReadString('\n')
		return c, strings.HasPrefix(line, "HTTP/1.1 200 ")
	}
	var first net.Conn
	for i, c := range []struct {
		addr string
		want bool
	}{
		{"198.51.100.1:1", true}, {"198.51.100.1:2", true}, {"198.51.100.1:3", false}, {"198.51.100.2:1", true},
		{"[2001:db8::1]:1", true}, {"[2001:db8::2]:1", true}, {"[2001:db8::3]:1", false}, {"[2001:db8:0:1::1]:1", true},
		{"10.1.1.1:1", true}, {"10.1.1.1:2", true}, {"10.1.1.1:3", true}, // a proxy
		{"[2001:db8:1::1]:1", true}, {"[2001:db8:1::1]:2", true}, {"[2001:db8:1::1]:3", true},
		{"127.0.0.1:1", true}, {"127.0.0.1:2", true}, {"127.0.0.1:3", true}, // a proxy on this host
	} {
		conn, ok := served(c.addr)
		if ok != c.want {
			t.Errorf("connection %d, from %s: served is %t, want %t", i, c.addr, ok, c.want)
		}
		if i == 0 {
			first = conn
		}
	}
	first.Close()
	for since := time.Now(); ; {
		if _, ok := served("198.51.100.1:4"); ok {
			break
		}
		if time.Since(since) > 10*time.Second {
			t.Fatal("no connection is served instead of the closed one")
		}
	}
}
