package notify

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// check sends notifications to itself, and closes the connection when one does not arrive.
// That covers every reason why a connection receives nothing: a peer that vanished, a
// LISTEN that was undone or went to another session.
func (l *Listener) check(ctx context.Context) {
	tick := time.NewTicker(l.options.CheckInterval)
	defer tick.Stop()
	for {
		if l.isAlive() {
			l.options.OnAlive()
		}
		select {
		case <-ctx.Done():
			return
		case <-l.checkNow:
		case <-tick.C:
		}
		conn := l.listeningConn()
		if conn == nil {
			continue
		}
		switch l.checkOnce(ctx) {
		case checkOK:
			l.mu.Lock()
			l.backoff.Reset()
			l.mu.Unlock()
		case checkFailed:
			l.disconnect(conn)
		}
	}
}

// Check starts a check of the connection at once, before the next CheckInterval. It does
// not wait for the result. Call it after an outage of the database: the address may now
// lead to another server.
func (l *Listener) Check() { signal(l.checkNow) }

// isAlive reports whether the goroutine that reads is listening, or within the deadline of its
// current step.
func (l *Listener) isAlive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.deadline.IsZero() || time.Now().Before(l.deadline)
}

// listeningConn returns the connection if it listens and was not disconnected; otherwise
// nil.
func (l *Listener) listeningConn() *pgx.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.connected || !l.deadline.IsZero() {
		return nil
	}
	return l.conn
}

type checkResult int

const (
	checkUnknown checkResult = iota // the pool cannot send, so nothing is known of the connection
	checkOK
	checkFailed
)

func (l *Listener) checkOnce(ctx context.Context) checkResult {
	select {
	case <-l.echo: // a late one of the check before
	default:
	}
	if err := l.sendEcho(ctx, ""); err != nil {
		return checkUnknown
	}
	// The limit starts here: it does not include the time that the pool took.
	timeout := time.NewTimer(l.options.CheckTimeout)
	defer timeout.Stop()
	select {
	case <-l.echo:
		return checkOK
	case <-ctx.Done():
		return checkUnknown
	case <-timeout.C:
	}
	// If the whole server hangs, a new connection does not help.
	ctx, cancel := context.WithTimeout(ctx, l.options.CheckTimeout)
	defer cancel()
	if err := l.pool.Ping(ctx); err != nil {
		return checkUnknown
	}
	select {
	case <-l.echo:
		return checkOK
	default:
		return checkFailed
	}
}

// sendEcho sends a notification to itself through the pool. The payload is letters and
// digits, so that the statement needs no parameters: some poolers do not support prepared
// statements.
func (l *Listener) sendEcho(ctx context.Context, payload string) error {
	ctx, cancel := context.WithTimeout(ctx, l.options.CheckTimeout)
	defer cancel()
	_, err := l.pool.Exec(ctx, fmt.Sprintf(`/* check listener */ select pg_notify('%s', '%s')`, l.echoChannel, payload))
	return err
}

// disconnect closes the connection's socket if it is still the current connection. That
// ends the wait for notifications.
func (l *Listener) disconnect(conn *pgx.Conn) {
	l.mu.Lock()
	current := l.conn == conn
	if current {
		l.deadline = time.Now().Add(l.options.CheckTimeout)
	}
	l.mu.Unlock()
	if current {
		closeSocket(conn)
	}
}
