package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// startWithin bounds how long a server may take until it answers. It is long
// because the machine may be busy with everybody's tests.
const startWithin = time.Minute

// stopWithin bounds how long one may take to go.
const stopWithin = time.Minute

// clean removes a server's directory once nobody holds the other end of its
// standard input. We hold it, which the kernel ends however we end, and so
// does the keeper of a server that runs. It tries again because a program that
// fills the directory may not have noticed yet.
const clean = `while read -r word; do :; done
for try in 1 2 3 4 5 6 7 8 9 10; do rm -rf -- "$1" && exit; sleep 1; done`

// keep runs a server until we end, or let it go. Descriptor 3 is for the server
// and its children alone, 4 keeps the cleaner waiting. SIGTERM comes first
// because a shell's background job ignores SIGQUIT until the server has set
// itself up to heed it, and SIGCONT last because a stopped one heeds nothing.
// The server itself then ends such children of its own within seconds.
const keep = `dir=$1; shift
"$@" </dev/null >>"$dir/log" 2>&1 4>&- &
exec 3>&-
read -r word
kill -TERM $!; kill -QUIT $!; kill -CONT $!
wait $!`

// process is a shell with a script that ends when its standard input does.
type process struct {
	cmd   *exec.Cmd
	leash *os.File
}

// launch starts a script as the server's account. Its output goes nowhere near
// ours: `go test` waits for whoever holds that.
func (s *Server) launch(script string, files []*os.File, args ...string) (*process, error) {
	in, leash, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	cmd := s.account.Command(context.Background(), "/bin/sh", append([]string{"-c", script, "sh"}, args...)...)
	cmd.Stdin, cmd.ExtraFiles = in, files
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, leash.Close())
	}
	return &process{cmd: cmd, leash: leash}, nil
}

func (p *process) end() {
	p.leash.Close()
	_ = p.cmd.Wait() // its exit code is that of what we have just ended
}

// Start starts a stopped or killed server and returns when it answers, or with
// the end of its log in the error when it does not.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.cleaner == nil:
		return errors.New("start server: it is closed")
	case s.keeper != nil && !s.gone(ctx, time.Millisecond):
		return errors.New("start server: it runs already")
	}
	if err := s.release(); err != nil {
		return fmt.Errorf("start server: %w", err)
	}
	if err := s.run(); err != nil {
		return fmt.Errorf("start server: %w", err)
	}
	if err := s.waitReady(ctx); err != nil {
		return errors.Join(fmt.Errorf("start server: %w; its log:\n%s", err, s.tail()), s.release())
	}
	return nil
}

func (s *Server) run() error {
	alive, held, err := os.Pipe()
	if err != nil {
		return err
	}
	defer held.Close()
	s.keeper, err = s.launch(keep, []*os.File{held, s.cleaner.leash},
		s.dir, s.bin.Path("postgres"), "-D", s.data(), "-p", strconv.Itoa(s.port),
		"-k", s.SocketDir(), "-h", strings.Join(s.opts.Listen, ","))
	if err != nil {
		return errors.Join(err, alive.Close())
	}
	s.alive = alive
	return nil
}

func (s *Server) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.URL("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		if ctx.Err() != nil {
			return err
		}
		if s.gone(ctx, 5*time.Millisecond) {
			return errors.New("it ended at once")
		}
	}
}

func (s *Server) tail() string {
	const most = 4 << 10
	log, err := os.ReadFile(s.Log())
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-most):])
}

// gone waits, up to d, for the end of the server and of all its children.
func (s *Server) gone(ctx context.Context, d time.Duration) bool {
	if err := s.alive.SetReadDeadline(time.Now().Add(d)); err != nil {
		return false
	}
	stop := context.AfterFunc(ctx, func() { _ = s.alive.SetReadDeadline(time.Now()) })
	defer stop()
	_, err := s.alive.Read([]byte{0})
	return errors.Is(err, io.EOF)
}

// pid is that of the server itself, not of its keeper.
func (s *Server) pid() (int, error) {
	if s.keeper == nil || s.gone(context.Background(), time.Millisecond) {
		return 0, errors.New("it does not run")
	}
	file, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(file), "\n")
	return strconv.Atoi(line)
}

// release lets go of the keeper, which ends the server if it still runs, and
// waits until all of them are gone.
func (s *Server) release() error {
	if s.keeper == nil {
		return nil
	}
	err := s.resume() // what stands still does not hear that it is to end
	s.keeper.end()
	left := !s.gone(context.Background(), stopWithin)
	s.alive.Close()
	s.keeper, s.alive = nil, nil
	if left {
		err = fmt.Errorf("processes of the server in %s are still there after %v", s.dir, stopWithin)
	}
	return err
}

// signal is sent to a process that may just have ended.
func signal(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %v to process %d: %w", sig, pid, err)
	}
	return nil
}
