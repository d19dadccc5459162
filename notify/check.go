package notify

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// check sends notifications to itself, and cuts the connection when one does
// not come back. That covers whatever makes a connection deaf: a peer that
// went without a word, a LISTEN that was undone or ended up elsewhere.
func (l *Listener) check(ctx context.Context) {
	tick := time.NewTicker(l.opts.CheckEvery)
	defer tick.Stop()
	for {
		if l.goesRound() {
			l.opts.Alive()
		}
		select {
		case <-ctx.Done():
			return
		case <-l.fresh:
		case <-tick.C:
		}
		conn := l.listening()
		if conn == nil {
			continue
		}
		switch l.checkOnce(ctx) {
		case alive:
			l.mu.Lock()
			l.pause.Reset()
			l.mu.Unlock()
		case deaf:
			l.cut(conn)
		}
	}
}

// Check makes the Listener make sure at once that it hears, and not only when
// it is time to. It does not wait for the answer. It is for those who have a
// reason to doubt: the database has been away, and what is there now may be
// another server.
func (l *Listener) Check() { handleSignal(l.fresh) }

// goesRound: the reader listens, or is not late with its next step.
func (l *Listener) goesRound() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.due.IsZero() || time.Now().Before(l.due)
}

// listening is the connection, if it hears and has not been cut yet.
func (l *Listener) listening() *pgx.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.connected || !l.due.IsZero() {
		return nil
	}
	return l.conn
}

type health int

const (
	unknown health = iota // the pool cannot send: that says nothing of the listener
	alive
	deaf
)

func (l *Listener) checkOnce(ctx context.Context) health {
	select {
	case <-l.echo: // a late one, from before
	default:
	}
	if err := l.notifyOwn(ctx, ""); err != nil {
		return unknown
	}
	// The time that the pool took is not the listener's.
	late := time.NewTimer(l.opts.CheckWithin)
	defer late.Stop()
	select {
	case <-l.echo:
		return alive
	case <-ctx.Done():
		return unknown
	case <-late.C:
	}
	// A server that stands still as a whole gets better by itself, and is not
	// helped by everybody connecting anew.
	ctx, cancel := context.WithTimeout(ctx, l.opts.CheckWithin)
	defer cancel()
	if err := l.pool.Ping(ctx); err != nil {
		return unknown
	}
	select {
	case <-l.echo:
		return alive
	default:
		return deaf
	}
}

// notifyOwn sends a notification to itself through the pool. The words are
// letters and digits. Without parameters nothing has to be prepared, which not
// every pooler likes.
func (l *Listener) notifyOwn(ctx context.Context, word string) error {
	ctx, cancel := context.WithTimeout(ctx, l.opts.CheckWithin)
	defer cancel()
	_, err := l.pool.Exec(ctx, fmt.Sprintf(`/* check listener */ select pg_notify('%s', '%s')`, l.own, word))
	return err
}

// cut ends the wait on the connection, by closing its socket, if it is still
// the one in use.
func (l *Listener) cut(conn *pgx.Conn) {
	l.mu.Lock()
	present := l.conn == conn
	if present {
		l.due = time.Now().Add(l.opts.CheckWithin)
	}
	l.mu.Unlock()
	if present {
		sever(conn)
	}
}
