package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/bench/system"
)

// The floor is lower bounds on this machine and this PostgreSQL. It uses only pgx, on connections that are already open.

// Commits measures an update of one row with its commit, or five of them one after the other
// on one connection, as the five stages of a task must: "commit" or "commits5". commitDelay makes each commit slower.
func Commits(dependent, samples int, commitDelay time.Duration) Scenario {
	name := "commit"
	if dependent > 1 {
		name = fmt.Sprintf("commits%d", dependent)
	}
	const rows = 1000 // each sample updates the next one
	return Scenario{Names: []string{name, "floor"}, Settings: slowCommits(commitDelay), Measure: func(ctx context.Context, t *Trial) error {
		return system.WithConn(ctx, t.URL, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, `create table floor (id int primary key, n int not null) with (fillfactor = 50)`)
			if err == nil {
				_, err = conn.Exec(ctx, `insert into floor select i, 0 from generate_series(1, $1) i`, rows)
			}
			if err != nil {
				return err
			}
			return t.recordSamples(ctx, name, idleCase(commitDelay), samples, func(i int) (time.Duration, error) {
				started := time.Now()
				for range dependent {
					if _, err := conn.Exec(ctx, `update floor set n = n + 1 where id = $1`, i%rows+1); err != nil {
						return 0, err
					}
				}
				return time.Since(started), nil
			})
		})
	}}
}

// Notify measures the time from before a NOTIFY until its arrival on another connection: "notify".
func Notify(samples int) Scenario {
	return Scenario{Names: []string{"notify", "floor"}, Measure: func(ctx context.Context, t *Trial) (err error) {
		arrivals := make(chan time.Time, 1)
		stop, err := listen(ctx, t.URL, []string{"floor"}, func() { arrivals <- time.Now() })
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
		return system.WithConn(ctx, t.URL, func(sender *pgx.Conn) error {
			return t.recordSamples(ctx, "notify", "idle", samples, func(int) (time.Duration, error) {
				started := time.Now()
				if _, err := sender.Exec(ctx, "notify floor"); err != nil {
					return 0, err
				}
				select {
				case at := <-arrivals:
					return at.Sub(started), nil
				case <-time.After(stuckTimeout): // the listening connection may have failed
					return 0, errors.New("a notification did not arrive")
				case <-ctx.Done():
					return 0, context.Cause(ctx)
				}
			})
		})
	}}
}

// recordSamples records samples that are taken after a warm-up, each after a pause.
func (t *Trial) recordSamples(ctx context.Context, name, caseName string, n int, take func(i int) (time.Duration, error)) error {
	var all []time.Duration
	for i := range warmup + n {
		if err := idlePause(ctx); err != nil {
			return err
		}
		took, err := take(i)
		if err != nil {
			return err
		}
		if i >= warmup {
			all = append(all, took)
		}
	}
	t.RecordDurations(name, caseName, all)
	return nil
}

// listen calls a function for each notification on the channels until stop is called or ctx is
// done. stop returns why listening ended before.
func listen(ctx context.Context, url string, channels []string, onNotify func()) (stop func() error, err error) {
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
		_ = conn.Close(context.WithoutCancel(ctx)) // the cancelled wait has broken it
		if errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	}, nil
}
