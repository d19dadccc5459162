//go:build unix

// Package childproc starts child processes and supervises them until they end.
//
//	p, err := childproc.Start(exec.Command("cuelight", "serve"), childproc.Options{})
//	if err != nil {
//		return err
//	}
//	…
//	ctx, cancel := context.WithTimeout(ctx, time.Minute)
//	defer cancel()
//	err = p.Stop(ctx, syscall.SIGTERM)
//
// [Run] starts a child and waits for it in one call.
//
// The package promises:
//
//   - A child leads a process group of its own: a Ctrl-C in the terminal does not
//     reach it, and a signal reaches the children of the child, too.
//   - On Linux the kernel kills the child when this program dies. The kernel binds
//     that signal to the thread that started the child, so the supervising goroutine
//     keeps its thread until the child has ended.
//   - When the child ends, on Linux the rest of its group is killed before
//     [Process.Done] is closed.
//   - No signal is sent after the child's end: its number may belong to another
//     process by then.
//
// A child that must outlive this program sets [Options].OutlivesParent. The package
// does not start a child again; that is the caller's decision.
package childproc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// pipeDelay is how long a child's output may stay open after its end, and
// killDelay how long the kernel may take to remove a killed group. A process
// that hangs in the kernel takes longer, and nothing can be done about that.
const pipeDelay, killDelay = 5 * time.Second, time.Second

// ErrEnded is the error of a stop that finds the child ended already.
var ErrEnded = errors.New("the process had already ended")

// Options say how a child is started. The zero value suits a child that serves
// this program alone.
type Options struct {
	// Session gives the child a session, not only a process group. The Linux
	// scheduler shares processors between sessions, and a child in its own
	// session has no controlling terminal.
	Session bool

	// OutlivesParent lets the child run on when this program dies, and lets its
	// group run on when the child ends.
	OutlivesParent bool

	// LeavesGroup lets the rest of the group run on when the child ends.
	LeavesGroup bool

	// Start calls its argument, which starts the child, on a thread that the
	// caller has prepared: in another network namespace, for example. The thread
	// stays with the child. Default: the child starts at once.
	Start func(start func() error) error
}

// Process is a child. Its methods may be called from several goroutines.
type Process struct {
	cmd     *exec.Cmd
	options Options
	stderr  Tail
	done    chan struct{}
	err     error // written before done is closed

	mu     sync.Mutex
	reaped bool // the number may belong to another process
}

// Start starts the command, whose context, if any, has no effect on the group:
// use [Process.Wait]. Start adds to cmd.SysProcAttr and keeps what it contains.
// Where cmd.Stderr is nil, the end of standard error becomes part of errors. Do not
// use cmd.StdoutPipe, which loses the output that is unread when the child ends;
// use [Lines].
func Start(cmd *exec.Cmd, o Options) (*Process, error) {
	p := &Process{cmd: cmd, options: o, done: make(chan struct{})}
	if cmd.Stderr == nil && !o.OutlivesParent { // the pipe would end with this program
		cmd.Stderr = &p.stderr
	}
	if cmd.WaitDelay == 0 {
		cmd.WaitDelay = pipeDelay
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setpgid = o.Session, !o.Session
	if !o.OutlivesParent {
		setDeathSignal(cmd.SysProcAttr)
	}
	if p.options.Start == nil {
		p.options.Start = func(start func() error) error { return start() }
	}
	started := make(chan error, 1)
	go p.supervise(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	return p, nil
}

// Run starts the command and waits for its end. When ctx is done earlier, Run
// kills the group and returns the cause.
func Run(ctx context.Context, cmd *exec.Cmd, o Options) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p, err := Start(cmd, o)
	if err != nil {
		return err
	}
	return p.Wait(ctx)
}

func (p *Process) supervise(started chan<- error) {
	if !p.options.OutlivesParent { // the death signal belongs to the thread
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	err := p.options.Start(p.cmd.Start)
	started <- err
	if err != nil {
		return
	}
	defer close(p.done)
	exited := waitExit(p.PID())
	p.mu.Lock()
	killed := exited && !p.options.LeavesGroup && !p.options.OutlivesParent &&
		syscall.Kill(-p.PID(), syscall.SIGKILL) == nil
	p.reaped = exited
	p.mu.Unlock()
	err = p.cmd.Wait()
	p.mu.Lock()
	p.reaped = true
	p.mu.Unlock()
	if killed {
		p.waitGroupGone()
	}
	if err != nil {
		p.err = fmt.Errorf("%s: %w", filepath.Base(p.cmd.Path), err)
		if text := p.stderr.String(); text != "" {
			p.err = fmt.Errorf("%w: %s", p.err, text)
		}
	}
}

func (p *Process) waitGroupGone() {
	for start := time.Now(); time.Since(start) < killDelay; time.Sleep(time.Millisecond) {
		if errors.Is(syscall.Kill(-p.PID(), 0), syscall.ESRCH) {
			return
		}
	}
}

// PID is the number of the process, which is also that of its group.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the child has ended and its output is complete.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is why the child ended, with the end of its standard error: nil after exit
// code 0, and while it runs. It wraps an [*exec.ExitError].
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// State is how the child ended, with the processor time it used. It is nil before
// Done is closed.
func (p *Process) State() *os.ProcessState {
	select {
	case <-p.done:
		return p.cmd.ProcessState
	default:
		return nil
	}
}

// Signal sends a signal to the child alone. It returns [os.ErrProcessDone] after
// the child has ended.
func (p *Process) Signal(sig syscall.Signal) error { return p.send(p.PID(), sig) }

// SignalGroup sends a signal to the child and to its group.
func (p *Process) SignalGroup(sig syscall.Signal) error { return p.send(-p.PID(), sig) }

func (p *Process) send(to int, sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return os.ErrProcessDone
	}
	if err := syscall.Kill(to, sig); err != nil {
		return os.NewSyscallError("kill", err)
	}
	return nil
}

// Wait waits for the child's end and returns Err. When ctx is done earlier, Wait
// kills the group, waits for the end, and returns the cause.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		p.Kill()
		return context.Cause(ctx)
	}
}

// Stop sends the signal, SIGTERM as a rule, to the group and then does what Wait
// does: ctx bounds the grace period. A child that has ended by itself is
// [ErrEnded].
func (p *Process) Stop(ctx context.Context, sig syscall.Signal) error {
	if err := p.SignalGroup(sig); errors.Is(err, os.ErrProcessDone) {
		<-p.done
		return errors.Join(ErrEnded, p.err)
	}
	return p.Wait(ctx)
}

// Kill sends SIGKILL to the group and waits for the child's end.
func (p *Process) Kill() {
	_ = p.SignalGroup(syscall.SIGKILL) // the child may have ended just now
	<-p.done
}
