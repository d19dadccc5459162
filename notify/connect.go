package notify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cuelight/cuelight/internal/ctxsleep"
)

// dialWithin is how long a try to connect to one address may take, where the
// connection string does not say (connect_timeout).
const dialWithin = 10 * time.Second

// How both ends of a connection find out that the other is gone without a word:
// after keepIdle of silence they ask, and go on asking every keepEvery. Without,
// a server keeps the session of such a peer, with its locks, for two hours.
const (
	keepIdle  = 10 * time.Second
	keepEvery = 5 * time.Second
	keepCount = 5 // for this end; the server's has a limit in time
)

// settleSQL makes a session of our own what it should be, and locks. These are
// no start-up parameters because poolers refuse those. Nobody should hold the
// lock exclusively; if somebody does, hearing matters more than being seen.
//
// The limit counts from what was last heard of this end, which may have been
// keepIdle before it fell silent.
func (l *Listener) settleSQL() string {
	every := max(keepEvery, l.opts.Keep/100) // Linux counts to 127
	return fmt.Sprintf(`/* settle listener */
	select coalesce(host(inet_server_addr()), ''), coalesce(inet_server_port(), 0);
	select set_config(name, wanted, false) from pg_settings join (values
		('tcp_keepalives_idle', '%d'), ('tcp_keepalives_interval', '%d'), ('tcp_keepalives_count', '%d'),
		('tcp_user_timeout', '%d'), ('idle_session_timeout', '0')) w(name, wanted) using (name);
	select pg_try_advisory_lock_shared(%d)`,
		int(keepIdle.Seconds()), int(every.Seconds()), int(l.opts.Keep/every)+1,
		(l.opts.Keep + keepIdle).Milliseconds(), l.key)
}

func newPause(atMost time.Duration) *backoff.ExponentialBackOff {
	const chance = 0.5
	longest := time.Duration(float64(atMost) / (1 + chance))
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(min(50*time.Millisecond, longest)),
		backoff.WithMaxInterval(longest),
		backoff.WithRandomizationFactor(chance),
		backoff.WithMaxElapsedTime(0),
	)
}

// nextPause is nothing for the very first connection and then grows, until a
// connection proves itself.
func (l *Listener) nextPause() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.tried {
		l.tried = true
		return 0
	}
	if l.state == pooled {
		return time.Duration((0.75 + rand.Float64()/2) * float64(l.pooledPause))
	}
	return l.pause.NextBackOff()
}

// expect says how long the reader may take for its next step.
func (l *Listener) expect(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = time.Now().Add(d + l.opts.CheckWithin)
}

// connect is called for every connection, the first one too. A connection
// that proved itself starts the pauses from the beginning.
func (l *Listener) connect(ctx context.Context) (*pgx.Conn, error) {
	for {
		pause := l.nextPause()
		l.expect(pause)
		if ctxsleep.For(ctx, pause) != nil {
			return nil, ctx.Err()
		}
		conn, err := l.open(ctx)
		if err == nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		l.lost(err)
	}
}

// open returns a connection that is ready for LISTEN and has CheckWithin to
// answer to it.
func (l *Listener) open(ctx context.Context) (*pgx.Conn, error) {
	conn, err := l.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if err := l.prepare(ctx, conn); err != nil {
		discard(conn)
		return nil, err
	}
	l.expect(l.opts.CheckWithin)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn, l.heard = conn, 0
	l.answer = time.AfterFunc(l.opts.CheckWithin, func() { sever(conn) })
	return conn, nil
}

// dial connects as the options or the pool say.
func (l *Listener) dial(ctx context.Context) (*pgx.Conn, error) {
	config, before := l.opts.ConnConfig, (func(context.Context, *pgx.ConnConfig) error)(nil)
	if config == nil {
		of := l.pool.Config()
		config, before = of.ConnConfig, of.BeforeConnect
	}
	config = config.Copy()
	if config.ConnectTimeout <= 0 {
		config.ConnectTimeout = dialWithin
	}
	if before != nil {
		within, cancel := l.step(ctx, config.ConnectTimeout)
		defer cancel()
		if err := before(within, config); err != nil {
			return nil, err
		}
	}
	config.OnNotification = nil // or pgx would not keep them for us
	l.bound(config)
	return pgx.ConnectConfig(context.WithValue(ctx, dialing{}, true), config)
}

// dialing marks the context of a try to connect.
type dialing struct{}

// bound limits the time of every step of connecting, and not of all of them
// together: of several hosts the first may be the one that does not answer.
func (l *Listener) bound(config *pgx.ConnConfig) {
	atMost := config.ConnectTimeout
	lookup := config.LookupFunc
	config.LookupFunc = func(ctx context.Context, host string) ([]string, error) {
		ctx, cancel := l.step(ctx, atMost)
		defer cancel()
		return lookup(ctx, host)
	}
	reach := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		// pgx dials once more to cancel a statement when a connection is cut.
		// Here that is of no use, and would go on for up to 15 s.
		if ctx.Value(dialing{}) == nil {
			return nil, net.ErrClosed
		}
		l.expect(atMost) // which ctx has already, for all that is done at this address
		return reach(ctx, network, address)
	}
	if after := config.AfterConnect; after != nil {
		config.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
			ctx, cancel := l.step(ctx, atMost)
			defer cancel()
			return after(ctx, conn)
		}
	}
}

// step begins a step that may take as long as atMost.
func (l *Listener) step(ctx context.Context, atMost time.Duration) (context.Context, context.CancelFunc) {
	l.expect(atMost)
	return context.WithTimeout(ctx, atMost)
}

// prepare finds out whether the connection leads to PostgreSQL itself: then
// the process that answers is the one that was announced.
func (l *Listener) prepare(ctx context.Context, conn *pgx.Conn) error {
	within, cancel := l.step(ctx, l.opts.CheckWithin)
	defer cancel()
	var pid int32
	row := conn.QueryRow(within, "select pg_backend_pid()", pgx.QueryExecModeSimpleProtocol)
	if err := row.Scan(&pid); err != nil {
		return fmt.Errorf("ask for the session: %w", err)
	}
	if uint32(pid) != conn.PgConn().PID() {
		l.settled(true, false, false)
		return l.prove(ctx, conn)
	}
	keepAlive(conn)
	results, err := conn.PgConn().Exec(within, l.settleSQL()).ReadAll()
	if err != nil {
		return fmt.Errorf("settle the session: %w", err)
	}
	locked := results[len(results)-1].Rows[0][0]
	server := net.JoinHostPort(string(results[0].Rows[0][0]), string(results[0].Rows[0][1]))
	l.settled(false, string(locked) == "t", leadsTo(conn.PgConn().Conn().RemoteAddr(), server))
	return nil
}

func (l *Listener) settled(pooled, held, direct bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pooled, l.held, l.direct = pooled, held, direct
}

// leadsTo: what we are connected to is the server as it calls itself. A socket
// in the file system cannot be anything else.
func leadsTo(remote net.Addr, server string) bool {
	if remote == nil || remote.Network() == "unix" {
		return remote != nil
	}
	a, err1 := netip.ParseAddrPort(remote.String())
	b, err2 := netip.ParseAddrPort(server)
	return err1 == nil && err2 == nil && a.Port() == b.Port() && a.Addr().Unmap().WithZone("") == b.Addr().Unmap().WithZone("")
}

// keepAlive does at this end what settleSQL does at the other. A failure would
// only cost time, as would a transport that knows no such thing.
func keepAlive(conn *pgx.Conn) {
	raw := conn.PgConn().Conn()
	if t, ok := raw.(interface{ NetConn() net.Conn }); ok {
		raw = t.NetConn()
	}
	if t, ok := raw.(*net.TCPConn); ok {
		_ = t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: keepIdle, Interval: keepEvery, Count: keepCount})
	}
}

// sever closes the socket under a connection, which ends whatever waits for it.
func sever(conn *pgx.Conn) { conn.PgConn().Conn().Close() }

// discard ends a connection and waits until nothing of it is left.
func discard(conn *pgx.Conn) {
	sever(conn)
	_ = conn.Close(context.Background())
	<-conn.PgConn().CleanupDone()
}

// ended is called by pgxlisten: with the end of a connection, which it has
// closed by then, or while it is open, for a notification that is not ours.
func (l *Listener) ended(ctx context.Context, err error) {
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn == nil || !conn.IsClosed() {
		return
	}
	discard(conn)
	if ctx.Err() != nil {
		err = nil
	}
	l.lost(err)
}

// lost notes that there is no connection. Without a reason it is not told.
func (l *Listener) lost(err error) {
	l.mu.Lock()
	l.connected, l.held, l.conn = false, false, nil
	if l.answer != nil {
		l.answer.Stop()
	}
	l.mu.Unlock()
	switch {
	case errors.Is(err, ErrPooled):
		l.become(pooled, err)
	case err != nil:
		l.become(lost, err)
	}
}
