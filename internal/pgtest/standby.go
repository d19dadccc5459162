package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/postgres"
)

// standbySettings let a standby connect to its primary, and notice its promotion,
// in less than PostgreSQL's five seconds.
var standbySettings = []string{"wal_retrieve_retry_interval=200ms"}

// Standby creates a second server that replicates this one, and returns when it
// answers queries. It is a server like any other, and closed by itself. The name is its
// application_name.
//
// Commits do not wait for the standby until a setting says so:
//
//	err = primary.Set(ctx, "synchronous_standby_names", name)
func (s *Ephemeral) Standby(ctx context.Context, name string) (*Ephemeral, error) {
	opts := s.opts
	opts.Settings = slices.Concat(opts.Settings, standbySettings)
	standby, err := createEphemeral(ctx, opts, func(to *Ephemeral) error { return s.copyTo(ctx, to, name) })
	if err != nil {
		return nil, fmt.Errorf("create standby: %w", err)
	}
	return standby, nil
}

// copyTo fills the data directory of a standby, with the address of its primary.
func (s *Ephemeral) copyTo(ctx context.Context, to *Ephemeral, name string) error {
	source := fmt.Sprintf("host=%s port=%d user=%s application_name=%s",
		quoteConninfo(s.SocketDir()), s.port, postgres.Superuser, quoteConninfo(name))
	cmd := to.account.Command(s.bin.Path("pg_basebackup"), "-D", to.data(), "-d", source,
		"--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync")
	cmd.ExtraFiles = []*os.File{to.cleaner.stdin} // the directory stays while the program writes
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := childproc.Run(ctx, cmd, childproc.Options{Session: true}); err != nil {
		return fmt.Errorf("copy the primary: %w: %s", err, bytes.TrimSpace(out.Bytes()))
	}
	return nil
}

// quoteConninfo makes a value of a connection string.
func quoteConninfo(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

// Promote makes the standby a primary that waits for no acknowledgement, and
// returns when it accepts writes. Promote does not stop the former primary.
func (s *Ephemeral) Promote(ctx context.Context) error {
	// Before the first commit, which would otherwise wait forever.
	isSynchronous := false
	if err := withConn(ctx, s.URL("postgres"), "promote", func(conn *pgx.Conn) error {
		const query = "select current_setting('synchronous_standby_names') <> ''"
		return conn.QueryRow(ctx, query).Scan(&isSynchronous)
	}); err != nil {
		return err
	}
	if isSynchronous {
		if err := s.Set(ctx, "synchronous_standby_names", ""); err != nil {
			return fmt.Errorf("promote: %w", err)
		}
	}
	return withConn(ctx, s.URL("postgres"), "promote", func(conn *pgx.Conn) error {
		var promoted bool
		query := "select pg_promote(true, " + strconv.Itoa(int(startTimeout.Seconds())) + ")"
		err := conn.QueryRow(ctx, query).Scan(&promoted)
		if err == nil && !promoted {
			err = errors.New("it is still a standby after " + startTimeout.String())
		}
		return err
	})
}
