package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// process is one child from its start to its end. It has a session of its own,
// so that what it leaves behind can be found, and a Ctrl-C does not reach it.
type process struct {
	cmd   *exec.Cmd
	leash io.Closer // its standard input
	done  chan struct{}

	mu     sync.Mutex
	began  time.Time
	killed time.Time // by us; zero if it was not
	told   bool      // to end
	ended  time.Time
	err    error
}

// startProcess starts it and hands over, line by line, what it says on standard
// output.
func startProcess(cmd *exec.Cmd, start func(func() error) error, hear func(line string)) (*process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	dieWithUs(cmd.SysProcAttr)
	leash, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := start(cmd.Start); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, leash: leash, done: make(chan struct{}), began: time.Now()}
	go func() {
		defer close(p.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			hear(lines.Text())
		}
		err := cmd.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ended, p.err = time.Now(), err
	}()
	return p, nil
}

// here starts a process where we are.
func here(start func() error) error { return start() }

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill ends it as a crash would, and returns when it has.
func (p *process) kill() {
	p.mu.Lock()
	if p.killed.IsZero() && p.ended.IsZero() {
		p.killed = time.Now()
	}
	p.mu.Unlock()
	_ = p.cmd.Process.Kill() // it may have ended just now
	<-p.done
}

func (p *process) freeze() { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *process) thaw()   { _ = p.cmd.Process.Signal(syscall.SIGCONT) }

// end tells it to end, and reports whether it did within the time, and well.
func (p *process) end(within time.Duration, how os.Signal) bool {
	p.mu.Lock()
	p.told = true
	p.mu.Unlock()
	p.leash.Close()
	if how != nil {
		_ = p.cmd.Process.Signal(how)
	}
	select {
	case <-p.done:
	case <-time.After(within):
		p.kill()
		return false
	}
	return p.err == nil
}

// expected: it ended because we wanted it to.
func (p *process) expected() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.told || !p.killed.IsZero()
}
