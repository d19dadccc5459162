package notify

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ErrPooled says that the Listener is connected through a pooler that does not keep one
// session for it, so that notifications do not arrive.
var ErrPooled = errors.New("the connection leads through a pooler in transaction mode, where notifications do not " +
	"arrive: " +
	"work is found by polling, seconds later; give the listener an address of PostgreSQL itself, " +
	"or of a pooler in session mode")

// checkPooler sends a notification to itself and waits for it on a connection through a
// pooler. It returns [ErrPooled] if it does not arrive. It listens to no other channel
// before: in transaction mode LISTEN stays active in a session that other clients get.
func (l *Listener) checkPooler(ctx context.Context, conn *pgx.Conn) error {
	exec := func(sql string) error {
		stepCtx, cancel := l.startStep(ctx, l.options.CheckTimeout)
		defer cancel()
		_, err := conn.Exec(stepCtx, sql)
		return err
	}
	if err := exec("listen " + l.echoChannel); err != nil {
		return fmt.Errorf("listen through the pooler: %w", err)
	}
	payload := strings.ToLower(rand.Text())
	l.setDeadline(l.options.CheckTimeout)
	if err := l.sendEcho(ctx, payload); err != nil {
		return fmt.Errorf("check the pooler: %w", err) // the pool failed, not the pooler
	}
	stepCtx, cancel := l.startStep(ctx, l.options.CheckTimeout)
	defer cancel()
	for {
		n, err := conn.WaitForNotification(stepCtx)
		if err == nil && n.Payload == payload {
			return nil
		}
		if err == nil {
			continue // of an earlier check, in a session that was left behind
		}
		if stepCtx.Err() == nil || ctx.Err() != nil {
			return fmt.Errorf("check the pooler: %w", err)
		}
		break
	}
	// A missing notification may have other causes, but not if the connection still answers.
	if err := exec("unlisten " + l.echoChannel); err != nil {
		return fmt.Errorf("check the pooler: %w", err)
	}
	return ErrPooled
}
