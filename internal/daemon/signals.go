package daemon

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
)

// Signals turns signals into a shutdown in two steps: the first one cancels Ctx, which
// means "finish and stop", the second closes Abort, which means "stop at once".
type Signals struct {
	Ctx   context.Context
	Abort chan struct{}

	cancel     context.CancelCauseFunc
	in         chan os.Signal
	hangups    chan struct{} // buffered: a signal that comes during a reload is not lost
	isReloaded atomic.Bool   // Hangups has been called
	quit       chan struct{}
	done       sync.WaitGroup
}

// Reload says what a process does on SIGHUP. The zero value does nothing.
type Reload struct {
	Signal <-chan struct{} // from Signals.Hangups
	Do     func()          // reads the settings again
}

// SignalError is the cause of a context that a signal cancelled.
type SignalError struct{ Signal syscall.Signal }

func (s SignalError) Error() string { return "stopped by signal: " + s.Signal.String() }

// ExitCode returns the code that a shell reports for a program that the signal killed.
func (s SignalError) ExitCode() int { return 128 + int(s.Signal) }

// WatchSignals begins to receive signals. Stop must follow.
func WatchSignals(ctx context.Context) *Signals {
	s := &Signals{
		Abort:   make(chan struct{}),
		in:      make(chan os.Signal, 4),
		hangups: make(chan struct{}, 1),
		quit:    make(chan struct{}),
	}
	s.Ctx, s.cancel = context.WithCancelCause(ctx)
	// SIGPIPE would end the process. Caught, it leaves the error of the next write,
	// after which there is time to stop the database.
	caught := []os.Signal{syscall.SIGTERM, syscall.SIGPIPE}
	for _, n := range []os.Signal{os.Interrupt, syscall.SIGHUP} {
		// nohup and the background jobs of a shell start programs that ignore these.
		if !signal.Ignored(n) {
			caught = append(caught, n)
		}
	}
	signal.Notify(s.in, caught...)
	s.done.Go(s.watch)
	return s
}

func (s *Signals) watch() {
	received := 0
	for {
		select {
		case <-s.quit:
			return
		case in := <-s.in:
			n, ok := in.(syscall.Signal)
			if !ok || n == syscall.SIGPIPE {
				continue
			}
			if n == syscall.SIGHUP && s.isReloaded.Load() {
				select {
				case s.hangups <- struct{}{}:
				default:
				}
				continue
			}
			if received++; received == 1 {
				s.cancel(SignalError{n})
			} else if received == 2 {
				close(s.Abort)
			}
		}
	}
}

// Hangups returns a channel that receives each SIGHUP from now on. These do not stop the process any more.
func (s *Signals) Hangups() <-chan struct{} {
	s.isReloaded.Store(true)
	return s.hangups
}

// Stop ends the receiving of signals and cancels Ctx.
func (s *Signals) Stop() {
	signal.Stop(s.in)
	close(s.quit)
	s.done.Wait()
	s.cancel(nil)
}

// SignalOf returns the signal that cancelled ctx, if one did.
func SignalOf(ctx context.Context) (SignalError, bool) {
	s, ok := context.Cause(ctx).(SignalError)
	return s, ok
}
