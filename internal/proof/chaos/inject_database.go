package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

const (
	database = "chaos"
	// sessionPrefix begins the application_name of all sessions but those of the injector and of
	// the checks.
	sessionPrefix = "chaos-"
	// faultTimeout is how long a fault is tried while the server is away.
	faultTimeout = 10 * time.Second
)

func (i *injector) connect(ctx context.Context) (*pgx.Conn, error) {
	return pgx.Connect(ctx, i.server.URL(database)+"&application_name=injector")
}

// withConn calls do with a connection of its own.
func (i *injector) withConn(ctx context.Context, do func(*pgx.Conn) error) error {
	conn, err := i.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return do(conn)
}

// breakDatabase breaks something in the database. It waits until the server is available.
func (i *injector) breakDatabase(ctx context.Context, s step) error {
	inject := map[faultKind]func(context.Context, *pgx.Conn, step) error{
		endListeners: endSessionsOf, endSessions: endSessionsOf, cancelQueries: cancelAllQueries,
		lockRows: lockSomeRows, holdSnapshot: holdOldSnapshot,
	}[s.kind]
	var conn *pgx.Conn
	err := proofkit.Retry(ctx, faultTimeout, func(ctx context.Context) (err error) {
		conn, err = i.connect(ctx)
		return err
	})
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return inject(ctx, conn, s)
}

// The session of a listener holds an advisory lock.
const endSessionsSQL = `
select count(pg_terminate_backend(pid))
  from pg_stat_activity a
 where starts_with(application_name, '` + sessionPrefix + `')
   and (not $1 or exists (select from pg_locks l where l.pid = a.pid and l.locktype = 'advisory'))`

func endSessionsOf(ctx context.Context, conn *pgx.Conn, s step) error {
	_, err := conn.Exec(ctx, endSessionsSQL, s.kind == endListeners)
	return err
}

const cancelQueriesSQL = `
select count(pg_cancel_backend(pid))
  from pg_stat_activity
 where starts_with(application_name, '` + sessionPrefix + `') and datname = current_database() and state = 'active'`

func cancelAllQueries(ctx context.Context, conn *pgx.Conn, s step) (err error) {
	for end := time.Now().Add(s.duration); err == nil && time.Now().Before(end); {
		if _, err = conn.Exec(ctx, cancelQueriesSQL); err == nil {
			err = ctxsleep.For(ctx, 10*ms)
		}
	}
	return err
}

// lockSomeRows locks rows until its connection closes.
func lockSomeRows(ctx context.Context, conn *pgx.Conn, s step) error {
	for _, sql := range []string{
		"begin",
		"select from chaos_tasks where publish_status <> 'completed' order by random() limit 60 for update",
		"select from chaos_steps where status <> 'completed' order by random() limit 60 for update",
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return ctxsleep.For(ctx, s.duration)
}

func holdOldSnapshot(ctx context.Context, conn *pgx.Conn, s step) error {
	if _, err := conn.Exec(ctx, "begin isolation level repeatable read; select count(*) from chaos_tasks"); err != nil {
		return err
	}
	return ctxsleep.For(ctx, s.duration)
}
