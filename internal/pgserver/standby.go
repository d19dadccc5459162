package pgserver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/postgres"
)

// StandbyOptions say what kind of standby to make. The zero value is right for
// most.
type StandbyOptions struct {
	// Name is what the standby calls itself (application_name), for
	// synchronous_standby_names. Default "standby".
	Name string

	// Settings go over those of the primary.
	Settings []string

	// Listen is where it listens, on a port of its own. Default: where the
	// primary does.
	Listen []string
}

// following makes a standby look for its primary, and notice that it is to be
// promoted, in less than PostgreSQL's five seconds.
var following = []string{"wal_retrieve_retry_interval=200ms"}

// Standby makes a second server that follows this one, and returns when it
// answers queries. It is a server like any other, and closed on its own.
//
// Commits do not wait for it before that is asked for:
//
//	err = primary.Set(ctx, "synchronous_standby_names", "standby")
func (s *Server) Standby(ctx context.Context, o StandbyOptions) (*Server, error) {
	opts := s.opts
	opts.Settings = slices.Concat(opts.Settings, following, o.Settings)
	if o.Listen != nil {
		opts.Listen = o.Listen
	}
	standby, err := create(ctx, opts, func(to *Server) error {
		return s.copyTo(ctx, to, cmp.Or(o.Name, "standby"))
	})
	if err != nil {
		return nil, fmt.Errorf("make standby: %w", err)
	}
	return standby, nil
}

// copyTo fills the data directory of another server, and tells it whom to
// follow.
func (s *Server) copyTo(ctx context.Context, to *Server, name string) error {
	source := fmt.Sprintf("host=%s port=%d user=%s application_name=%s", conninfo(s.SocketDir()), s.port, postgres.Superuser, conninfo(name))
	cmd := to.account.Command(ctx, s.bin.Path("pg_basebackup"), "-D", to.data(), "-d", source,
		"--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync")
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // it has a child
	cmd.ExtraFiles = []*os.File{to.cleaner.leash}                                        // the directory stays while it writes
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("copy the primary: %w: %s", cmp.Or(context.Cause(ctx), err), bytes.TrimSpace(out.Bytes()))
	}
	return nil
}

// conninfo makes a value of a connection string.
func conninfo(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

// Promote ends the following: the standby becomes a server that can be written
// to, and waits for nobody's acknowledgement. It returns when it is. It does
// not see to it that the former primary takes no more writes.
func (s *Server) Promote(ctx context.Context) error {
	// Before the first commit, which would otherwise wait for ever.
	waits := false
	if err := s.session(ctx, "promote", func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "select current_setting('synchronous_standby_names') <> ''").Scan(&waits)
	}); err != nil {
		return err
	}
	if waits {
		if err := s.Set(ctx, "synchronous_standby_names", ""); err != nil {
			return fmt.Errorf("promote: %w", err)
		}
	}
	return s.session(ctx, "promote", func(conn *pgx.Conn) error {
		var promoted bool
		err := conn.QueryRow(ctx, "select pg_promote(true, "+strconv.Itoa(int(startWithin.Seconds()))+")").Scan(&promoted)
		if err == nil && !promoted {
			err = errors.New("it is still a standby after " + startWithin.String())
		}
		return err
	})
}
