package dbconn

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/store"
)

// sessions configures the connections of a pool, and detects a pooler.
type sessions struct{ pooled atomic.Bool }

// sessionSQL sets what others may have chosen for other work, such as an isolation above read committed, which would hide what
// other workers commit, and keepalives so that the server notices within 25 s that this host has
// disappeared. By default it would keep the session, with its locks, for two hours.
// Start-up parameters would not do: poolers refuse them. A session behind a pooler
// belongs to others too, so it is left as it is.
const sessionSQL = `
/* configure session */
select pg_backend_pid() = %[1]d,
       case when pg_backend_pid() = %[1]d then
         set_config('tcp_keepalives_idle', '10', false) || set_config('tcp_keepalives_interval', '5', false) ||
         set_config('tcp_keepalives_count', '3', false) || set_config('tcp_user_timeout', '25000', false) ||
         set_config('default_transaction_isolation', 'read committed', false) end`

// pooledMark marks, in its CustomData, a connection that leads to a pooler.
const pooledMark = "cuelight pooled"

// pingAfterIdle is for how long a connection may be idle before it is checked at its
// next use. The heartbeat uses one every two seconds and shows by itself whether it
// works; pgxpool's default would double the queries of an idle daemon.
const pingAfterIdle = 5 * time.Second

// configure sets the hooks of a pool before it is created.
func (s *sessions) configure(config *pgxpool.Config) {
	config.BeforeConnect = func(ctx context.Context, cc *pgx.ConnConfig) error {
		if s.pooled.Load() {
			// Prepared statements would stay in a session that other clients use next.
			cc.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		}
		return RefreshPassword(ctx, cc)
	}
	config.AfterConnect = s.detectPooler
	config.ShouldPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > pingAfterIdle }
	config.PrepareConn = func(_ context.Context, conn *pgx.Conn) (bool, error) {
		// The first connection detects the pooler, but is set up for direct use.
		unfit := conn.PgConn().CustomData()[pooledMark] != nil &&
			conn.Config().DefaultQueryExecMode == pgx.QueryExecModeCacheStatement
		return !unfit, nil
	}
}

// RefreshPassword reads the password of a connection again, before it is made: that in PGPASSFILE, or in a file that
// the address names, may have changed.
func RefreshPassword(_ context.Context, cc *pgx.ConnConfig) error {
	fresh, err := pgx.ParseConfig(cc.ConnString())
	if err != nil {
		return fmt.Errorf("read the settings of the connection again: %s", redact.Passwords(err.Error()))
	}
	cc.Password = fresh.Password
	return nil
}

// detectPooler compares the backend's process id with the one from the connection's
// start-up: a pooler makes up its own.
func (s *sessions) detectPooler(ctx context.Context, conn *pgx.Conn) error {
	if encoding := conn.PgConn().ParameterStatus("server_encoding"); encoding != "" {
		if err := store.CheckEncoding(encoding); err != nil { // the simple protocol would refuse it without a reason
			return err
		}
	}
	if conn.PgConn().ParameterStatus("client_encoding") != "UTF8" { // a role's; poolers know this one
		if _, err := conn.PgConn().Exec(ctx, "set client_encoding = 'UTF8'").ReadAll(); err != nil {
			return fmt.Errorf("configure session: %w", err)
		}
	}
	var direct bool
	sql := fmt.Sprintf(sessionSQL, conn.PgConn().PID())
	if err := conn.QueryRow(ctx, sql, pgx.QueryExecModeSimpleProtocol).Scan(&direct, nil); err != nil {
		return fmt.Errorf("configure session: %w", err)
	}
	if !direct {
		s.pooled.Store(true)
		conn.PgConn().CustomData()[pooledMark] = true
	}
	return nil
}

// preferPrimary makes an address with several hosts select the one that accepts
// writes, unless the address has target_session_attrs.
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
