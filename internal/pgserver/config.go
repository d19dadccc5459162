package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// throwaway trades safety nobody needs for speed.
var throwaway = []string{
	"fsync=off",
	"full_page_writes=off",
	"max_wal_size=96MB", // it may lie in memory
	"min_wal_size=32MB",
}

// durable is for standbys that were away for a while.
var durable = []string{"wal_keep_size=128MB"}

// common is for small machines with many servers on them.
var common = []string{"max_connections=300", "shared_buffers=64MB", "jit=off", "log_checkpoints=off"}

// configure writes the settings down where ALTER SYSTEM goes over them.
func (s *Server) configure() error {
	kind := throwaway
	if s.opts.Durable {
		kind = durable
	}
	var lines strings.Builder
	for _, settings := range [][]string{common, kind, s.opts.Settings} {
		for _, line := range settings {
			name, value, ok := strings.Cut(line, "=")
			if !ok {
				return fmt.Errorf("configure server: setting %q is not name=value", line)
			}
			fmt.Fprintf(&lines, "%s = %s\n", strings.TrimSpace(name), quote(strings.TrimSpace(value)))
		}
	}
	rules, err := s.opts.rules()
	if err != nil {
		return fmt.Errorf("configure server: %w", err)
	}
	// Both files are there, and belong to the account.
	if err := write(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND, "\n"+lines.String()); err != nil {
		return fmt.Errorf("configure server: %w", err)
	}
	if err := write(filepath.Join(s.data(), "pg_hba.conf"), os.O_TRUNC, rules); err != nil {
		return fmt.Errorf("configure server: %w", err)
	}
	return nil
}

func write(file string, how int, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|how, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// quote makes a literal of SQL, which is one of the configuration, too.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// CreateDatabase creates an empty database.
func (s *Server) CreateDatabase(ctx context.Context, name string) error {
	return s.session(ctx, "create database", func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "create database "+pgx.Identifier{name}.Sanitize())
		return err
	})
}

// Set changes a setting, by ALTER SYSTEM and a reload, and returns when new
// sessions have it; those that are there take it up with their next statement.
// A setting which can only change with a restart changes with the next.
func (s *Server) Set(ctx context.Context, name, value string) error {
	act := "set " + name
	var before time.Time
	if err := s.session(ctx, act, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "alter system set "+pgx.Identifier{name}.Sanitize()+" to "+quote(value))
		if err != nil {
			return err
		}
		return conn.QueryRow(ctx, "select clock_timestamp(), pg_reload_conf()").Scan(&before, nil)
	}); err != nil {
		return err
	}
	for loaded := false; !loaded; {
		// A session has what the server had when it began.
		if err := s.session(ctx, act, func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, "select pg_conf_load_time() >= $1", before).Scan(&loaded)
		}); err != nil {
			return err
		}
	}
	return nil
}

// session does something on a connection of its own.
func (s *Server) session(ctx context.Context, act string, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		return fmt.Errorf("%s: %w", act, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := do(conn); err != nil {
		return fmt.Errorf("%s: %w", act, err)
	}
	return nil
}
