package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// sessions looks after the connections of a pool: what each should be set to,
// and what must be different behind a pooler.
type sessions struct{ pooled atomic.Bool }

// settleSQL makes the server notice within 25 s that this host is gone without a
// word. Else it would keep the session for two hours, with the locks of whatever
// it was doing. These are no start-up parameters because poolers refuse those;
// and a session behind one, whose process is another one, is not ours to set.
const settleSQL = `
/* settle session */
select pg_backend_pid() = %[1]d,
       case when pg_backend_pid() = %[1]d then
         set_config('tcp_keepalives_idle', '10', false) || set_config('tcp_keepalives_interval', '5', false) ||
         set_config('tcp_keepalives_count', '3', false) || set_config('tcp_user_timeout', '25000', false) end`

// pooledMark marks a connection, in its CustomData.
const pooledMark = "cuelight pooled"

// settle sets the hooks of a pool that is about to be made.
func (s *sessions) settle(config *pgxpool.Config) {
	config.BeforeConnect = func(_ context.Context, cc *pgx.ConnConfig) error {
		if s.pooled.Load() {
			// Prepared statements stay behind in a session that others go on to use.
			cc.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		}
		return nil
	}
	config.AfterConnect = s.look
	config.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > restful }
	config.PrepareConn = func(_ context.Context, conn *pgx.Conn) (bool, error) {
		// The first connection shows that there is a pooler; the next is made for it.
		unfit := conn.PgConn().CustomData()[pooledMark] != nil && conn.Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement
		return !unfit, nil
	}
}

// restful is how long a connection may rest without being asked whether it is
// still there. That of the beat, every two seconds, shows it by itself; pgxpool
// would ask it every time, half of all that a daemon with nothing to do sends.
const restful = 5 * time.Second

// look finds out whether a new connection leads to PostgreSQL itself: a pooler
// gives its clients process ids of its own making.
func (s *sessions) look(ctx context.Context, conn *pgx.Conn) error {
	var direct bool
	sql := fmt.Sprintf(settleSQL, conn.PgConn().PID())
	if err := conn.QueryRow(ctx, sql, pgx.QueryExecModeSimpleProtocol).Scan(&direct, nil); err != nil {
		return fmt.Errorf("settle session: %w", err)
	}
	if !direct {
		s.pooled.Store(true)
		conn.PgConn().CustomData()[pooledMark] = true
	}
	return nil
}

// preferPrimary makes an address of several hosts mean the one that can be
// written to, unless it says what it means.
func preferPrimary(cc *pgx.ConnConfig) {
	if cc.ValidateConnect != nil {
		return
	}
	for _, f := range cc.Fallbacks {
		if f.Host != cc.Host || f.Port != cc.Port {
			cc.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
			return
		}
	}
}
