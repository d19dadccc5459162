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

// Notifies counts the notifications per task of a drain. PostgreSQL merges equal ones of one
// transaction, as it does for every listener.
type Notifies struct {
	Tasks int
	Slots int // per stage
}

// Names returns the names of its figures.
func (Notifies) Names() []string { return []string{"notifies"} }

// Measure drains the tasks.
func (n Notifies) Measure(ctx context.Context, t *Trial) error {
	lister, err := ability[ChannelLister](t)
	if err != nil {
		return err
	}
	counter, err := countNotifications(ctx, t.URL, lister.Channels())
	if err != nil {
		return err
	}
	_, err = t.drain(ctx, n.Tasks, harness.Options{Slots: n.Slots})
	count, stopErr := counter.stop(ctx)
	if err := errors.Join(err, stopErr); err != nil {
		return err
	}
	t.Record("notifies", "", "per task", result.FromValue(float64(count)/float64(n.Tasks)))
	return nil
}

type notificationCounter struct {
	conn   *pgx.Conn
	count  atomic.Int64
	cancel context.CancelFunc
	done   chan error
}

func countNotifications(ctx context.Context, url string, channels []string) (*notificationCounter, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	for _, c := range channels {
		if _, err := conn.Exec(ctx, "listen "+pgx.Identifier{c}.Sanitize()); err != nil {
			return nil, errors.Join(err, conn.Close(ctx))
		}
	}
	n := &notificationCounter{conn: conn, done: make(chan error, 1)}
	ctx, n.cancel = context.WithCancel(ctx)
	go func() {
		for {
			if _, err := conn.WaitForNotification(ctx); err != nil {
				n.done <- err
				return
			}
			n.count.Add(1)
		}
	}()
	return n, nil
}

// stop waits a moment for pending notifications and returns the count.
func (n *notificationCounter) stop(ctx context.Context) (int64, error) {
	_ = ctxsleep.For(ctx, 100*time.Millisecond)
	n.cancel()
	err := <-n.done
	closeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = n.conn.Close(closeCtx) // the cancelled wait has broken it
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return n.count.Load(), err
}
