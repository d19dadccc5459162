package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/cuelight/cuelight/internal/childproc"
	"github.com/cuelight/cuelight/internal/progresslog"
)

// drainTimeout is how long a process may take to end in good order: its grace period, and
// deregistering.
const drainTimeout = 45 * time.Second

// slot runs one process at a time. It starts a new incarnation when one ends unexpectedly, and
// reports that as a violation.
type slot struct {
	log     *progresslog.Log
	name    string
	command func(n int) (*exec.Cmd, error) // of the incarnation, counted from 0
	watches sync.WaitGroup

	mu           sync.Mutex
	isClosing    bool
	incarnations []*incarnation // the last one is the current one
	violations   []string
}

// incarnation is one process of a slot.
type incarnation struct {
	*childproc.Process
	stdin    io.Closer
	finished chan struct{} // closed after the process has ended
	ended    time.Time     // valid then

	mu     sync.Mutex
	killed time.Time // zero: not by this program
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

func (s *slot) watch(i *incarnation) {
	<-i.Done()
	i.ended = time.Now()
	close(i.finished)
	violation := fmt.Sprintf("%s ended unexpectedly: %v", s.name, i.Err())
	s.mu.Lock()
	isExpected := s.isClosing || i.wasKilled()
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

// drain tells the current incarnation to end and returns the violations of this slot. It closes
// the standard input of the process, and sends it the signal unless that is 0.
func (s *slot) drain(signal syscall.Signal) []string {
	s.mu.Lock()
	s.isClosing = true
	violations := s.violations
	s.mu.Unlock()
	if i := s.current(); !i.hasEnded() {
		if err := i.stop(signal); err != nil {
			violations = append(violations, fmt.Sprintf("%s ended with %v after it was asked to stop", s.name, err))
		}
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
}

func (i *incarnation) hasEnded() bool {
	select {
	case <-i.finished:
		return true
	default:
		return false
	}
}

// stop tells the process to end, and waits. It kills a process that does not end.
func (i *incarnation) stop(signal syscall.Signal) error {
	i.stdin.Close()
	if signal != 0 {
		_ = i.Signal(signal) // it may have ended just now
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), drainTimeout, errDrainTimeout)
	defer cancel()
	err := i.Wait(ctx)
	<-i.finished
	return err
}

var errDrainTimeout = errors.New("a kill, since it took too long")

// kill ends the process as a crash would. It returns when the process has ended.
func (i *incarnation) kill() {
	i.mu.Lock()
	if i.killed.IsZero() && !i.hasEnded() {
		i.killed = time.Now()
	}
	i.mu.Unlock()
	_ = i.Signal(syscall.SIGKILL) // it may have ended just now
	<-i.finished
}

func (i *incarnation) wasKilled() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return !i.killed.IsZero()
}

// freeze stops the process with SIGSTOP, and thaw continues it.
func (i *incarnation) freeze() { _ = i.Signal(syscall.SIGSTOP) }
func (i *incarnation) thaw()   { _ = i.Signal(syscall.SIGCONT) }
