package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/postgres"
)

// Bouncer is a PgBouncer in front of a pool's server.
type Bouncer struct {
	t       testing.TB
	program string
	account postgres.Account
	to      *pgx.ConnConfig
	dir     string // of its socket
	process *exec.Cmd
}

const startWithin = time.Minute

// NewBouncer starts a PgBouncer in session or transaction mode, and makes a pool
// whose connections lead through it. The test is skipped where there is none.
func NewBouncer(t testing.TB, pool *pgxpool.Pool, mode string) (*Bouncer, *pgxpool.Pool) {
	t.Helper()
	b := &Bouncer{t: t, to: pool.Config().ConnConfig}
	var err error
	if b.program, err = exec.LookPath("pgbouncer"); errors.Is(err, exec.ErrNotFound) {
		b.program, err = exec.LookPath("/usr/sbin/pgbouncer")
	}
	if err != nil {
		t.Skip("no PgBouncer on this machine")
	}
	if b.account, err = postgres.LookupAccount(""); err != nil {
		t.Skip(err)
	}
	// Not the test's own directory, which another account may not enter.
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

// pool leads through the PgBouncer.
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

// Start runs it, in the mode given, until Stop.
func (b *Bouncer) Start(mode string) {
	b.t.Helper()
	for name, text := range map[string]string{
		"ini":   fmt.Sprintf(bouncerINI, b.to.Database, b.to.Host, b.to.Port, mode, b.dir, map[string]int{"session": 8, "transaction": 1}[mode]),
		"users": fmt.Sprintf("%q %q\n", b.to.User, b.to.Password),
	} {
		file := filepath.Join(b.dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			b.t.Fatal(err)
		}
		if err := b.account.Own(file); err != nil {
			b.t.Fatal(err)
		}
	}
	b.process = b.account.Command(context.Background(), b.program, filepath.Join(b.dir, "ini"))
	var log bytes.Buffer
	b.process.Stdout, b.process.Stderr = &log, &log
	b.process.WaitDelay = time.Second
	if err := b.process.Start(); err != nil {
		b.t.Fatal(err)
	}
	socket := filepath.Join(b.dir, ".s.PGSQL.6432")
	for late := time.Now().Add(startWithin); ; time.Sleep(5 * time.Millisecond) {
		// The file is there a moment before anybody listens to it.
		if conn, err := net.Dial("unix", socket); err == nil {
			conn.Close()
			return
		}
		if time.Now().After(late) {
			b.Stop()
			b.t.Fatalf("PgBouncer does not start:\n%s", &log)
		}
	}
}

// Stop ends it as a crash would.
func (b *Bouncer) Stop() {
	if b.process == nil {
		return
	}
	_ = b.process.Process.Signal(syscall.SIGKILL)
	_ = b.process.Wait()
	b.process = nil
	_ = os.Remove(filepath.Join(b.dir, ".s.PGSQL.6432"))
}
