package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
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

// injectDatabaseFault breaks something in the database.
func (i *injector) injectDatabaseFault(ctx context.Context, s step) error {
	switch s.kind {
	case disableTriggers:
		return i.disableTriggers(ctx, s)
	case deleteTasks:
		return i.deleteTasks(ctx, s)
	}
	inject := map[faultKind]func(context.Context, *pgx.Conn, step) error{
		endListeners: i.endSessions, endPools: i.endSessions, endSessions: i.endSessions,
		notifyFlood: i.notifyOneByOne, notifyBurst: i.notifyAtOnce,
		lockRows: i.lockRows, holdSnapshot: i.holdSnapshot, operatorReads: i.readAsOperator,
	}[s.kind]
	for deadline := time.Now().Add(faultTimeout); ; {
		isConnected := false
		err := i.withConn(ctx, func(conn *pgx.Conn) error {
			isConnected = true
			return inject(ctx, conn, s)
		})
		switch {
		case isConnected && err != nil && ctx.Err() == nil:
			i.Logf("%s: another fault interrupted it: %s", s.kind, progresslog.Brief(err))
			return nil
		case err == nil || ctx.Err() != nil || time.Now().After(deadline):
			return err
		}
		_ = ctxsleep.For(ctx, 100*ms) // the next try sees that ctx is done
	}
}

// The session of a listener holds an advisory lock.
const endSessionsSQL = `
select count(pg_terminate_backend(pid))
  from (select pid, exists (select from pg_locks l where l.pid = a.pid and l.locktype = 'advisory') as is_listener
          from pg_stat_activity a where starts_with(application_name, '` + sessionPrefix + `')) as sessions
 where is_listener and $1 or not is_listener and $2`

func (i *injector) endSessions(ctx context.Context, conn *pgx.Conn, s step) error {
	defer i.record(s.kind, noWorker)()
	var n int
	err := conn.QueryRow(ctx, endSessionsSQL, s.kind != endPools, s.kind != endListeners).Scan(&n)
	if err == nil {
		i.Logf("%s: %d sessions", s.title(), n)
	}
	return err
}

const claimsSQL = `
select coalesce(string_agg(distinct s.task_id::text, ' '), '')
  from chaos_steps s join chaos_workers w on w.id = s.locked_by
 where w.pid = $1`

// listClaims writes the tasks that a process has claimed into a file.
func (i *injector) listClaims(ctx context.Context, pid int, file string) error {
	var list string
	if err := i.withConn(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, claimsSQL, pid).Scan(&list)
	}); err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", []byte(list), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func (i *injector) disableTriggers(ctx context.Context, s step) error {
	i.triggersMu.Lock()
	defer i.triggersMu.Unlock()
	i.logStart(s)
	defer i.record(s.kind, noWorker)()
	err := i.setTriggers(ctx, "disable", faultTimeout)
	if err == nil {
		err = ctxsleep.For(ctx, s.duration)
	}
	// A statement without an answer may have disabled them.
	return errors.Join(err, i.enableTriggers(context.WithoutCancel(ctx)))
}

func (i *injector) enableTriggers(ctx context.Context) error {
	return i.setTriggers(ctx, "enable", time.Minute)
}

// setTriggers needs a transaction for each table: with both locked, it and an exchange could wait for each other.
func (i *injector) setTriggers(ctx context.Context, action string, limit time.Duration) error {
	return proofkit.Retry(ctx, limit, func(ctx context.Context) error {
		return i.withConn(ctx, func(conn *pgx.Conn) error {
			// While these statements wait for a lock, they block all later ones.
			_, err := conn.Exec(ctx, "set lock_timeout = '1s'")
			for _, table := range []string{"chaos_tasks", "chaos_steps"} {
				if err == nil {
					_, err = conn.Exec(ctx, "alter table "+table+" "+action+" trigger user")
				}
			}
			return err
		})
	})
}

func (i *injector) notifyOneByOne(ctx context.Context, conn *pgx.Conn, s step) error {
	if _, err := conn.Exec(ctx, "set synchronous_commit = off"); err != nil {
		return err
	}
	i.logStart(s)
	channels, n := newPipeline(nil).Channels(), 0
	for deadline := time.Now().Add(s.duration); time.Now().Before(deadline); n++ {
		if _, err := conn.Exec(ctx, "select pg_notify($1, '')", channels[n%len(channels)]); err != nil {
			return err
		}
	}
	i.Logf("%s: %d notifications", s.kind, n)
	return nil
}

func (i *injector) notifyAtOnce(ctx context.Context, conn *pgx.Conn, s step) error {
	i.logStart(s)
	_, err := conn.Exec(ctx,
		"select pg_notify(c, n::text) from unnest($1::text[]) as c, generate_series(1, 4000) as n",
		newPipeline(nil).Channels())
	return err
}

const (
	lockRowsSQL = `
select id from chaos_tasks
 where publish_status <> 'completed'
 order by random()
 limit 60
   for update`
	lockStepsSQL = `
select task_id from chaos_steps
 where status <> 'completed'
 order by random()
 limit 60
   for update`
)

func (i *injector) lockRows(ctx context.Context, conn *pgx.Conn, s step) error {
	if _, err := conn.Exec(ctx, "begin"); err != nil {
		return err
	}
	var locked []store.ID
	for _, sql := range []string{lockRowsSQL, lockStepsSQL} {
		rows, err := conn.Query(ctx, sql)
		if err != nil {
			return err
		}
		tasks, err := pgx.CollectRows(rows, pgx.RowTo[store.ID])
		if err != nil {
			return err
		}
		i.Logf("%s: %d rows", s.title(), len(tasks))
		locked = append(locked, tasks...)
	}
	defer i.record(s.kind, noWorker, locked...)()
	if err := ctxsleep.For(ctx, s.duration); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, "rollback")
	return err
}

func (i *injector) holdSnapshot(ctx context.Context, conn *pgx.Conn, s step) error {
	const beginSQL = "begin isolation level repeatable read; select count(*) from chaos_tasks"
	if _, err := conn.Exec(ctx, beginSQL); err != nil {
		return err
	}
	i.logStart(s)
	return ctxsleep.For(ctx, s.duration)
}

// readAsOperator reads what the dashboard and the command line show.
func (i *injector) readAsOperator(ctx context.Context, conn *pgx.Conn, s step) error {
	st, reports := store.New(conn, graph()), report.New(conn, graph())
	i.logStart(s)
	n := 0
	for deadline := time.Now().Add(s.duration); time.Now().Before(deadline); n++ {
		tasks, err := st.List(ctx, store.ListQuery{Filter: store.Filter{Limit: 50}})
		if err == nil && len(tasks) > 0 {
			_, err = st.History(ctx, tasks[len(tasks)-1].ID)
		}
		if err == nil {
			_, err = reports.Stats(ctx)
		}
		if err == nil {
			_, err = st.Workers(ctx, true)
		}
		if err == nil {
			err = ctxsleep.For(ctx, 20*ms)
		}
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
	}
	i.Logf("%s: %d times", s.kind, n)
	return nil
}
