// Package floor measures what nothing on this machine and this PostgreSQL can be
// faster than: a commit, five commits each of which waits for the one before, as
// a task's five stages must, and the way of a notification. It uses nothing but
// pgx, on connections that are there already.
package floor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/bench/result"
	"github.com/cuelight/cuelight/bench/scenario"
)

// Commits is an UPDATE of one row, committed, or five of them one after the
// other on one connection. In ms.
type Commits struct {
	Dependent   int // 1 or 5
	Samples     int
	Tight       bool          // one sample after the other, without a pause
	CommitDelay time.Duration // makes each commit that much slower
}

// Names are those of its figures, and the floors'.
func (c Commits) Names() []string { return []string{c.name(), "floor"} }

func (c Commits) name() string {
	if c.Dependent == 1 {
		return "commit"
	}
	return fmt.Sprintf("commits%d", c.Dependent)
}

// Settings are those of its database.
func (c Commits) DatabaseSettings() []string { return scenario.SlowCommitSettings(c.CommitDelay) }

// rows is how many rows there are to update; each sample takes the next.
const rows = 1000

// Measure measures it.
func (c Commits) Measure(ctx context.Context, t *scenario.Trial) error {
	conn, err := pgx.Connect(ctx, t.URL)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, `create table floor (id int primary key, n int not null) with (fillfactor = 50)`); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, `insert into floor select i, 0 from generate_series(1, $1) i`, rows); err != nil {
		return err
	}
	return sample(ctx, t, c.name(), where(c.Tight, c.CommitDelay), c.Tight, c.Samples, func(i int) (time.Duration, error) {
		began := time.Now()
		for range c.Dependent {
			if _, err := conn.Exec(ctx, `update floor set n = n + 1 where id = $1`, i%rows+1); err != nil {
				return 0, err
			}
		}
		return time.Since(began), nil
	})
}

// where is the case of a figure.
func where(tight bool, delay time.Duration) string {
	if tight {
		return "tight"
	}
	return scenario.IdleCase(delay)
}

// sample takes samples after a warm-up, each after a pause unless tight.
func sample(ctx context.Context, t *scenario.Trial, name, of string, tight bool, n int, one func(i int) (time.Duration, error)) error {
	all := make([]time.Duration, 0, n)
	for i := range scenario.Warmup + n {
		if !tight {
			if err := scenario.IdlePause(ctx); err != nil {
				return err
			}
		}
		took, err := one(i)
		if err != nil {
			return err
		}
		if i >= scenario.Warmup {
			all = append(all, took)
		}
	}
	t.Record(name, of, "ms", result.FromDurations(all))
	return nil
}

// Notify is the time from before a NOTIFY until it has arrived on another
// connection, in ms.
type Notify struct {
	Samples int
	Tight   bool // one sample after the other, without a pause
}

// Names are those of its figure, and the floors'.
func (Notify) Names() []string { return []string{"notify", "floor"} }

// Measure measures it.
func (n Notify) Measure(ctx context.Context, t *scenario.Trial) error {
	speaker, err := pgx.Connect(ctx, t.URL)
	if err != nil {
		return err
	}
	defer speaker.Close(context.WithoutCancel(ctx))
	ctx, quit := context.WithCancelCause(ctx)
	heard, ended, err := listen(ctx, quit, t.URL)
	if err != nil {
		quit(nil)
		return err
	}
	defer func() { quit(nil); <-ended }()
	return sample(ctx, t, "notify", where(n.Tight, 0), n.Tight, n.Samples, func(int) (time.Duration, error) {
		began := time.Now()
		if _, err := speaker.Exec(ctx, "notify floor"); err != nil {
			return 0, err
		}
		select {
		case at := <-heard:
			return at.Sub(began), nil
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	})
}

// listen says when each notification arrives, until ctx is done, and then that
// it has ended. When it hears nothing any more it says why to quit.
func listen(ctx context.Context, quit context.CancelCauseFunc, url string) (<-chan time.Time, <-chan struct{}, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	if _, err := conn.Exec(ctx, "listen floor"); err != nil {
		return nil, nil, errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
	}
	heard, ended := make(chan time.Time), make(chan struct{})
	go func() {
		defer close(ended)
		defer conn.Close(context.WithoutCancel(ctx))
		for {
			if _, err := conn.WaitForNotification(ctx); err != nil {
				quit(err)
				return
			}
			select {
			case heard <- time.Now():
			case <-ctx.Done():
				return
			}
		}
	}()
	return heard, ended, nil
}
