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

func TestPooler_InTransactionModeIsReportedOnce(t *testing.T) {
	t.Parallel()
	p, through := pgtest.NewBouncer(t, pgtest.New(t, pgtest.Schema{}), "transaction")
	attempts := make(chan struct{}, 1000)
	o := fastChecks()
	o.ConnConfig = through.Config().ConnConfig
	dial := o.ConnConfig.DialFunc
	o.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		attempts <- struct{}{}
		return dial(ctx, network, address)
	}
	b := start(t, through, o, func(l *notify.Listener) { l.SetPoolerRetryDelay(10 * time.Millisecond) })
	if err := b.wantChange(false); !errors.Is(err, notify.ErrPooled) {
		t.Fatalf("OnChange got %v, want ErrPooled", err)
	}
	for range 3 {
		<-attempts
	}
	if key, held := b.Session(); key != 0 || held || b.Connected() {
		t.Errorf("key %d, held %t, connected %t", key, held, b.Connected())
	}
	b.wantNoChange()

	p.Stop()
	p.Start("session")
	b.wantChange(true)
	b.takeWakes()
	b.pool.Reset()
	b.exec(`notify a`)
	b.takeWakes()
	b.wantNoChange()
}

// In transaction mode a LISTEN would stay active in a session that other clients get.
func TestPooler_CheckLeavesNoListenBehind(t *testing.T) {
	t.Parallel()
	_, through := pgtest.NewBouncer(t, pgtest.New(t, pgtest.Schema{}), "transaction")
	o := fastChecks()
	b := start(t, through, o)
	b.wantChange(false)
	var channels int
	err := through.QueryRow(t.Context(), `select count(*) from pg_listening_channels()`).Scan(&channels)
	if err != nil || channels != 0 {
		t.Errorf("the only session behind the pooler listens to %d channels (%v), want none", channels, err)
	}
}

// Everything works except the lock, which the pooler would keep after the Listener's end.
func TestPooler_InSessionModeDeliversNotifications(t *testing.T) {
	t.Parallel()
	direct := pgtest.New(t, pgtest.Schema{})
	p, through := pgtest.NewBouncer(t, direct, "session")
	b := listen(t, through, fastRetries())
	b.takeWakes()
	b.exec(`notify a`)
	b.takeWakes()
	if key, held := b.Session(); key != 0 || held {
		t.Errorf("key %d, held %t, through a pooler", key, held)
	}
	b.pool = direct
	b.exec(`select pg_terminate_backend(pid) from pg_stat_activity where query ilike 'listen %'
		and datname = current_database()`)
	b.wantReconnect()
	p.Stop()
	b.wantChange(false)
	p.Start("session")
	b.wantChange(true)
	b.takeWakes()
	b.exec(`notify a`)
	b.takeWakes()
	b.wantNoChange()
}

// The pool connects through PgBouncer, and the listener directly.
func TestConnConfig_BypassesThePoolsPooler(t *testing.T) {
	t.Parallel()
	direct := pgtest.New(t, pgtest.Schema{})
	_, through := pgtest.NewBouncer(t, direct, "transaction")
	o := fastChecks()
	o.ConnConfig = direct.Config().ConnConfig
	calls := make(chan *pgx.ConnConfig, 10)
	o.BeforeConnect = func(_ context.Context, cc *pgx.ConnConfig) error {
		calls <- cc
		return nil
	}
	b := listen(t, through, o)
	b.takeWakes()
	if cc := <-calls; cc == o.ConnConfig || cc.Host != o.ConnConfig.Host {
		t.Error("BeforeConnect does not get a copy of the configuration")
	}
	if _, held := b.Session(); !held {
		t.Error("the lock is not held on a direct connection")
	}
	if _, err := through.Exec(t.Context(), `select pg_notify('a', '')`, pgx.QueryExecModeExec); err != nil {
		t.Fatal(err)
	}
	b.takeWakes()
	b.wantNoChange()
}
