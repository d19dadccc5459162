package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

var (
	// commonSettings suit small machines with many servers.
	commonSettings = []string{"max_connections=300", "shared_buffers=64MB", "jit=off", "log_checkpoints=off"}
	// fastSettings give up durability for speed, and room for data in memory.
	fastSettings = []string{"fsync=off", "full_page_writes=off", "max_wal_size=96MB", "min_wal_size=32MB"}
	// durableSettings keep enough WAL for a standby that was away for a while.
	durableSettings = []string{"wal_keep_size=128MB"}
)

// configure writes the settings to postgresql.conf, which ALTER SYSTEM overrides,
// and the rules for clients to pg_hba.conf.
func (s *Ephemeral) configure() error {
	kind := fastSettings
	if s.opts.Durable {
		kind = durableSettings
	}
	var lines strings.Builder
	for _, line := range slices.Concat(commonSettings, kind, s.opts.Settings) {
		name, value, ok := strings.Cut(line, "=")
		if !ok {
			return fmt.Errorf("configure server: setting %q is not name=value", line)
		}
		fmt.Fprintf(&lines, "%s = %s\n", strings.TrimSpace(name), quoteLiteral(strings.TrimSpace(value)))
	}
	rules, err := s.opts.hbaRules()
	if err == nil {
		err = errors.Join(
			writeExisting(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND, "\n"+lines.String()),
			writeExisting(filepath.Join(s.data(), "pg_hba.conf"), os.O_TRUNC, rules))
	}
	if err != nil {
		return fmt.Errorf("configure server: %w", err)
	}
	return nil
}

// writeExisting leaves the file with its owner, the server's account.
func writeExisting(file string, flag int, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY|flag, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// quoteLiteral makes a literal of SQL, and of the configuration file.
func quoteLiteral(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// hbaRules is the content of pg_hba.conf.
func (o EphemeralOptions) hbaRules() (string, error) {
	var b strings.Builder
	b.WriteString("local all all trust\nlocal replication all trust\n")
	if len(o.Listen) == 0 {
		return b.String(), nil
	}
	networks := []string{"127.0.0.1/32", "::1/128"}
	for _, a := range o.Listen {
		addr, err := netip.ParseAddr(a)
		if err != nil {
			return "", err
		}
		networks = append(networks, netip.PrefixFrom(addr, addr.BitLen()).String())
	}
	for _, n := range append(networks, o.Trust...) {
		if _, err := netip.ParsePrefix(n); err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "host all all %s trust\nhost replication all %[1]s trust\n", n)
	}
	return b.String(), nil
}

// CreateDatabase creates an empty database.
func (s *Ephemeral) CreateDatabase(ctx context.Context, name string) error {
	return withConn(ctx, s.URL("postgres"), "create database", func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "create database "+pgx.Identifier{name}.Sanitize())
		return err
	})
}

// Set changes a setting, by ALTER SYSTEM and a reload, and returns when new
// sessions have it; existing sessions get it with their next statement. A setting
// that only a restart can change changes with the next restart.
func (s *Ephemeral) Set(ctx context.Context, name, value string) error {
	action := "set " + name
	var before time.Time
	if err := withConn(ctx, s.URL("postgres"), action, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "alter system set "+pgx.Identifier{name}.Sanitize()+" to "+quoteLiteral(value))
		if err != nil {
			return err
		}
		return conn.QueryRow(ctx, "select clock_timestamp(), pg_reload_conf()").Scan(&before, nil)
	}); err != nil {
		return err
	}
	for loaded := false; !loaded; {
		// A session has the settings that the server had when the session began.
		if err := withConn(ctx, s.URL("postgres"), action, func(conn *pgx.Conn) error {
			return conn.QueryRow(ctx, "select pg_conf_load_time() >= $1", before).Scan(&loaded)
		}); err != nil {
			return err
		}
	}
	return nil
}

// withConn calls f with a new connection.
func withConn(ctx context.Context, url, action string, f func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := f(conn); err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	return nil
}
