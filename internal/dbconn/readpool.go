package dbconn

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/store"
)

// ReadPool has the connections of everything that serves clients: the dashboard, the
// API, streams, uploads and metrics. They are separate from those of the work, whose
// heartbeat must not wait for a connection.
type ReadPool struct {
	Pool  *pgxpool.Pool
	Store *store.Store

	// Reserved has connections for what must be answered under any load: who a client
	// is, and whether this process is healthy.
	Reserved      *pgxpool.Pool
	ReservedStore *store.Store

	// Standby leads to Options.ReadURL; nil if that is empty.
	Standby *pgxpool.Pool
}

// readConns is the maximum size of ReadPool.Pool; it is smaller if the work's pool is.
const readConns = 8

// reservedConns is the size of ReadPool.Reserved. Its queries take less than a
// millisecond, so one would do, if the network could not lose it for a while.
const reservedConns = 2

// limitsSQL limits statements that serve clients. Requests end by themselves after 30 s;
// statement_timeout is for those whose cancellation does not reach the server. Without
// jit, because compiling takes a hundred times longer than these statements. It does
// not replace an operator's statement_timeout.
const limitsSQL = `
/* limit session */
select set_config('jit', 'off', false),
       set_config('statement_timeout',
                  case current_setting('statement_timeout')
                      when '0' then '%s'
                      else current_setting('statement_timeout')
                  end, false)`

// OpenReadPool creates the pools for clients. They connect at their first use.
func (db *Database) OpenReadPool(ctx context.Context) error {
	pool, err := openLimited(ctx, db.Pool.Config(), &db.sessions, readConns, "45s")
	if err != nil {
		return err
	}
	reserved, err := openLimited(ctx, db.Pool.Config(), &db.sessions, reservedConns, "5s")
	if err != nil {
		pool.Close()
		return err
	}
	db.Reads = ReadPool{
		Pool: pool, Store: store.New(pool, store.Video()),
		Reserved: reserved, ReservedStore: store.New(reserved, store.Video()),
	}
	if db.standbyConfig != nil {
		db.Reads.Standby, err = openLimited(ctx, db.standbyConfig, &db.standbySessions, readConns, "45s")
	}
	return err // Close closes the others
}

// openLimited creates a pool with a configuration, at most conns connections
// and a statement timeout. Sessions behind a pooler keep their settings, because other
// clients use them too.
func openLimited(
	ctx context.Context, config *pgxpool.Config, s *sessions, conns int32, timeout string,
) (*pgxpool.Pool, error) {
	config.MaxConns = min(config.MaxConns, conns)
	config.MinConns, config.MinIdleConns = 0, 0
	configure := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := configure(ctx, conn); err != nil || s.pooled.Load() {
			return err
		}
		if _, err := conn.Exec(ctx, fmt.Sprintf(limitsSQL, timeout), pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("limit session: %w", err)
		}
		return nil
	}
	return pgxpool.NewWithConfig(ctx, config)
}
