package pgtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/postgres"
	"github.com/cuelight/cuelight/internal/waittest"
)

// Bouncer is a PgBouncer in front of a pool's server.
type Bouncer struct {
	t       testing.TB
	program string
	account postgres.Account
	target  *pgx.ConnConfig
	dir     string // of its socket
	process *childproc.Process
}

// NewBouncer starts a PgBouncer in session or transaction mode, and opens a pool whose
// connections go through it. It skips the test on a machine without PgBouncer.
func NewBouncer(t testing.TB, pool *pgxpool.Pool, mode string) (*Bouncer, *pgxpool.Pool) {
	t.Helper()
	b := &Bouncer{t: t, target: pool.Config().ConnConfig}
	var err error
	if b.program, err = exec.LookPath("pgbouncer"); errors.Is(err, exec.ErrNotFound) {
		b.program, err = exec.LookPath("/usr/sbin/pgbouncer")
	}
	if err != nil {
		t.Skip("PgBouncer is not installed")
	}
	if b.account, err = postgres.LookupAccount(); err != nil {
		t.Skip(err)
	}
	// Another account may be unable to enter the test's own directory.
	if b.dir, err = os.MkdirTemp("/tmp", "cuelight-bouncer-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(b.dir) })
	if err := b.account.Own(b.dir); err != nil {
		t.Fatal(err)
	}
	b.Start(mode)
	t.Cleanup(b.Stop)
	return b, b.pool(pool.Config())
}

// pool opens a pool whose connections go through the PgBouncer.
func (b *Bouncer) pool(c *pgxpool.Config) *pgxpool.Pool {
	b.t.Helper()
	c.ConnConfig.Host, c.ConnConfig.Port, c.ConnConfig.Fallbacks = b.dir, 6432, nil
	pool, err := pgxpool.NewWithConfig(b.t.Context(), c)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(pool.Close)
	return pool
}

const bouncerINI = `
[databases]
%[1]s = host=%[2]s port=%[3]d pool_mode=%[4]s pool_size=%[6]d
[pgbouncer]
listen_addr =
listen_port = 6432
unix_socket_dir = %[5]s
auth_type = trust
auth_file = %[5]s/users
`

// Start runs the PgBouncer in the given mode until Stop.
func (b *Bouncer) Start(mode string) {
	b.t.Helper()
	for name, text := range map[string]string{
		"ini": fmt.Sprintf(bouncerINI, b.target.Database, b.target.Host, b.target.Port, mode, b.dir,
			map[string]int{"session": 8, "transaction": 1}[mode]),
		"users": fmt.Sprintf("%q %q\n", b.target.User, b.target.Password),
	} {
		file := filepath.Join(b.dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			b.t.Fatal(err)
		}
		if err := b.account.Own(file); err != nil {
			b.t.Fatal(err)
		}
	}
	cmd := b.account.Command(b.program, filepath.Join(b.dir, "ini"))
	var stderr childproc.Tail
	cmd.Stderr = &stderr
	var err error
	if b.process, err = childproc.Start(cmd, childproc.Options{Session: true}); err != nil {
		b.t.Fatal(err)
	}
	waittest.Until(b.t, "PgBouncer listens", func() bool {
		// The socket exists a moment before the process listens.
		conn, err := net.Dial("unix", b.socket())
		if err == nil {
			conn.Close()
			return true
		}
		select {
		case <-b.process.Done():
			b.t.Fatalf("PgBouncer ended:\n%s", &stderr)
		default:
		}
		return false
	})
}

// Stop kills the PgBouncer, as a crash would.
func (b *Bouncer) Stop() {
	if b.process == nil {
		return
	}
	b.process.Kill()
	b.process = nil
	_ = os.Remove(b.socket())
}

func (b *Bouncer) socket() string { return filepath.Join(b.dir, ".s.PGSQL.6432") }
