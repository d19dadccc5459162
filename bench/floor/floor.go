// Package floor measures lower bounds on this machine and this PostgreSQL: a commit, five
// commits that each wait for the one before, as the five stages of a task must, and the delay
// of a notification. It uses only pgx, on connections that are already open.
package floor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/bench/scenario"
)

// Commits measures an update of one row with its commit, or five of them one after the other
// on one connection.
type Commits struct {
	Dependent   int // 1 or 5
	Samples     int
	Tight       bool          // no pauses between samples
	CommitDelay time.Duration // makes each commit slower
}

// Names returns the names of its figures.
func (c Commits) Names() []string { return []string{c.name(), "floor"} }

func (c Commits) name() string {
	if c.Dependent == 1 {
		return "commit"
	}
	return fmt.Sprintf("commits%d", c.Dependent)
}

// DatabaseSettings returns the settings of its database.
func (c Commits) DatabaseSettings() []string { return scenario.SlowCommitSettings(c.CommitDelay) }

// rows is the number of rows; each sample updates the next one.
const rows = 1000

// Measure records its figure.
func (c Commits) Measure(ctx context.Context, t *scenario.Trial) error {
	conn, err := pgx.Connect(ctx, t.URL)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, `create table floor (id int primary key, n int not null) with (fillfactor = 50)`)
	if err == nil {
		_, err = conn.Exec(ctx, `insert into floor select i, 0 from generate_series(1, $1) i`, rows)
	}
	if err != nil {
		return err
	}
	s := sampler{c.name(), scenario.IdleCase(c.CommitDelay), c.Tight, c.Samples}
	return s.measure(ctx, t, func(i int) (time.Duration, error) {
		started := time.Now()
		for range c.Dependent {
			if _, err := conn.Exec(ctx, `update floor set n = n + 1 where id = $1`, i%rows+1); err != nil {
				return 0, err
			}
		}
		return time.Since(started), nil
	})
}

type sampler struct {
	name, of string
	tight    bool
	samples  int
}

// measure takes samples after a warm-up, each after a pause unless tight.
func (s sampler) measure(ctx context.Context, t *scenario.Trial, take func(i int) (time.Duration, error)) error {
	if s.tight {
		s.of = "tight"
	}
	var all []time.Duration
	for i := range scenario.Warmup + s.samples {
		if !s.tight {
			if err := scenario.IdlePause(ctx); err != nil {
				return err
			}
		}
		took, err := take(i)
		if err != nil {
			return err
		}
		if i >= scenario.Warmup {
			all = append(all, took)
		}
	}
	t.RecordDurations(s.name, s.of, all)
	return nil
}

// Notify measures the time from before a NOTIFY until its arrival on another connection.
type Notify struct {
	Samples int
	Tight   bool // no pauses between samples
}

// Names returns the names of its figures.
func (Notify) Names() []string { return []string{"notify", "floor"} }

// Measure records its figure.
func (n Notify) Measure(ctx context.Context, t *scenario.Trial) error {
	sender, err := pgx.Connect(ctx, t.URL)
	if err != nil {
		return err
	}
	defer sender.Close(context.WithoutCancel(ctx))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	arrivals, done, err := listen(ctx, cancel, t.URL)
	if err != nil {
		return err
	}
	defer func() { cancel(nil); <-done }()
	s := sampler{"notify", scenario.IdleCase(0), n.Tight, n.Samples}
	return s.measure(ctx, t, func(int) (time.Duration, error) {
		started := time.Now()
		if _, err := sender.Exec(ctx, "notify floor"); err != nil {
			return 0, err
		}
		select {
		case at := <-arrivals:
			return at.Sub(started), nil
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	})
}

// listen sends the time of each notification until ctx is done, and then closes done. It
// cancels ctx if the connection fails.
func listen(
	ctx context.Context, cancel context.CancelCauseFunc, url string,
) (arrivals <-chan time.Time, done <-chan struct{}, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	if _, err := conn.Exec(ctx, "listen floor"); err != nil {
		return nil, nil, errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
	}
	times, ended := make(chan time.Time), make(chan struct{})
	go func() {
		defer close(ended)
		defer conn.Close(context.WithoutCancel(ctx))
		for {
			if _, err := conn.WaitForNotification(ctx); err != nil {
				cancel(err)
				return
			}
			select {
			case times <- time.Now():
			case <-ctx.Done():
				return
			}
		}
	}()
	return times, ended, nil
}
