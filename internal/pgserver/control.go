package pgserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// StopMode is how a server is told to stop.
type StopMode syscall.Signal

// A server that stops Smart waits until everybody has left. One that stops Fast
// ends all sessions, and writes everything down. One that stops with Immediate
// drops everything, and recovers when it starts again.
const (
	Smart     = StopMode(syscall.SIGTERM)
	Fast      = StopMode(syscall.SIGINT)
	Immediate = StopMode(syscall.SIGQUIT)
)

// Stop stops the server and returns when all its processes are gone, or ctx is
// done. In the second case it may still be about to stop, and may be told again
// in another mode.
func (s *Server) Stop(ctx context.Context, mode StopMode) error {
	return s.end(ctx, "stop server", syscall.Signal(mode))
}

// Kill ends the server as a crash would, with SIGKILL, and returns when all its
// processes are gone: the others notice, and end without another word.
func (s *Server) Kill() error {
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	return s.end(ctx, "kill server", syscall.SIGKILL)
}

func (s *Server) end(ctx context.Context, act string, sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	pid, err := s.pid()
	if err != nil {
		return fmt.Errorf("%s: %w", act, err)
	}
	// What was stopped can only end if it is continued, the server with the
	// signal before its eyes.
	if err := errors.Join(signal(pid, sig), s.resume()); err != nil {
		return fmt.Errorf("%s: %w", act, err)
	}
	for !s.gone(ctx, time.Second) {
		if ctx.Err() != nil {
			return fmt.Errorf("%s: it is still there: %w", act, context.Cause(ctx))
		}
	}
	return s.release()
}

// Pause stops all processes of the server where they are, with SIGSTOP: the
// kernel still accepts connections for it, and nobody answers.
func (s *Server) Pause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	pid, err := s.pid()
	if err != nil {
		return fmt.Errorf("pause server: %w", err)
	}
	for next := []int{pid}; len(next) > 0; {
		for _, p := range next {
			if err := signal(p, syscall.SIGSTOP); err != nil {
				return fmt.Errorf("pause server: %w", err)
			}
		}
		s.frozen = append(s.frozen, next...)
		// One may have been born before its parent was stopped.
		if next, err = children(pid); err != nil {
			return fmt.Errorf("pause server: %w", err)
		}
		next = slices.DeleteFunc(next, func(p int) bool { return slices.Contains(s.frozen, p) })
	}
	return nil
}

// Resume lets a paused server go on.
func (s *Server) Resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.resume(); err != nil {
		return fmt.Errorf("resume server: %w", err)
	}
	return nil
}

func (s *Server) resume() (err error) {
	for _, pid := range s.frozen {
		err = errors.Join(err, signal(pid, syscall.SIGCONT))
	}
	s.frozen = nil
	return err
}
