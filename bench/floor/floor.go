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

// Options say how samples are taken.
type Options struct {
	Samples       int
	WithoutPauses bool          // take one sample directly after the other
	CommitDelay   time.Duration // makes each commit slower
}

// rows is the number of rows; each sample updates the next one.
const rows = 1000

// Commits measures an update of one row with its commit, or five of them one after the other
// on one connection: "commit" or "commits5".
func Commits(dependent int, o Options) scenario.Scenario {
	name := "commit"
	if dependent > 1 {
		name = fmt.Sprintf("commits%d", dependent)
	}
	return o.scenario(name, func(ctx context.Context, t *scenario.Trial) error {
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
		return o.measure(ctx, t, name, func(i int) (time.Duration, error) {
			started := time.Now()
			for range dependent {
				if _, err := conn.Exec(ctx, `update floor set n = n + 1 where id = $1`, i%rows+1); err != nil {
					return 0, err
				}
			}
			return time.Since(started), nil
		})
	})
}

// Notify measures the time from before a NOTIFY until its arrival on another connection:
// "notify".
func Notify(o Options) scenario.Scenario {
	return o.scenario("notify", func(ctx context.Context, t *scenario.Trial) (err error) {
		sender, err := pgx.Connect(ctx, t.URL)
		if err != nil {
			return err
		}
		defer sender.Close(context.WithoutCancel(ctx))
		arrivals := make(chan time.Time, 1)
		stop, err := scenario.Listen(ctx, t.URL, []string{"floor"}, func() { arrivals <- time.Now() })
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
		return o.measure(ctx, t, "notify", func(int) (time.Duration, error) {
			started := time.Now()
			if _, err := sender.Exec(ctx, "notify floor"); err != nil {
				return 0, err
			}
			select {
			case at := <-arrivals:
				return at.Sub(started), nil
			case <-time.After(arrivalTimeout):
				return 0, errors.New("a notification did not arrive")
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
		})
	})
}

// arrivalTimeout is how long a notification may take. The listening connection may have failed.
const arrivalTimeout = 30 * time.Second

func (o Options) scenario(name string, measure func(context.Context, *scenario.Trial) error) scenario.Scenario {
	return scenario.Scenario{
		Names: []string{name, "floor"}, Settings: scenario.SlowCommitSettings(o.CommitDelay), Measure: measure,
	}
}

// measure takes samples after a warm-up, each after a pause unless o excludes pauses.
func (o Options) measure(
	ctx context.Context, t *scenario.Trial, name string, take func(i int) (time.Duration, error),
) error {
	caseName := scenario.IdleCase(o.CommitDelay)
	if o.WithoutPauses {
		caseName = "tight"
	}
	var all []time.Duration
	for i := range scenario.Warmup + o.Samples {
		if !o.WithoutPauses {
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
	t.RecordDurations(name, caseName, all)
	return nil
}
