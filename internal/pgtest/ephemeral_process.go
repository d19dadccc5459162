package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// startTimeout and stopTimeout bound how long an ephemeral server may take to
// answer and to end. They are long because the machine may be busy with tests.
const startTimeout, stopTimeout = time.Minute, time.Minute

// cleanScript removes a server's directory when no process has the other end of its
// standard input: this program has it, which the kernel closes at the program's end,
// and so has the keeper of a running server. The script retries because a program
// that fills the directory may need a moment to notice.
const cleanScript = `while read -r word; do :; done
for try in 1 2 3 4 5 6 7 8 9 10; do rm -rf -- "$1" && exit; sleep 1; done`

// keepScript runs a server until this program ends or closes the pipe. Descriptor 3
// is for the server and its children alone; 4 keeps the cleaner waiting. SIGTERM
// comes first because a shell's background job ignores SIGQUIT until the server
// has installed its handler, and SIGCONT last because a frozen process handles no
// signal. The server then ends its own children within seconds.
const keepScript = `dir=$1; shift
"$@" </dev/null >>"$dir/log" 2>&1 4>&- &
exec 3>&-
read -r word
kill -TERM $!; kill -QUIT $!; kill -CONT $!
wait $!`

// Start starts a stopped or killed server and returns when it answers. If the
// server does not answer, the error contains the end of its log.
func (s *Ephemeral) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.cleaner == nil:
		return errors.New("start server: it is closed")
	case s.keeper != nil && !s.waitGone(ctx, time.Millisecond):
		return errors.New("start server: it is already running")
	}
	if err := s.release(); err != nil {
		return fmt.Errorf("start server: %w", err)
	}
	if err := s.run(); err != nil {
		return fmt.Errorf("start server: %w", err)
	}
	if err := s.waitReady(ctx); err != nil {
		return errors.Join(fmt.Errorf("start server: %w; its log:\n%s", err, s.logTail()), s.release())
	}
	return nil
}

func (s *Ephemeral) run() error {
	alive, server, err := os.Pipe()
	if err != nil {
		return err
	}
	defer server.Close()
	s.keeper, err = s.startShell(keepScript, []*os.File{server, s.cleaner.stdin},
		s.dir, s.bin.Path("postgres"), "-D", s.data(), "-p", strconv.Itoa(s.port),
		"-k", s.SocketDir(), "-h", strings.Join(s.opts.Listen, ","))
	if err != nil {
		return errors.Join(err, alive.Close())
	}
	s.alive = alive
	return nil
}

func (s *Ephemeral) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.URL("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		if ctx.Err() != nil {
			return err
		}
		if s.waitGone(ctx, 5*time.Millisecond) {
			return errors.New("it ended at once")
		}
	}
}

func (s *Ephemeral) logTail() string {
	const limit = 4 << 10
	log, err := os.ReadFile(s.Log())
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-limit):])
}

// waitGone waits, up to d, until the server and all its children have ended, and
// reports whether they have.
func (s *Ephemeral) waitGone(ctx context.Context, d time.Duration) bool {
	if err := s.alive.SetReadDeadline(time.Now().Add(d)); err != nil {
		return false
	}
	stop := context.AfterFunc(ctx, func() { _ = s.alive.SetReadDeadline(time.Now()) })
	defer stop()
	_, err := s.alive.Read([]byte{0})
	return errors.Is(err, io.EOF)
}

// pid is the number of the server itself, not of its keeper.
func (s *Ephemeral) pid() (int, error) {
	if s.keeper == nil || s.waitGone(context.Background(), time.Millisecond) {
		return 0, errors.New("it is not running")
	}
	text, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil {
		return 0, fmt.Errorf("postmaster.pid in %s contains no process id: %w", s.data(), err)
	}
	return pid, nil
}

// release ends the keeper, which ends the server if it still runs, and waits until
// all of them are gone.
func (s *Ephemeral) release() error {
	if s.keeper == nil {
		return nil
	}
	err := s.thaw() // a frozen process does not handle the signal to end
	s.keeper.end()
	gone := s.waitGone(context.Background(), stopTimeout)
	s.alive.Close()
	s.keeper, s.alive = nil, nil
	if !gone {
		err = fmt.Errorf("processes of the server in %s are still there after %v", s.dir, stopTimeout)
	}
	return err
}

// signal sends a signal to a process that may just have ended.
func signal(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %v to process %d: %w", sig, pid, err)
	}
	return nil
}
