package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/bench/system"
	"github.com/cuelight/cuelight/internal/pgtest"
)

// Server is the temporary PostgreSQL server of a benchmark run, with its data on a disk.
type Server struct {
	*pgtest.Ephemeral
	Settings string // in one line
	created  int    // databases
}

// StartServer starts the server with its data below dir, and with further settings, as "name=value". Without them its
// settings for durability are PostgreSQL's defaults, and others are an error.
func StartServer(ctx context.Context, dir string, memoryMiB int, settings ...string) (*Server, error) {
	server, err := pgtest.StartEphemeral(ctx, pgtest.EphemeralOptions{Durable: true, Dir: dir, Settings: append([]string{
		fmt.Sprintf("shared_buffers=%dMB", min(max(memoryMiB/4, 128), 4096)),
		"max_wal_size=8GB",
		fmt.Sprintf("min_wal_size=%dMB", preparedWAL), "wal_keep_size=0",
		"jit=off",
	}, settings...)})
	if err != nil {
		return nil, err
	}
	s := &Server{Ephemeral: server}
	err = s.readSettings(ctx)
	if err == nil {
		err = s.exec(ctx, fillSegmentsSQL)
	}
	if err == nil {
		err = s.Checkpoint(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("prepare the server: %w", err), s.Close())
	}
	return s, nil
}

// preparedWAL is how much WAL, in MiB, the server can write after a checkpoint without creating a segment. All commits
// wait for a new segment, 25 to 100 ms. A server that has run for a while reuses older ones; so does this
// one, for all systems.
const preparedWAL = 256

// fillSegmentsSQL fills as many segments of 16 MiB, which a checkpoint recycles.
var fillSegmentsSQL = fmt.Sprintf(`
do $$ begin
  for i in 1 .. %d loop
    perform pg_logical_emit_message(false, 'cuelight', 'a segment without a record is not switched');
    perform pg_switch_wal();
  end loop;
end $$`, preparedWAL/16)

// settingsSQL returns settings that matter, and whether commits are durable.
const settingsSQL = `
select string_agg(name || '=' || current_setting(name), ', ' order by name),
       bool_and(case when name in ('fsync', 'full_page_writes', 'synchronous_commit') then setting = 'on' else true end)
  from pg_settings
 where name in ('fsync', 'full_page_writes', 'synchronous_commit', 'wal_sync_method', 'data_checksums',
                'shared_buffers', 'max_wal_size', 'jit', 'max_connections', 'wal_keep_size', 'checkpoint_timeout',
                'autovacuum', 'commit_delay', 'wal_level', 'huge_pages', 'wal_init_zero', 'wal_recycle', 'min_wal_size')`

func (s *Server) readSettings(ctx context.Context) error {
	var durable bool
	err := system.WithConn(ctx, s.URL("postgres"), func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, settingsSQL).Scan(&s.Settings, &durable)
	})
	if err != nil {
		return err
	}
	s.Settings += "; over a Unix socket; WAL segments are reused; a checkpoint before each trial, which has a database of its own"
	if !durable {
		return fmt.Errorf("commits are not durable: %s", s.Settings)
	}
	return nil
}

// Check returns an error with the end of the server's log if the server does not answer.
func (s *Server) Check(ctx context.Context) error {
	err := s.exec(ctx, "select 1")
	if err == nil || ctx.Err() != nil {
		return err
	}
	log, _ := os.ReadFile(s.Log())
	return fmt.Errorf("the server does not answer: %w; its log ends:\n%s", err, log[max(0, len(log)-2048):])
}

// Checkpoint writes all dirty pages to the disk.
func (s *Server) Checkpoint(ctx context.Context) error { return s.exec(ctx, "checkpoint") }

// CreateDatabase creates an empty database with settings "name=value" for its sessions. drop removes it and disconnects its
// sessions, even if ctx is done.
func (s *Server) CreateDatabase(ctx context.Context, settings ...string) (url string, drop func() error, err error) {
	s.created++
	name := fmt.Sprintf("bench%d", s.created)
	if err := s.Ephemeral.CreateDatabase(ctx, name); err != nil {
		return "", nil, err
	}
	drop = func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		return s.exec(ctx, "drop database "+name+" with (force)")
	}
	for _, line := range settings {
		setting, value, _ := strings.Cut(line, "=")
		if err := s.exec(ctx, fmt.Sprintf("alter database %s set %s to '%s'", name, setting, value)); err != nil {
			return "", nil, errors.Join(err, drop())
		}
	}
	return s.URL(name), drop, nil
}

// exec executes a statement on a connection of its own.
func (s *Server) exec(ctx context.Context, sql string) error {
	if err := system.Exec(ctx, s.URL("postgres"), sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}
