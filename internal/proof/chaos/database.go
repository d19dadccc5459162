package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/pgserver"
	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/store"
)

const (
	database = "chaos"
	// ourSessions begins the application_name of every session that is not the
	// tormentor's or the judge's own.
	ourSessions = "chaos-"
)

// breakServer stops or freezes the server, and starts it again.
func (t *tormentor) breakServer(ctx context.Context, s step) error {
	life := context.WithoutCancel(ctx)
	t.serving.Lock()
	defer t.serving.Unlock()
	t.tell(s, "")
	defer t.begin(s.kind, -1)()
	stop, start := t.stopServer, t.server.Start
	switch s.kind {
	case crash:
		stop = func(context.Context, kind) error { return t.server.Kill() }
	case pauseAll:
		stop = func(context.Context, kind) error { return t.server.Pause() }
		start = func(context.Context) error { return t.server.Resume() }
	}
	if err := stop(life, s.kind); err != nil {
		return err
	}
	if err := pause(ctx, s.lasts); err != nil {
		return err // whoever ends us ends the server
	}
	began := time.Now()
	if err := start(life); err != nil {
		return err
	}
	if s.kind != pauseAll {
		t.restarts.Add(1)
	}
	t.Logf("the server is back, %.1f s after it was let", time.Since(began).Seconds())
	return nil
}

// stopServer lets a fast stop take its time, but not for ever: that it hangs on
// somebody's session would be worth knowing, and not this program's subject.
func (t *tormentor) stopServer(ctx context.Context, k kind) error {
	if k == immediate {
		return t.server.Stop(ctx, pgserver.Immediate)
	}
	within, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	err := t.server.Stop(within, pgserver.Fast)
	if errors.Is(err, context.DeadlineExceeded) {
		t.Logf("a fast stop took more than 20 s")
		err = t.server.Stop(ctx, pgserver.Immediate)
	}
	return err
}

// session does something on a connection of its own.
func (t *tormentor) session(ctx context.Context, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, t.server.URL(database)+"&application_name=tormentor")
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return do(conn)
}

// patience is how long something may be tried while the server is away.
const patience = 10 * time.Second

// database does something in the database.
func (t *tormentor) database(ctx context.Context, s step) error {
	do := map[kind]func(context.Context, *pgx.Conn, step) error{
		listeners: t.terminate, pools: t.terminate, sessions: t.terminate,
		flood: t.flood, burst: t.burst, rows: t.lockRows, snapshot: t.hold, reads: t.read,
	}[s.kind]
	if s.kind == triggers {
		return t.withoutTriggers(ctx, s)
	}
	for late := time.Now().Add(patience); ; {
		entered := false
		err := t.session(ctx, func(conn *pgx.Conn) error {
			entered = true
			return do(ctx, conn, s)
		})
		switch {
		case entered && err != nil && ctx.Err() == nil:
			t.Logf("%s: another torment came in between: %s", s.kind, progresslog.Brief(err))
			return nil
		case err == nil || ctx.Err() != nil || time.Now().After(late):
			return err
		}
		_ = pause(ctx, 100*ms) // its end is seen above
	}
}

// A listener's session holds an advisory lock.
const terminateSQL = `
select count(pg_terminate_backend(pid))
  from (select pid, exists (select from pg_locks l where l.pid = a.pid and l.locktype = 'advisory') as listens
          from pg_stat_activity a where starts_with(application_name, '` + ourSessions + `')) as ours
 where listens and $1 or not listens and $2`

func (t *tormentor) terminate(ctx context.Context, conn *pgx.Conn, s step) error {
	defer t.begin(s.kind, -1)()
	var n int
	err := conn.QueryRow(ctx, terminateSQL, s.kind != pools, s.kind != listeners).Scan(&n)
	if err == nil {
		t.tell(s, ": %d", n)
	}
	return err
}

const heldSQL = `
select coalesce(string_agg(t.id::text, ' '), '')
  from chaos_tasks t
  join workers w on w.id in (ingest_locked_by, transcode_locked_by, metadata_locked_by, assemble_locked_by, publish_locked_by)
 where w.pid = $1`

// listHeld writes down what a process holds.
func (t *tormentor) listHeld(ctx context.Context, pid int, file string) error {
	var list string
	if err := t.session(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, heldSQL, pid).Scan(&list)
	}); err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", []byte(list), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func (t *tormentor) withoutTriggers(ctx context.Context, s step) error {
	life := context.WithoutCancel(ctx)
	t.tell(s, "")
	defer t.begin(s.kind, -1)()
	err := t.setTriggers(ctx, "disable", patience)
	if err == nil {
		err = pause(ctx, s.lasts)
	}
	// It may be done although it failed.
	return errors.Join(err, t.enableTriggers(life))
}

func (t *tormentor) enableTriggers(ctx context.Context) error {
	return t.setTriggers(ctx, "enable", time.Minute)
}

func (t *tormentor) setTriggers(ctx context.Context, how string, limit time.Duration) error {
	return insist(ctx, limit, func(ctx context.Context) error {
		return t.session(ctx, func(conn *pgx.Conn) error {
			// Who waits for this lock holds up everybody who comes after.
			_, err := conn.Exec(ctx, "set lock_timeout = '1s'; alter table chaos_tasks "+how+" trigger user")
			return err
		})
	})
}

func (t *tormentor) flood(ctx context.Context, conn *pgx.Conn, s step) error {
	if _, err := conn.Exec(ctx, "set synchronous_commit = off"); err != nil {
		return err
	}
	t.tell(s, "")
	channels, n := newPipeline(nil).Channels(), 0
	for late := time.Now().Add(s.lasts); time.Now().Before(late); n++ {
		if _, err := conn.Exec(ctx, "select pg_notify($1, '')", channels[n%len(channels)]); err != nil {
			return err
		}
	}
	t.Logf("%s: %d notifications", s.kind, n)
	return nil
}

func (t *tormentor) burst(ctx context.Context, conn *pgx.Conn, s step) error {
	t.tell(s, "")
	_, err := conn.Exec(ctx, "select pg_notify(c, n::text) from unnest($1::text[]) as c, generate_series(1, 4000) as n",
		newPipeline(nil).Channels())
	return err
}

const lockSQL = `
select id from chaos_tasks
 where publish_status <> 'completed'
 order by random()
 limit 60
   for update`

func (t *tormentor) lockRows(ctx context.Context, conn *pgx.Conn, s step) error {
	if _, err := conn.Exec(ctx, "begin"); err != nil {
		return err
	}
	found, err := conn.Query(ctx, lockSQL)
	if err != nil {
		return err
	}
	tasks, err := pgx.CollectRows(found, pgx.RowTo[store.ID])
	if err != nil {
		return err
	}
	defer t.begin(s.kind, -1, tasks...)()
	t.tell(s, ": %d tasks", len(tasks))
	if err := pause(ctx, s.lasts); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "rollback")
	return err
}

func (t *tormentor) hold(ctx context.Context, conn *pgx.Conn, s step) error {
	if _, err := conn.Exec(ctx, "begin isolation level repeatable read; select count(*) from chaos_tasks"); err != nil {
		return err
	}
	t.tell(s, "")
	return pause(ctx, s.lasts)
}

// read does what people do who look.
func (t *tormentor) read(ctx context.Context, conn *pgx.Conn, s step) error {
	st := store.New(conn, graph())
	t.tell(s, "")
	n := 0
	for late := time.Now().Add(s.lasts); time.Now().Before(late); n++ {
		tasks, err := st.List(ctx, store.Filter{Limit: 50})
		if err != nil {
			return err
		}
		if len(tasks) > 0 {
			_, err = st.History(ctx, tasks[len(tasks)-1].ID)
		}
		for _, ask := range []func() error{
			func() error { return err },
			func() error { _, err := st.Counts(ctx); return err },
			func() error { _, err := st.Workers(ctx, true); return err },
			func() error { return pause(ctx, 20*ms) },
		} {
			if err := ask(); err != nil {
				return fmt.Errorf("read: %w", err)
			}
		}
	}
	t.Logf("%s: %d times", s.kind, n)
	return nil
}
