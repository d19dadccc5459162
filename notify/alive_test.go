package notify_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/notify"
)

// pulse is what a watchdog would see.
type pulse chan struct{}

func (p pulse) beat() {
	select {
	case p <- struct{}{}:
	default:
	}
}

func TestListenerIsAliveWithAndWithoutADatabase(t *testing.T) {
	t.Parallel()
	away, err := pgxpool.New(t.Context(), "host="+t.TempDir())
	must(t, err)
	t.Cleanup(away.Close)
	for name, pool := range map[string]*pgxpool.Pool{"hearing": pgtest.New(t, pgtest.Schema{}), "away": away} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := make(pulse)
			start(t, pool, notify.Options{
				CheckEvery: 10 * time.Millisecond, CheckWithin: 100 * time.Millisecond, RetryAtMost: 50 * time.Millisecond,
				Alive: p.beat,
			})
			// Several times as long as any one step may take.
			for began := time.Now(); time.Since(began) < time.Second; {
				select {
				case <-p:
				case <-time.After(patience):
					t.Fatal("it looks stuck")
				}
			}
		})
	}
}

// Whatever keeps it from going on, it does not pass for alive.
func TestStuckListenerIsNotAlive(t *testing.T) {
	t.Parallel()
	c := pgtest.New(t, pgtest.Schema{}).Config()
	c.ConnConfig.ConnectTimeout = 100 * time.Millisecond
	stuck := make(chan struct{})
	c.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
		<-stuck // without an eye on its context
		return errors.New("not yet")
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	must(t, err)
	t.Cleanup(pool.Close)
	p := make(pulse)
	start(t, pool, notify.Options{CheckEvery: 10 * time.Millisecond, CheckWithin: 100 * time.Millisecond, Alive: p.beat})
	for late, quiet := time.After(patience), false; !quiet; {
		select {
		case <-p:
		case <-late:
			t.Fatal("it is still alive")
		case <-time.After(500 * time.Millisecond):
			quiet = true
		}
	}
	close(stuck)
	select {
	case <-p:
	case <-time.After(patience):
		t.Error("it is not alive again")
	}
}
