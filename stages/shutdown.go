package stages

import (
	"context"
	"sync"
	"time"
)

// shutdown ends the dispatcher's run: no more claims, a grace for running attempts, then
// their cancellation. The dispatcher owns it.
type shutdown struct {
	d         *dispatcher
	stopped   <-chan struct{} // the run's context is done; nil once that was seen
	abort     <-chan struct{}
	grace     *time.Timer
	cancelled bool      // attempts were cancelled
	deadline  time.Time // when to end even with reports that could not be sent
}

func newShutdown(ctx context.Context, d *dispatcher) *shutdown {
	grace := time.NewTimer(0)
	if !grace.Stop() {
		<-grace.C
	}
	return &shutdown{d: d, stopped: ctx.Done(), grace: grace}
}

func (s *shutdown) stop() { s.grace.Stop() }

// poll handles the signals between exchanges, without waiting: a busy dispatcher must
// notice them, too.
func (s *shutdown) poll() {
	select {
	case <-s.stopped:
		s.begin()
	default:
	}
	select {
	case <-s.abort:
		s.cancel()
	case <-s.grace.C:
		s.cancel()
	default:
	}
}

func (s *shutdown) begin() {
	s.stopped, s.abort = nil, s.d.p.Abort
	s.d.startDrain()
	signal(s.d.p.drainStarted, s.d.busySlots() > 0)
	s.grace.Reset(max(s.d.p.Grace, 0))
}

func (s *shutdown) cancel() {
	s.grace.Stop()
	s.abort = nil
	s.d.p.attempts.cancelAll(ErrDraining)
	s.cancelled = true
}

// isOverdue reports whether waiting is useless: no attempt runs any more, and the database
// or a lock has kept the last reports from being sent for 10 s.
func (s *shutdown) isOverdue() bool {
	if !s.cancelled || s.d.busySlots() > len(s.d.ignoredCancel) {
		s.deadline = time.Now().Add(deregisterTimeout)
	}
	return !time.Now().Before(s.deadline)
}

// watchShutdown ends the grace while the dispatcher waits for an answer of the database
// that may not come: it cancels the attempts, and shortly afterwards the request, by
// d.shutdownContext. The function it returns stops the watch.
func (d *dispatcher) watchShutdown(ctx context.Context) (stop func()) {
	shutdownContext, endRequests := context.WithCancel(context.Background())
	d.shutdownContext = shutdownContext
	ended := make(chan struct{})
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-ended:
			return
		case <-ctx.Done():
		}
		grace := time.NewTimer(max(d.p.Grace, 0))
		defer grace.Stop()
		select {
		case <-ended:
			return
		case <-grace.C:
		case <-d.p.Abort:
		}
		d.p.attempts.cancelAll(ErrDraining)
		last := time.NewTimer(shutdownTimeout)
		defer last.Stop()
		select {
		case <-ended:
		case <-last.C:
			endRequests()
		}
	})
	return func() {
		close(ended)
		watch.Wait()
		endRequests()
	}
}

// recordDrain shows in the list of workers that this one drains, if it was stopped while
// attempts were running.
func (p *process) recordDrain(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-p.drainStarted:
	}
	ctx, cancel := context.WithTimeout(ctx, deregisterTimeout)
	defer cancel()
	_ = p.Backend.DrainWorker(ctx, p.worker.get()) // only the list depends on it
}
