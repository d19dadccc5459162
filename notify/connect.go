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

// dialTimeout is how long an attempt to connect to one address may take if the connection
// string has no connect_timeout.
const dialTimeout = 10 * time.Second

// TCP keepalives show both ends that the other has vanished: after keepIdle without data
// they send probes, one every keepInterval. Without them a server would keep the session
// of a vanished client, and its locks, for two hours.
const (
	keepIdle     = 10 * time.Second
	keepInterval = 5 * time.Second
	keepCount    = 5 // on this end; the server's follows from Options.KeepSession
)

// sessionSQL returns the SQL that sets up a session and takes its lock. The settings are
// not start-up parameters because poolers refuse those. If another session holds the lock
// exclusively, the Listener works without it: notifications matter more.
//
// The server's limit counts from the last data of this end, which may be keepIdle before
// it vanished.
func (l *Listener) sessionSQL() string {
	interval := max(keepInterval, l.options.KeepSession/100) // Linux allows 127 probes
	return fmt.Sprintf(`/* set up listener */
	select coalesce(host(inet_server_addr()), ''), coalesce(inet_server_port(), 0);
	select set_config(name, value, false) from pg_settings join (values
		('tcp_keepalives_idle', '%d'), ('tcp_keepalives_interval', '%d'), ('tcp_keepalives_count', '%d'),
		('tcp_user_timeout', '%d'), ('idle_session_timeout', '0')) s(name, value) using (name);
	select pg_try_advisory_lock_shared(%d)`,
		int(keepIdle.Seconds()), int(interval.Seconds()), int(l.options.KeepSession/interval)+1,
		(l.options.KeepSession + keepIdle).Milliseconds(), l.lockKey)
}

func newBackoff(maxDelay time.Duration) *backoff.ExponentialBackOff {
	const randomization = 0.5
	longest := time.Duration(float64(maxDelay) / (1 + randomization))
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(min(50*time.Millisecond, longest)),
		backoff.WithMaxInterval(longest),
		backoff.WithRandomizationFactor(randomization),
		backoff.WithMaxElapsedTime(0),
	)
}

// nextDelay returns the delay before the next attempt to connect: 0 for the first one,
// then growing until a check of a connection succeeds.
func (l *Listener) nextDelay() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.triedOnce {
		l.triedOnce = true
		return 0
	}
	if l.state == behindPooler {
		return time.Duration((0.75 + rand.Float64()/2) * float64(l.poolerRetryDelay))
	}
	return l.backoff.NextBackOff()
}

// setDeadline sets how long the reading goroutine may take for its next step.
func (l *Listener) setDeadline(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deadline = time.Now().Add(d + l.options.CheckTimeout)
}

// connect returns the next connection. pgxlisten calls it for every connection, including
// the first.
func (l *Listener) connect(ctx context.Context) (*pgx.Conn, error) {
	for {
		delay := l.nextDelay()
		l.setDeadline(delay)
		if ctxsleep.For(ctx, delay) != nil {
			return nil, ctx.Err()
		}
		conn, err := l.open(ctx)
		if err == nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		l.setDisconnected(err)
	}
}

// open returns a connection that is ready for LISTEN. It is closed if it does not answer
// LISTEN within CheckTimeout.
func (l *Listener) open(ctx context.Context) (*pgx.Conn, error) {
	conn, err := l.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if err := l.prepare(ctx, conn); err != nil {
		closeAndWait(conn)
		return nil, err
	}
	l.setDeadline(l.options.CheckTimeout)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn, l.listeningTo = conn, 0
	l.listenTimer = time.AfterFunc(l.options.CheckTimeout, func() { closeSocket(conn) })
	return conn, nil
}

// dial connects with the options' or the pool's configuration.
func (l *Listener) dial(ctx context.Context) (*pgx.Conn, error) {
	config, before := l.options.ConnConfig, l.options.BeforeConnect
	if config == nil {
		poolConfig := l.pool.Config()
		config, before = poolConfig.ConnConfig, poolConfig.BeforeConnect
	}
	config = config.Copy()
	if config.ConnectTimeout <= 0 {
		config.ConnectTimeout = dialTimeout
	}
	if before != nil {
		stepCtx, cancel := l.startStep(ctx, config.ConnectTimeout)
		defer cancel()
		if err := before(stepCtx, config); err != nil {
			return nil, err
		}
	}
	config.OnNotification = nil // otherwise pgx would not queue notifications
	l.limitSteps(config)
	return pgx.ConnectConfig(context.WithValue(ctx, dialing{}, true), config)
}

// dialing marks the context of an attempt to connect.
type dialing struct{}

// limitSteps limits the time of each step of connecting, and not of all steps together:
// the first of several hosts may be one that does not answer.
func (l *Listener) limitSteps(config *pgx.ConnConfig) {
	timeout := config.ConnectTimeout
	lookup := config.LookupFunc
	config.LookupFunc = func(ctx context.Context, host string) ([]string, error) {
		ctx, cancel := l.startStep(ctx, timeout)
		defer cancel()
		return lookup(ctx, host)
	}
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		// pgx dials again to cancel a statement when a connection is closed. That is of
		// no use here, and could take up to 15 s.
		if ctx.Value(dialing{}) == nil {
			return nil, net.ErrClosed
		}
		l.setDeadline(timeout) // ctx has this timeout already, for all of this address
		return dial(ctx, network, address)
	}
	if after := config.AfterConnect; after != nil {
		config.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
			ctx, cancel := l.startStep(ctx, timeout)
			defer cancel()
			return after(ctx, conn)
		}
	}
}

// startStep starts a step that may take until the timeout.
func (l *Listener) startStep(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	l.setDeadline(timeout)
	return context.WithTimeout(ctx, timeout)
}

// prepare sets up the session. A pooler is detected by the process id: it is not the one
// that was sent at the start of the connection.
func (l *Listener) prepare(ctx context.Context, conn *pgx.Conn) error {
	stepCtx, cancel := l.startStep(ctx, l.options.CheckTimeout)
	defer cancel()
	var pid int32
	row := conn.QueryRow(stepCtx, "select pg_backend_pid()", pgx.QueryExecModeSimpleProtocol)
	if err := row.Scan(&pid); err != nil {
		return fmt.Errorf("query the process id of the session: %w", err)
	}
	if uint32(pid) != conn.PgConn().PID() {
		l.setSession(true, false, false)
		return l.checkPooler(ctx, conn)
	}
	keepAlive(conn)
	results, err := conn.PgConn().Exec(stepCtx, l.sessionSQL()).ReadAll()
	if err != nil {
		return fmt.Errorf("set up the session: %w", err)
	}
	locked := results[len(results)-1].Rows[0][0]
	server := net.JoinHostPort(string(results[0].Rows[0][0]), string(results[0].Rows[0][1]))
	l.setSession(false, string(locked) == "t", isSameAddress(conn.PgConn().Conn().RemoteAddr(), server))
	return nil
}

func (l *Listener) setSession(pooled, held, direct bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pooled, l.lockHeld, l.direct = pooled, held, direct
}

// isSameAddress says that the remote address is the one that the server reports for
// itself. A socket in the file system always is.
func isSameAddress(remote net.Addr, server string) bool {
	if remote == nil || remote.Network() == "unix" {
		return remote != nil
	}
	a, err1 := netip.ParseAddrPort(remote.String())
	b, err2 := netip.ParseAddrPort(server)
	return err1 == nil && err2 == nil && a.Port() == b.Port() &&
		a.Addr().Unmap().WithZone("") == b.Addr().Unmap().WithZone("")
}

// keepAlive sets the TCP keepalives of this end, as sessionSQL sets those of the server. If
// it fails, or the transport has none, a vanished server is noticed later.
func keepAlive(conn *pgx.Conn) {
	raw := conn.PgConn().Conn()
	if t, ok := raw.(interface{ NetConn() net.Conn }); ok {
		raw = t.NetConn()
	}
	if t, ok := raw.(*net.TCPConn); ok {
		_ = t.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: keepIdle, Interval: keepInterval, Count: keepCount})
	}
}

// closeSocket closes the connection's socket, which ends every wait on it.
func closeSocket(conn *pgx.Conn) { conn.PgConn().Conn().Close() }

// closeAndWait closes a connection and waits until its goroutines have ended.
func closeAndWait(conn *pgx.Conn) {
	closeSocket(conn)
	_ = conn.Close(context.Background())
	<-conn.PgConn().CleanupDone()
}

// connectionEnded is called by pgxlisten: for a connection that ended, which is closed by
// then, and for a notification on another channel, while the connection is open.
func (l *Listener) connectionEnded(ctx context.Context, err error) {
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn == nil || !conn.IsClosed() {
		return
	}
	closeAndWait(conn)
	if ctx.Err() != nil {
		err = nil
	}
	l.setDisconnected(err)
}

// setDisconnected records that there is no connection. A nil error is not reported.
func (l *Listener) setDisconnected(err error) {
	l.mu.Lock()
	l.connected, l.lockHeld, l.conn = false, false, nil
	if l.listenTimer != nil {
		l.listenTimer.Stop()
	}
	l.mu.Unlock()
	switch {
	case errors.Is(err, ErrPooled):
		l.setState(behindPooler, err)
	case err != nil:
		l.setState(disconnected, err)
	}
}
