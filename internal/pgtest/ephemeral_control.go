package pgtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// StopMode is how a server shuts down; see "Shutting Down the Server" in the
// PostgreSQL manual.
type StopMode syscall.Signal

// The ways to stop a server.
const (
	// Smart waits until all clients have disconnected.
	Smart = StopMode(syscall.SIGTERM)
	// Fast ends all sessions and writes everything to disk.
	Fast = StopMode(syscall.SIGINT)
	// Immediate drops everything; the server recovers at its next start.
	Immediate = StopMode(syscall.SIGQUIT)
)

// Stop stops the server and returns when all its processes are gone or ctx is
// done. In the second case the server may still be shutting down, and Stop may be
// called again with another mode.
func (s *Ephemeral) Stop(ctx context.Context, mode StopMode) error {
	return s.end(ctx, "stop server", syscall.Signal(mode))
}

// Kill ends the server with SIGKILL, as a crash would, and returns when all its
// processes are gone: its children notice and end.
func (s *Ephemeral) Kill() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return s.end(ctx, "kill server", syscall.SIGKILL)
}

func (s *Ephemeral) end(ctx context.Context, action string, sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	pid, err := s.pid()
	if err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	// A frozen process ends only after it continues. The signal is pending by then.
	if err := errors.Join(signal(pid, sig), s.thaw()); err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}
	for !s.waitGone(ctx, time.Second) {
		if ctx.Err() != nil {
			return fmt.Errorf("%s: it is still running: %w", action, context.Cause(ctx))
		}
	}
	return s.release()
}

// Freeze stops all processes of the server with SIGSTOP: the kernel still accepts
// connections for it, and the server does not answer.
func (s *Ephemeral) Freeze() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	pid, err := s.pid()
	if err != nil {
		return fmt.Errorf("freeze server: %w", err)
	}
	for next := []int{pid}; len(next) > 0; {
		for _, p := range next {
			if err := signal(p, syscall.SIGSTOP); err != nil {
				return fmt.Errorf("freeze server: %w", err)
			}
		}
		s.frozen = append(s.frozen, next...)
		// The server may have started another child before it froze.
		if next, err = childrenOf(pid); err != nil {
			return fmt.Errorf("freeze server: %w", err)
		}
		next = slices.DeleteFunc(next, func(p int) bool { return slices.Contains(s.frozen, p) })
	}
	return nil
}

// Thaw continues a frozen server.
func (s *Ephemeral) Thaw() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.thaw(); err != nil {
		return fmt.Errorf("thaw server: %w", err)
	}
	return nil
}

func (s *Ephemeral) thaw() (err error) {
	for _, pid := range s.frozen {
		err = errors.Join(err, signal(pid, syscall.SIGCONT))
	}
	s.frozen = nil
	return err
}
