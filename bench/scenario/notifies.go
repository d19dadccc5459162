package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/result"
)

// Notifies counts the notifications that are sent while a crew drains many
// tasks, per task. PostgreSQL merges equal ones of one transaction, as it does
// for everybody who listens.
type Notifies struct {
	Tasks int
	Slots int // per stage
}

// Names are those of its figures.
func (Notifies) Names() []string { return []string{"notifies"} }

// Measure measures it.
func (n Notifies) Measure(ctx context.Context, t *Trial) error {
	notifier, ok := t.System.(ChannelLister)
	if !ok {
		return fmt.Errorf("%w: its channels are not known", errNotHere)
	}
	counter, err := listen(ctx, t.URL, notifier.Channels())
	if err != nil {
		return err
	}
	l := load{tasks: n.Tasks, options: harness.Options{Slots: n.Slots}}
	_, err = l.drain(ctx, t)
	heard, stopErr := counter.stop(ctx)
	if err := errors.Join(err, stopErr); err != nil {
		return err
	}
	t.Record("notifies", "", "per task", result.FromValue(float64(heard)/float64(n.Tasks)))
	return nil
}

// ears count notifications.
type ears struct {
	conn  *pgx.Conn
	heard atomic.Int64
	quit  context.CancelFunc
	ended chan error
}

func listen(ctx context.Context, url string, channels []string) (*ears, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	for _, c := range channels {
		if _, err := conn.Exec(ctx, "listen "+pgx.Identifier{c}.Sanitize()); err != nil {
			return nil, errors.Join(err, conn.Close(ctx))
		}
	}
	e := &ears{conn: conn, ended: make(chan error, 1)}
	ctx, e.quit = context.WithCancel(ctx)
	go func() {
		for {
			if _, err := conn.WaitForNotification(ctx); err != nil {
				e.ended <- err
				return
			}
			e.heard.Add(1)
		}
	}()
	return e, nil
}

// stop waits a moment for what is on its way, and returns how many there were.
func (e *ears) stop(ctx context.Context) (int64, error) {
	_ = pause(ctx, 100*time.Millisecond)
	e.quit()
	err := <-e.ended
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = e.conn.Close(closing) // it was interrupted
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return e.heard.Load(), err
}
