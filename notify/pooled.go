package notify

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ErrPooled says that the Listener's address leads through a pooler which does
// not keep one session for it, so that notifications do not arrive.
var ErrPooled = errors.New("the connection leads through a pooler in transaction mode, where notifications do not arrive: " +
	"the sweep goes on alone and finds work seconds later; give the listener an address that leads to PostgreSQL itself, " +
	"or to a pool in session mode")

// prove waits for a notification to itself on a connection that leads through
// a pooler. It listens to nothing else before: in transaction mode LISTEN
// stays behind in a session that others go on to use.
func (l *Listener) prove(ctx context.Context, conn *pgx.Conn) error {
	exec := func(sql string) error {
		within, cancel := l.step(ctx, l.opts.CheckWithin)
		defer cancel()
		_, err := conn.Exec(within, sql)
		return err
	}
	if err := exec("listen " + l.own); err != nil {
		return fmt.Errorf("listen through the pooler: %w", err)
	}
	word := strings.ToLower(rand.Text())
	l.expect(l.opts.CheckWithin)
	if err := l.notifyOwn(ctx, word); err != nil {
		return fmt.Errorf("check the pooler: %w", err) // which says nothing of it
	}
	within, cancel := l.step(ctx, l.opts.CheckWithin)
	defer cancel()
	for {
		n, err := conn.WaitForNotification(within)
		if err == nil && n.Payload == word {
			return nil
		}
		if err == nil {
			continue // of an earlier try, in a session that was left behind
		}
		if within.Err() == nil || ctx.Err() != nil {
			return fmt.Errorf("check the pooler: %w", err)
		}
		break
	}
	// Silence alone may have other reasons; a connection that answers has none.
	if err := exec("unlisten " + l.own); err != nil {
		return fmt.Errorf("check the pooler: %w", err)
	}
	return ErrPooled
}
