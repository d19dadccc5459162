package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/store"
)

// side is the database as those ask it who look on: the dashboard, the API, keys,
// streams, uploads and metrics. Its connections are its own, so that whoever asks
// much, or slowly, takes none from the work, whose heartbeat must not wait.
type side struct {
	pool  *pgxpool.Pool
	store *store.Store

	// reserved has connections for what must be answered however many look on: who
	// somebody is, and whether this process is well.
	reserved      *pgxpool.Pool
	reservedStore *store.Store
}

// sideConns is how many connections there are for that at most, or as many as the
// work has if these are fewer.
const sideConns = 8

// reservedConns is how many are reserved. Their queries take less than a
// millisecond, so two are enough; with one, a connection that the network has lost
// would keep everybody out until that is noticed.
const reservedConns = 2

// boundSQL is for statements of people. It ends what somebody asked who does not wait
// for it any more: requests have 30 s and are ended by themselves; this is for where
// that does not get through. And it keeps PostgreSQL from compiling statements (jit),
// which takes a hundred times longer than these run. It leaves alone what an operator
// has set as a timeout, and so does a session behind a pooler, which others go on to use.
const boundSQL = `
/* bound session */
select set_config('jit', 'off', false), set_config('statement_timeout', case current_setting('statement_timeout') when '0' then '%s' else current_setting('statement_timeout') end, false)`

// openSide makes the pools beside that of the work. They connect when they are asked.
func (db *database) openSide(ctx context.Context) error {
	pool, err := db.openBounded(ctx, sideConns, "45s")
	if err != nil {
		return err
	}
	reserved, err := db.openBounded(ctx, reservedConns, "5s")
	if err != nil {
		pool.Close()
		return err
	}
	db.side = side{
		pool: pool, store: store.New(pool, store.Video()), reserved: reserved, reservedStore: store.New(reserved, store.Video()),
	}
	return nil
}

// openBounded makes a pool like that of the work, of at most so many connections,
// whose statements have a bound.
func (db *database) openBounded(ctx context.Context, conns int32, timeout string) (*pgxpool.Pool, error) {
	config := db.pool.Config()
	config.MaxConns = min(config.MaxConns, conns)
	config.MinConns, config.MinIdleConns = 0, 0
	settle := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := settle(ctx, conn); err != nil || db.sessions.pooled.Load() {
			return err
		}
		if _, err := conn.Exec(ctx, fmt.Sprintf(boundSQL, timeout), pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("bound session: %w", err)
		}
		return nil
	}
	return pgxpool.NewWithConfig(ctx, config)
}
