package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgserver"
	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/store"
)

const database = "cuelight"

// connectWithin is how long one try to connect may take, as in cuelight itself.
const connectWithin = 10 * time.Second

// pair is a primary and its synchronous standby.
type pair struct {
	*progresslog.Log
	primary, standby *pgserver.Server
}

// newPair makes both servers, and the pipeline's tables.
func newPair(ctx context.Context, t *progresslog.Log) (_ *pair, err error) {
	two := &pair{Log: t}
	defer func() {
		if err != nil {
			err = errors.Join(err, two.close())
		}
	}()
	two.primary, err = pgserver.Start(ctx, pgserver.Options{Durable: true, Listen: []string{"127.0.0.1"}})
	if err != nil {
		return nil, err
	}
	if err := two.primary.CreateDatabase(ctx, database); err != nil {
		return nil, err
	}
	if err := makeTables(ctx, two.primary.URL(database)); err != nil {
		return nil, err
	}
	if two.standby, err = two.primary.Standby(ctx, pgserver.StandbyOptions{Name: "standby"}); err != nil {
		return nil, err
	}
	if err := two.primary.Set(ctx, "synchronous_standby_names", "standby"); err != nil {
		return nil, err
	}
	if err := two.synchronous(ctx); err != nil {
		return nil, err
	}
	t.Logf("primary at %s, synchronous standby at %s", two.primary.Addr(), two.standby.Addr())
	return two, nil
}

func (two *pair) close() error {
	var err error
	for _, s := range []*pgserver.Server{two.primary, two.standby} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	return err
}

// address leads to whichever of the two can be written to.
func (two *pair) address() string {
	return pgserver.TCPURL(database, two.primary.Addr(), two.standby.Addr())
}

// synchronous returns when the primary waits for the standby.
func (two *pair) synchronous(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, two.primary.URL(database))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for is := false; !is; {
		err := conn.QueryRow(ctx, "select exists (select from pg_stat_replication where sync_state = 'sync')").Scan(&is)
		if err != nil {
			return fmt.Errorf("wait for the standby: %w", err)
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// fail takes the primary away in the midst of the load, and promotes the
// standby some time later.
func (two *pair) fail(ctx context.Context, p plan, l *load) error {
	if err := pause(ctx, p.before); err != nil {
		return err
	}
	if p.readOnly {
		if err := two.primary.Set(ctx, "default_transaction_read_only", "on"); err != nil {
			return err
		}
		two.Logf("the primary refuses to write (default_transaction_read_only=on)")
	} else {
		if err := two.primary.Kill(); err != nil {
			return err
		}
		two.Logf("the primary is killed (SIGKILL)")
	}
	l.interrupted(func(outage time.Duration) {
		two.Logf("a submission is acknowledged again, %d ms after the last", outage.Milliseconds())
	})
	if err := pause(ctx, p.away); err != nil {
		return err
	}
	if err := two.standby.Promote(ctx); err != nil {
		return err
	}
	two.Logf("the standby is promoted")
	return nil
}

func makeTables(ctx context.Context, address string) error {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = store.New(conn, graph()).Migrate(ctx)
	return err
}

// connect returns a pool that connects lazily, as cuelight's does.
func connect(ctx context.Context, address string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, err
	}
	config.ConnConfig.ConnectTimeout = connectWithin
	return pgxpool.NewWithConfig(ctx, config)
}
