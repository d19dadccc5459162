package notify

import (
	"context"
	"time"
)

const echoSQL = `/* check listener */ select pg_notify($1, '')`

// check sends notifications to itself, and cuts the connection when one does
// not come back. That covers whatever makes a connection deaf: a peer that
// went without a word, a LISTEN that was undone or ended up elsewhere.
func (l *Listener) check(ctx context.Context) {
	tick := time.NewTicker(l.opts.CheckEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.fresh:
		case <-tick.C:
		}
		if !l.Connected() {
			if l.stuck() {
				l.cut()
			}
			continue
		}
		switch l.checkOnce(ctx) {
		case alive:
			l.mu.Lock()
			l.pause.Reset()
			l.mu.Unlock()
		case deaf:
			l.cut()
		}
	}
}

// stuck: there is a connection, but it has not answered to LISTEN.
func (l *Listener) stuck() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn != nil && time.Since(l.since) > l.opts.CheckWithin
}

type health int

const (
	unknown health = iota // the pool cannot send: that says nothing of the listener
	alive
	deaf
)

func (l *Listener) checkOnce(ctx context.Context) health {
	ctx, cancel := context.WithTimeout(ctx, l.opts.CheckWithin)
	defer cancel()
	select {
	case <-l.echo: // a late one, from before
	default:
	}
	if _, err := l.pool.Exec(ctx, echoSQL, l.own); err != nil {
		return unknown
	}
	select {
	case <-l.echo:
		return alive
	case <-ctx.Done():
		if context.Cause(ctx) == context.DeadlineExceeded {
			return deaf
		}
		return unknown
	}
}

// cut closes the socket under the connection, which ends the wait on it.
func (l *Listener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		l.conn.PgConn().Conn().Close()
	}
}
