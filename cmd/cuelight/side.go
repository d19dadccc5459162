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
}

// sideConns is how many connections there are for that at most, or as many as the
// work has if these are fewer.
const sideConns = 8

// boundSQL ends what somebody asked who does not wait for it any more. Requests have
// 30 s and are ended by themselves; this is for where that does not get through. It
// leaves alone what an operator has set, and so does a session behind a pooler,
// which others go on to use.
const boundSQL = `
/* bound session */
select set_config('statement_timeout', '45s', false) where current_setting('statement_timeout') = '0'`

// openSide makes the pool beside that of the work. It connects when it is asked.
func (db *database) openSide(ctx context.Context) error {
	config := db.pool.Config()
	config.MaxConns = min(config.MaxConns, sideConns)
	config.MinConns, config.MinIdleConns = 0, 0
	settle := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := settle(ctx, conn); err != nil || db.sessions.pooled.Load() {
			return err
		}
		if _, err := conn.Exec(ctx, boundSQL, pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("bound session: %w", err)
		}
		return nil
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	db.side = side{pool: pool, store: store.New(pool, store.Video())}
	return nil
}
