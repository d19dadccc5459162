// Package child runs programs for the benchmark that are measured from outside,
// and tells what they take of the machine.
//
//	p, err := child.Start(exec.Command("cuelight", "serve"))
//	…
//	before, err := p.Usage()
//	…
//	after, err := p.Usage()
//	err = p.Stop(ctx)
//
// A child has a process group of its own, so that a Ctrl-C is for the benchmark,
// which ends it in good order. On Linux it dies with the process that started
// it, however that comes about.
package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Usage is what a process took.
type Usage struct {
	CPU    time.Duration // of all its threads, in user and in system mode
	Memory int64         // bytes resident: the most there were, where the system tells, else those of now
}

// Process is a program at work.
type Process struct {
	cmd    *exec.Cmd
	stderr tail
	gone   chan struct{} // closed when it has ended, with
	err    error
}

// Start starts a program. What it says on standard error is kept for errors,
// and passed on if the command has a writer for it.
func Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, gone: make(chan struct{})}
	if cmd.Stderr != nil {
		cmd.Stderr = io.MultiWriter(cmd.Stderr, &p.stderr)
	} else {
		cmd.Stderr = &p.stderr
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	dieWithUs(cmd.SysProcAttr)
	started := make(chan error, 1)
	go p.attend(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// attend starts it and waits for its end, on one thread: the signal that ends
// it with us is bound to the thread that started it.
func (p *Process) attend(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.gone)
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	if err := p.cmd.Wait(); err != nil {
		p.err = fmt.Errorf("%s: %w: %s", p.cmd.Path, err, p.stderr.String())
	}
}

// Pid is its process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Gone is closed when it has ended.
func (p *Process) Done() <-chan struct{} { return p.gone }

// Usage is what it has taken so far, without its children.
func (p *Process) Usage() (Usage, error) {
	select {
	case <-p.gone:
		return Usage{}, errors.Join(errEnded, p.err)
	default:
		return usageOf(p.Pid())
	}
}

var errEnded = errors.New("it has ended by itself")

// Wait waits for its end. When ctx is done before that it is killed, with all
// of its group.
func (p *Process) Wait(ctx context.Context) error {
	select {
	case <-p.gone:
		return p.err
	case <-ctx.Done():
		_ = syscall.Kill(-p.Pid(), syscall.SIGKILL) // it may have just ended
		<-p.gone
		return context.Cause(ctx)
	}
}

// Stop asks it to end, with SIGTERM, and waits for that as Wait does.
func (p *Process) Stop(ctx context.Context) error {
	select {
	case <-p.gone:
		return errors.Join(errEnded, p.err)
	default:
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		return p.Wait(ctx)
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const keeps = 2 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = bytes.Clone(t.text[max(0, len(t.text)-keeps):])
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
