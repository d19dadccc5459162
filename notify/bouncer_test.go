package notify_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/notify"
)

func TestPoolerInTransactionModeIsToldOnceUntilItKeepsSessions(t *testing.T) {
	t.Parallel()
	p, through := pgtest.NewBouncer(t, pgtest.New(t, pgtest.Schema{}), "transaction")
	tries := make(chan struct{}, 1000)
	o := soon()
	o.ConnConfig = through.Config().ConnConfig
	reach := o.ConnConfig.DialFunc
	o.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		tries <- struct{}{}
		return reach(ctx, network, address)
	}
	b := start(t, through, o, func(l *notify.Listener) { l.PausePooled(10 * time.Millisecond) })
	if err := b.change(false); !errors.Is(err, notify.ErrPooled) {
		t.Fatalf("told %v, want ErrPooled", err)
	}
	for range 3 {
		<-tries
	}
	if key, held := b.Session(); key != 0 || held || b.Connected() {
		t.Errorf("key %d, held %t, connected %t", key, held, b.Connected())
	}
	b.unchanged()

	p.Stop()
	p.Start("session")
	b.change(true)
	b.news()
	b.pool.Reset()
	b.exec(`notify a`)
	b.news()
	b.unchanged()
}

// In transaction mode LISTEN stays behind in a session that others use next.
func TestTryThroughAPoolerLeavesNoListenBehind(t *testing.T) {
	t.Parallel()
	_, through := pgtest.NewBouncer(t, pgtest.New(t, pgtest.Schema{}), "transaction")
	o := soon()
	b := start(t, through, o)
	b.change(false)
	var channels int
	if err := through.QueryRow(t.Context(), `select count(*) from pg_listening_channels()`).Scan(&channels); err != nil || channels != 0 {
		t.Errorf("the only session behind the pooler listens to %d channels (%v), want none", channels, err)
	}
}

// All but the lock, which the pooler would hold when we are long gone.
func TestPoolerInSessionModeIsListenedThrough(t *testing.T) {
	t.Parallel()
	direct := pgtest.New(t, pgtest.Schema{})
	p, through := pgtest.NewBouncer(t, direct, "session")
	b := listen(t, through, quick())
	b.news()
	b.exec(`notify a`)
	b.news()
	if key, held := b.Session(); key != 0 || held {
		t.Errorf("key %d, held %t, through a pooler", key, held)
	}
	b.pool = direct
	b.exec(`select pg_terminate_backend(pid) from pg_stat_activity where query ilike 'listen %' and datname = current_database()`)
	b.back()
	p.Stop()
	b.change(false)
	p.Start("session")
	b.change(true)
	b.news()
	b.exec(`notify a`)
	b.news()
	b.unchanged()
}

// The pool leads through PgBouncer, the listener past it.
func TestListenerWithAnAddressOfItsOwnNeedsNoSessionsOfThePool(t *testing.T) {
	t.Parallel()
	direct := pgtest.New(t, pgtest.Schema{})
	_, through := pgtest.NewBouncer(t, direct, "transaction")
	o := soon()
	o.ConnConfig = direct.Config().ConnConfig
	b := listen(t, through, o)
	b.news()
	if _, held := b.Session(); !held {
		t.Error("the lock is not held on a direct connection")
	}
	if _, err := through.Exec(t.Context(), `select pg_notify('a', '')`, pgx.QueryExecModeExec); err != nil {
		t.Fatal(err)
	}
	b.news()
	b.unchanged()
}
