package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// slot runs one process at a time. It starts a new incarnation when one ends unexpectedly, and
// reports that as a violation.
type slot struct {
	log     *progresslog.Log
	name    string
	command func(n int) (*exec.Cmd, error) // of the incarnation, counted from 0
	proxy   *proxy                         // in front of what a worker connects to; nil without one
	ready   chan struct{}                  // closed when the first incarnation is ready
	addr    atomic.Pointer[string]         // of the last incarnation that is ready; nil before
	watches sync.WaitGroup

	mu           sync.Mutex // guards the rest
	isClosing    bool
	incarnations []*incarnation // the last one is the current one
	violations   []string
}

func newSlot(log *progresslog.Log, name string, command func(n int) (*exec.Cmd, error)) *slot {
	return &slot{log: log, name: name, command: command, ready: make(chan struct{})}
}

// incarnation is one process of a slot.
type incarnation struct {
	*childproc.Process
	stdin    io.Closer
	finished chan struct{}             // closed after the process has ended
	ended    time.Time                 // valid then
	killed   atomic.Pointer[time.Time] // nil: not by this program
}

// start starts the next incarnation, unless the current one runs.
func (s *slot) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.incarnations)
	if s.isClosing || n > 0 && !s.incarnations[n-1].hasEnded() {
		return nil
	}
	cmd, err := s.command(n)
	if err != nil {
		return err
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	cmd.Stdout = childproc.Lines(s.readLine)
	// A session of its own lets proofkit find what the process leaves behind.
	p, err := childproc.Start(cmd, childproc.Options{Session: true, LeavesGroup: true})
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	i := &incarnation{Process: p, stdin: stdin, finished: make(chan struct{})}
	s.incarnations = append(s.incarnations, i)
	s.watches.Go(func() { s.watch(i) })
	return nil
}

// readyPrefix begins the line that a process prints when it is registered, or accepts connections. Its address, if it
// has one, follows.
const readyPrefix = "ready "

// readLine reads what a process prints. Other lines are for the log.
func (s *slot) readLine(line []byte) {
	addr, isReady := strings.CutPrefix(string(line), readyPrefix)
	if !isReady {
		s.log.Logf("%s %s", s.name, line)
	} else if s.addr.Swap(&addr) == nil {
		close(s.ready)
	}
}

// waitReady waits until the first incarnation is ready.
func (s *slot) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := proofkit.WaitReady(ctx, s.current().Process, s.ready); err != nil {
		return fmt.Errorf("%s is not ready: %w", s.name, err)
	}
	return nil
}

func (s *slot) watch(i *incarnation) {
	<-i.Done()
	i.ended = time.Now()
	close(i.finished)
	violation := fmt.Sprintf("%s ended unexpectedly: %v", s.name, i.Err())
	s.mu.Lock()
	isExpected := s.isClosing || i.killed.Load() != nil
	if !isExpected {
		s.violations = append(s.violations, violation)
	}
	s.mu.Unlock()
	if isExpected {
		return
	}
	s.log.Logf("%s", violation)
	if err := s.start(); err != nil {
		s.log.Logf("%v", err)
	}
}

func (s *slot) current() *incarnation {
	all := s.all()
	return all[len(all)-1]
}

// all returns all incarnations, in their order.
func (s *slot) all() []*incarnation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.incarnations[:len(s.incarnations):len(s.incarnations)]
}

// drainTimeout is how long a process may take to end in good order: its grace period, and
// deregistering.
const drainTimeout = 45 * time.Second

// drain makes the current incarnation end and returns the violations of this slot. It closes
// the standard input of the process, and sends it the signal unless that is 0.
func (s *slot) drain(signal syscall.Signal) []string {
	s.mu.Lock()
	s.isClosing = true
	violations := s.violations
	s.mu.Unlock()
	i := s.current()
	if i.hasEnded() {
		return violations
	}
	i.stdin.Close()
	if signal != 0 {
		_ = i.Signal(signal) // it may have ended just now
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), drainTimeout, errors.New("a kill, since it took too long"))
	defer cancel()
	err := i.Wait(ctx)
	<-i.finished
	if err != nil {
		violations = append(violations, fmt.Sprintf("%s ended with %v after it was asked to stop", s.name, err))
	}
	return violations
}

// close kills what still runs.
func (s *slot) close() {
	s.mu.Lock()
	s.isClosing = true
	s.mu.Unlock()
	for _, i := range s.all() {
		i.kill()
	}
	s.watches.Wait()
	if s.proxy != nil {
		s.proxy.close()
	}
}

func (i *incarnation) hasEnded() bool {
	select {
	case <-i.finished:
		return true
	default:
		return false
	}
}

// kill ends the process as a crash would. It returns when the process has ended.
func (i *incarnation) kill() {
	if !i.hasEnded() {
		i.killed.CompareAndSwap(nil, new(time.Now()))
	}
	_ = i.Signal(syscall.SIGKILL) // it may have ended just now
	<-i.finished
}
