package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// signals turns what the terminal or the service manager sends into two steps:
// the first signal ends the context, which means "finish and go", the second
// closes abort, which means "go".
type signals struct {
	ctx   context.Context
	abort chan struct{}

	cancel context.CancelCauseFunc
	in     chan os.Signal
	quit   chan struct{}
	done   sync.WaitGroup
}

// signalled is the cause of a context that a signal ended.
type signalled struct{ signal syscall.Signal }

func (s signalled) Error() string { return "stopped by signal: " + s.signal.String() }

// code is what a shell reports of a program that the signal killed.
func (s signalled) code() int { return 128 + int(s.signal) }

func watchSignals(ctx context.Context) *signals {
	s := &signals{
		abort: make(chan struct{}),
		in:    make(chan os.Signal, 4),
		quit:  make(chan struct{}),
	}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	// SIGPIPE is taken so that a reader that goes away is an error of the next
	// write, after which there is time to stop the database, and not the end.
	heed := []os.Signal{syscall.SIGTERM, syscall.SIGPIPE}
	for _, n := range []os.Signal{os.Interrupt, syscall.SIGHUP} {
		// Whoever starts a program with these ignored, as nohup and a shell's
		// background jobs are, means it to live on.
		if !signal.Ignored(n) {
			heed = append(heed, n)
		}
	}
	signal.Notify(s.in, heed...)
	s.done.Go(s.watch)
	return s
}

func (s *signals) watch() {
	heard := 0
	for {
		select {
		case <-s.quit:
			return
		case got := <-s.in:
			n, ok := got.(syscall.Signal)
			if !ok || n == syscall.SIGPIPE {
				continue
			}
			if heard++; heard == 1 {
				s.cancel(signalled{n})
			} else if heard == 2 {
				close(s.abort)
			}
		}
	}
}

func (s *signals) stop() {
	signal.Stop(s.in)
	close(s.quit)
	s.done.Wait()
	s.cancel(nil)
}

// received is the signal that ended ctx, if one did.
func received(ctx context.Context) (signalled, bool) {
	s, ok := context.Cause(ctx).(signalled)
	return s, ok
}
