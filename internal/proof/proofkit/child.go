package proofkit

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Child is one child process, from its start to its end. It leads a session of its own, so that
// [ProcessesInSession] finds what it leaves behind, and so that a Ctrl-C does not reach it. On
// Linux it is killed when its parent dies.
type Child struct {
	// Stdin is the other end of its standard input.
	Stdin io.WriteCloser
	// Started is when it was started.
	Started time.Time

	cmd  *exec.Cmd
	done chan struct{}

	mu       sync.Mutex
	killed   time.Time
	ended    time.Time
	stopping bool
	err      error
}

// ChildOptions say how to start a child. The zero value is right for most.
type ChildOptions struct {
	// OnStdout and OnStderr get each line that the child prints. Default: the stream goes where
	// the command says.
	OnStdout, OnStderr func(line string)
	// Enter calls start from where the child is to run, such as a namespace. Default: here.
	Enter func(start func() error) error
}

// StartChild starts the command.
func StartChild(cmd *exec.Cmd, o ChildOptions) (*Child, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	dieWithParent(cmd.SysProcAttr)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	var readers []func()
	for _, stream := range []struct {
		open   func() (io.ReadCloser, error)
		onLine func(string)
	}{{cmd.StdoutPipe, o.OnStdout}, {cmd.StderrPipe, o.OnStderr}} {
		if stream.onLine == nil {
			continue
		}
		pipe, err := stream.open()
		if err != nil {
			return nil, err
		}
		readers = append(readers, func() { readLines(pipe, stream.onLine) })
	}
	if o.Enter == nil {
		o.Enter = func(start func() error) error { return start() }
	}
	if err := o.Enter(cmd.Start); err != nil {
		return nil, err
	}
	c := &Child{Stdin: stdin, Started: time.Now(), cmd: cmd, done: make(chan struct{})}
	go c.wait(readers)
	return c, nil
}

// maxLine is the longest line of a child that is read.
const maxLine = 64 << 20

func readLines(r io.Reader, onLine func(string)) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		onLine(lines.Text())
	}
	_, _ = io.Copy(io.Discard, r) // after a line that is too long, so that the child can go on
}

func (c *Child) wait(readers []func()) {
	defer close(c.done)
	var reading sync.WaitGroup
	for _, read := range readers {
		reading.Go(read)
	}
	reading.Wait()
	err := c.cmd.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended, c.err = time.Now(), err
}

// PID returns the process id.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Done is closed when the child has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// HasEnded reports whether the child has ended.
func (c *Child) HasEnded() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Err returns how the child ended, as [exec.Cmd.Wait] does; nil while it runs.
func (c *Child) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Times returns when [Child.Kill] killed the child, and when it ended; zero if that did not happen.
func (c *Child) Times() (killed, ended time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.killed, c.ended
}

// EndWasRequested reports whether this program killed the child or told it to stop.
func (c *Child) EndWasRequested() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopping || !c.killed.IsZero()
}

// Kill ends the child as a crash would, and returns when it has ended.
func (c *Child) Kill() {
	c.mu.Lock()
	if c.killed.IsZero() && c.ended.IsZero() {
		c.killed = time.Now()
	}
	c.mu.Unlock()
	_ = c.cmd.Process.Kill() // it may have ended just now
	<-c.done
}

// Freeze stops the child with SIGSTOP; Thaw continues it.
func (c *Child) Freeze() { _ = c.cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw continues a child that Freeze stopped.
func (c *Child) Thaw() { _ = c.cmd.Process.Signal(syscall.SIGCONT) }

// Stop closes the child's standard input, sends it the signal unless that is nil, and reports
// whether the child ended successfully within the timeout. It kills a child that did not end.
func (c *Child) Stop(timeout time.Duration, signal os.Signal) bool {
	c.mu.Lock()
	c.stopping = true
	c.mu.Unlock()
	c.Stdin.Close()
	if signal != nil {
		_ = c.cmd.Process.Signal(signal) // it may have ended just now
	}
	select {
	case <-c.done:
	case <-time.After(timeout):
		c.Kill()
		return false
	}
	return c.Err() == nil
}

// DaemonEnviron is this program's environment for a `cuelight serve`, without any setting of
// PostgreSQL or Cuelight but the given ones.
func DaemonEnviron(settings ...string) []string {
	var environ []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "PG") && !strings.HasPrefix(variable, "CUELIGHT_") {
			environ = append(environ, variable)
		}
	}
	return append(environ, settings...)
}
