package main

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/progresslog"
	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// drainTimeout is how long a process may take to end in good order: its grace period, and
// deregistering.
const drainTimeout = 45 * time.Second

// slot runs one process at a time. It starts a new incarnation when one ends unexpectedly, and
// reports that as a violation.
type slot struct {
	log     *progresslog.Log
	name    string
	command func(incarnation int) (*exec.Cmd, proofkit.ChildOptions) // counted from 0
	watches sync.WaitGroup

	mu           sync.Mutex
	isClosing    bool
	incarnations []*proofkit.Child // the last one is the current one
	violations   []string
}

// start starts the next incarnation, unless the current one runs.
func (s *slot) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.incarnations)
	if s.isClosing || n > 0 && !s.incarnations[n-1].HasEnded() {
		return nil
	}
	child, err := proofkit.StartChild(s.command(n))
	if err != nil {
		return fmt.Errorf("start %s: %w", s.name, err)
	}
	s.incarnations = append(s.incarnations, child)
	s.watches.Go(func() { s.watch(child) })
	return nil
}

func (s *slot) watch(child *proofkit.Child) {
	<-child.Done()
	if child.EndWasRequested() {
		return
	}
	violation := fmt.Sprintf("%s ended unexpectedly: %v", s.name, child.Err())
	s.log.Logf("%s", violation)
	s.mu.Lock()
	s.violations = append(s.violations, violation)
	s.mu.Unlock()
	if err := s.start(); err != nil {
		s.log.Logf("%v", err)
	}
}

func (s *slot) current() *proofkit.Child {
	all := s.all()
	return all[len(all)-1]
}

// all returns all incarnations, in their order.
func (s *slot) all() []*proofkit.Child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.incarnations[:len(s.incarnations):len(s.incarnations)]
}

// kill kills the current incarnation and reports whether it was running.
func (s *slot) kill() bool {
	child := s.current()
	if child.HasEnded() {
		return false
	}
	child.Kill()
	return true
}

// drain tells the current incarnation to end and returns the violations of this slot.
func (s *slot) drain(signal os.Signal) []string {
	s.mu.Lock()
	s.isClosing = true
	violations := s.violations
	s.mu.Unlock()
	if child := s.current(); !child.HasEnded() && !child.Stop(drainTimeout, signal) {
		violations = append(violations, fmt.Sprintf("%s was told to end, and ended with %v", s.name, child.Err()))
	}
	return violations
}

// close kills what still runs.
func (s *slot) close() {
	s.mu.Lock()
	s.isClosing = true
	s.mu.Unlock()
	for _, child := range s.all() {
		child.Kill()
	}
	s.watches.Wait()
}
