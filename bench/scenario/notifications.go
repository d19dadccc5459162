package scenario

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/result"
	"github.com/cuelight/cuelight/internal/ctxsleep"
)

// NotificationCount counts the notifications per task of a drain. PostgreSQL merges equal ones
// of one transaction, as it does for every listener.
func NotificationCount(tasks int) Scenario {
	return Scenario{Names: []string{"notifies"}, Measure: func(ctx context.Context, t *Trial) error {
		if t.System.Channels == nil {
			return errNotSupported
		}
		var count atomic.Int64
		stop, err := Listen(ctx, t.URL, t.System.Channels, func() { count.Add(1) })
		if err != nil {
			return err
		}
		_, err = t.drain(ctx, tasks, harness.Options{})
		_ = ctxsleep.For(ctx, 100*time.Millisecond) // for pending notifications
		if err := errors.Join(err, stop()); err != nil {
			return err
		}
		t.Record("notifies", "", "per task", result.FromValue(float64(count.Load())/float64(tasks)))
		return nil
	}}
}

// Listen calls a function for each notification on the channels until stop is called or ctx is
// done. stop returns why listening ended before.
func Listen(ctx context.Context, url string, channels []string, onNotify func()) (stop func() error, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	for _, c := range channels {
		if _, err := conn.Exec(ctx, "listen "+pgx.Identifier{c}.Sanitize()); err != nil {
			return nil, errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := conn.WaitForNotification(ctx); err != nil {
				ended <- err
				return
			}
			onNotify()
		}
	}()
	return func() error {
		cancel()
		err := <-ended
		closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closeCtx) // the cancelled wait has broken it
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}, nil
}
