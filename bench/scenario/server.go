package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/postgres"
)

// Stand is the throw-away server of a run, on a disk.
type Server struct {
	Settings string // what was set on it, in one line
	server   *postgres.Ephemeral
	next     int
}

// NewStand starts the server with its data below dir. Its settings for
// durability are PostgreSQL's defaults.
func StartServer(ctx context.Context, dir string, memoryMiB int) (*Server, error) {
	server, err := startIn(ctx, dir, postgres.EphemeralOptions{Durable: true, Settings: []string{
		fmt.Sprintf("shared_buffers=%dMB", min(max(memoryMiB/4, 128), 4096)),
		"max_wal_size=8GB",
		"jit=off",
	}})
	if err != nil {
		return nil, err
	}
	s := &Server{server: server}
	if at := filepath.Dir(server.SocketDir()); filepath.Dir(at) != filepath.Clean(dir) {
		return nil, errors.Join(fmt.Errorf("the server's user cannot use the directory %s", dir), s.Close())
	}
	if err := s.describe(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// settingsSQL asks for what was set, whoever did that, and for what decides
// whether a commit lasts.
const settingsSQL = `
select string_agg(name || '=' || current_setting(name), ', ' order by name),
       bool_and(case when name in ('fsync', 'full_page_writes', 'synchronous_commit') then setting = 'on' else true end)
  from pg_settings
 where name in ('fsync', 'full_page_writes', 'synchronous_commit', 'wal_sync_method', 'data_checksums',
                'shared_buffers', 'max_wal_size', 'jit', 'max_connections', 'wal_keep_size', 'checkpoint_timeout',
                'autovacuum', 'commit_delay', 'wal_level', 'huge_pages')`

// describe writes down how the server is set, as it says itself.
func (s *Server) describe(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.server.URL("postgres"))
	if err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var durable bool
	if err := conn.QueryRow(ctx, settingsSQL).Scan(&s.Settings, &durable); err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	s.Settings += "; over a Unix socket; a checkpoint before each trial, which has a database of its own"
	if !durable {
		return fmt.Errorf("a commit would not last on this server: %s", s.Settings)
	}
	return nil
}

// startIn starts a server whose files are below dir: postgres puts them where
// temporary files go.
func startIn(ctx context.Context, dir string, o postgres.EphemeralOptions) (*postgres.Ephemeral, error) {
	before, was := os.LookupEnv("TMPDIR")
	if err := os.Setenv("TMPDIR", dir); err != nil {
		return nil, err
	}
	defer func() {
		if was {
			_ = os.Setenv("TMPDIR", before)
		} else {
			_ = os.Unsetenv("TMPDIR")
		}
	}()
	return postgres.StartEphemeral(ctx, o)
}

// Close ends the server and removes its data.
func (s *Server) Close() error { return s.server.Close() }

// Check asks whether the server still answers, and how it ended if not.
func (s *Server) Check(ctx context.Context) error {
	err := s.do(ctx, "select 1")
	if err == nil || ctx.Err() != nil {
		return err
	}
	log, _ := os.ReadFile(s.server.Log())
	return fmt.Errorf("the server does not answer: %w; its log ends:\n%s", err, log[max(0, len(log)-2048):])
}

// Checkpoint writes down all that is not on the disk yet.
func (s *Server) Checkpoint(ctx context.Context) error { return s.do(ctx, "checkpoint") }

// Database is one for one trial.
type Database struct {
	URL  string
	name string
	*Server
}

// Database makes an empty database, with settings "name=value" for its
// sessions.
func (s *Server) Database(ctx context.Context, settings ...string) (*Database, error) {
	s.next++
	name := fmt.Sprintf("bench%d", s.next)
	if err := s.server.CreateDatabase(ctx, name); err != nil {
		return nil, err
	}
	db := &Database{URL: s.server.URL(name), name: name, Server: s}
	for _, line := range settings {
		setting, value, _ := strings.Cut(line, "=")
		err := s.do(ctx, fmt.Sprintf("alter database %s set %s to '%s'", name, setting, strings.ReplaceAll(value, "'", "''")))
		if err != nil {
			return nil, errors.Join(err, db.Drop(ctx))
		}
	}
	return db, nil
}

// Drop removes the database, whoever is still in it, also after ctx is done.
func (db *Database) Drop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return db.do(ctx, "drop database "+db.name+" with (force)")
}

// do executes a statement on a connection of its own.
func (s *Server) do(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, s.server.URL("postgres"))
	if err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("%s: %w", sql, err)
	}
	return nil
}
