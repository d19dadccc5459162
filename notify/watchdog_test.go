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

// aliveSignal receives the calls of OnAlive, as a watchdog would.
type aliveSignal chan struct{}

func (p aliveSignal) signal() {
	select {
	case p <- struct{}{}:
	default:
	}
}

func TestOnAlive_IsCalledWithAndWithoutADatabase(t *testing.T) {
	t.Parallel()
	unreachable, err := pgxpool.New(t.Context(), "host="+t.TempDir())
	must(t, err)
	t.Cleanup(unreachable.Close)
	for name, pool := range map[string]*pgxpool.Pool{
		"connected": pgtest.New(t, pgtest.Schema{}), "unreachable": unreachable,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := make(aliveSignal)
			start(t, pool, notify.Options{
				CheckInterval: 10 * time.Millisecond, CheckTimeout: 100 * time.Millisecond, MaxRetryDelay: 50 * time.Millisecond,
				OnAlive: p.signal,
			})
			// Several times as long as one step may take.
			for began := time.Now(); time.Since(began) < time.Second; {
				select {
				case <-p:
				case <-time.After(testTimeout):
					t.Fatal("OnAlive was not called")
				}
			}
		})
	}
}

// A Listener that is stuck for any reason must not call OnAlive.
func TestOnAlive_IsNotCalledWhileStuck(t *testing.T) {
	t.Parallel()
	c := pgtest.New(t, pgtest.Schema{}).Config()
	c.ConnConfig.ConnectTimeout = 100 * time.Millisecond
	stuck := make(chan struct{})
	c.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
		<-stuck // ignores its context
		return errors.New("not yet")
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	must(t, err)
	t.Cleanup(pool.Close)
	p := make(aliveSignal)
	start(t, pool, notify.Options{
		CheckInterval: 10 * time.Millisecond, CheckTimeout: 100 * time.Millisecond, OnAlive: p.signal,
	})
	for late, quiet := time.After(testTimeout), false; !quiet; {
		select {
		case <-p:
		case <-late:
			t.Fatal("OnAlive is still called")
		case <-time.After(500 * time.Millisecond):
			quiet = true
		}
	}
	close(stuck)
	select {
	case <-p:
	case <-time.After(testTimeout):
		t.Error("OnAlive is not called again")
	}
}
