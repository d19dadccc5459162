package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/cuelight/cuelight/internal/postgres"
)

// EphemeralOptions say what kind of server to start. The zero value is a server
// that is reached through its Unix socket alone and does not wait for the disk.
type EphemeralOptions struct {
	// Durable makes the server wait for the disk as a production server does,
	// with its data on a disk. Default: it does not, and its data are in memory
	// (/dev/shm) if there is enough and $TMPDIR is not set.
	Durable bool

	// Dir is the directory below which the server's files are. Default: memory or
	// $TMPDIR, or /tmp where the server's account cannot use these.
	Dir string

	// Settings are further lines of configuration, "name=value".
	// [Ephemeral.Set] overrides them.
	Settings []string

	// Listen are the IP addresses to listen on besides the Unix socket, such as
	// "127.0.0.1", all with one port, which stays the same. Default: none.
	Listen []string

	// Trust are the networks, such as "10.1.2.0/24", whose clients connect
	// without a password. Loopback and the addresses of Listen always may.
	Trust []string
}

// Ephemeral is a temporary server and its data. Its methods may be called from
// several goroutines at once; those that start and stop the server wait for each
// other.
type Ephemeral struct {
	bin     postgres.Binaries
	account postgres.Account
	opts    EphemeralOptions
	port    int

	dir     string // contains data, s (for the socket) and log
	cleaner *shell // removes dir when nothing needs it any more

	mu     sync.Mutex
	keeper *shell   // runs the server; nil while the server is stopped
	alive  *os.File // reads end of file when the last process of the server is gone
	frozen []int    // processes that have got SIGSTOP
}

// StartEphemeral creates a server and returns when it answers, after a second or
// so. On a machine without PostgreSQL the error is [postgres.ErrNotInstalled]. ctx bounds
// the start only.
func StartEphemeral(ctx context.Context, o EphemeralOptions) (*Ephemeral, error) {
	return createEphemeral(ctx, o, func(s *Ephemeral) error {
		return s.bin.InitDB(ctx, s.account, s.data(), "--no-sync")
	})
}

// createEphemeral starts a server whose data directory fill has filled.
func createEphemeral(ctx context.Context, o EphemeralOptions, fill func(*Ephemeral) error) (*Ephemeral, error) {
	bins, err := postgres.Find()
	if err != nil {
		return nil, err
	}
	account, err := postgres.LookupAccount()
	if err != nil {
		return nil, err
	}
	s := &Ephemeral{bin: bins[0], account: account, opts: o}
	if s.port, err = freePort(o.Listen); err != nil {
		return nil, fmt.Errorf("choose port: %w", err)
	}
	if err := s.makeDirs(); err != nil {
		return nil, errors.Join(fmt.Errorf("create temporary directory: %w", err), s.Close())
	}
	for _, step := range []func() error{
		func() error { return fill(s) },
		s.configure,
		func() error { return s.Start(ctx) },
	} {
		if err := step(); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// makeDirs creates the server's directories and starts the cleaner.
func (s *Ephemeral) makeDirs() (err error) {
	if s.dir, err = s.tempDir(); err != nil {
		return err
	}
	if s.cleaner, err = s.startShell(cleanScript, nil, s.dir); err != nil {
		return errors.Join(err, os.Remove(s.dir))
	}
	for _, d := range []string{s.data(), s.SocketDir()} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
		if err := s.account.Own(d); err != nil {
			return err
		}
	}
	return nil
}

// tempDir creates a directory: in memory if there is enough, because initdb mostly
// creates files, which takes a tenth of the time there. $TMPDIR has precedence, but
// the server's account may be unable to enter it, or its path may be too long for
// a socket; then /tmp does.
func (s *Ephemeral) tempDir() (string, error) {
	parents := []string{os.TempDir(), "/tmp"}
	if dir, ok := memoryDir(); ok && !s.opts.Durable && os.Getenv("TMPDIR") == "" {
		parents = append([]string{dir}, parents...)
	}
	if s.opts.Dir != "" {
		parents = []string{s.opts.Dir}
	}
	var errs []error
	for _, parent := range parents {
		dir, err := os.MkdirTemp(parent, "cuelight-pg-")
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err = s.account.Own(dir); err == nil && len(dir) < 80 && s.account.CanEnter(s.bin, dir) {
			return dir, nil
		}
		errs = append(errs, err, fmt.Errorf("user %s cannot run a server in %s", s.account.Name, dir), os.Remove(dir))
	}
	return "", errors.Join(errs...)
}

func (s *Ephemeral) data() string { return filepath.Join(s.dir, "data") }

// SocketDir is the directory of the server's socket. The socket is there while the
// server accepts connections.
func (s *Ephemeral) SocketDir() string { return filepath.Join(s.dir, "s") }

// Log is the file with the server's messages. Close removes it.
func (s *Ephemeral) Log() string { return filepath.Join(s.dir, "log") }

// Close stops the server, as Stop with [Immediate] does, and removes its data.
// A second call does nothing.
func (s *Ephemeral) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.release()
	if s.cleaner == nil {
		return err
	}
	s.cleaner.end()
	s.cleaner = nil
	if _, stat := os.Lstat(s.dir); !errors.Is(stat, os.ErrNotExist) {
		err = errors.Join(err, fmt.Errorf("%s could not be removed", s.dir))
	}
	return err
}

// shell is a shell whose script ends when its standard input does.
type shell struct {
	cmd   *exec.Cmd
	stdin *os.File // the kernel closes it when this program ends
}

// startShell starts a script as the server's account. The script outlives this
// program, to end the server and remove its data after a crash, so this is not a case
// for package childproc: it needs no supervisor, and a test that shares a server checks
// that no goroutine remains. Its output goes to /dev/null: `go test` would wait for it.
func (s *Ephemeral) startShell(script string, files []*os.File, args ...string) (*shell, error) {
	in, out, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	cmd := s.account.Command("/bin/sh", append([]string{"-c", script, "sh"}, args...)...)
	cmd.Stdin, cmd.ExtraFiles = in, files
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return &shell{cmd: cmd, stdin: out}, nil
}

// end ends the script. Its exit code is that of the server it has just stopped.
func (s *shell) end() {
	s.stdin.Close()
	_ = s.cmd.Wait()
}
