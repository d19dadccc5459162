package stages

import (
	"context"
	"sync"
	"time"
)

// drain is the end of a run: no more claims, then a grace for what is being
// worked on, then its cancelling.
type drain struct {
	d         *dispatcher
	stopped   <-chan struct{} // nil once it has been seen
	abort     <-chan struct{}
	grace     *time.Timer
	cancelled bool      // the work is to end at once
	deadline  time.Time // when to leave even with reports that could not be handed in
}

// farewell is how long, after the work has ended, the database may take to
// hear of it.
const deregisterTimeout = 10 * time.Second

func newDrain(ctx context.Context, d *dispatcher) *drain {
	g := time.NewTimer(0)
	if !g.Stop() {
		<-g.C
	}
	return &drain{d: d, stopped: ctx.Done(), grace: g}
}

func (s *drain) stop() { s.grace.Stop() }

func (s *drain) begin() {
	s.stopped, s.abort = nil, s.d.Abort
	s.d.startDrain()
	if s.d.busySlots() > 0 {
		signal(s.d.drainStarted, true)
	}
	s.grace.Reset(max(s.d.Grace, 0))
}

func (s *drain) cancel() {
	s.grace.Stop()
	s.abort = nil
	s.d.live.cancelAll(ErrDraining)
	s.cancelled = true
}

// hasten sees to the end of the grace while the dispatcher itself waits for an
// answer that may not come: work is cancelled at once, and the answer is waited
// for only so much longer. The function it returns ends that.
func (d *dispatcher) watchShutdown(ctx context.Context) (stop func()) {
	haste, hurry := context.WithCancel(context.Background())
	d.shutdownContext = haste
	ended := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		select {
		case <-ended:
			return
		case <-ctx.Done():
		}
		grace := time.NewTimer(max(d.Grace, 0))
		defer grace.Stop()
		select {
		case <-ended:
			return
		case <-grace.C:
		case <-d.Abort:
		}
		d.live.cancelAll(ErrDraining)
		last := time.NewTimer(shutdownTimeout)
		defer last.Stop()
		select {
		case <-ended:
		case <-last.C:
			hurry()
		}
	})
	return func() {
		close(ended)
		all.Wait()
		hurry()
	}
}

// atWork is how many slots are in use.
func (d *dispatcher) busySlots() (n int) {
	for _, busy := range d.busy {
		n += busy
	}
	return n
}

// overdue says that waiting has no sense any more: no work goes on, and the
// database, or somebody's lock, keeps the last reports from being handed in.
func (s *drain) isOverdue() bool {
	if !s.cancelled || s.d.busySlots() > len(s.d.ignoredCancel) {
		s.deadline = time.Now().Add(deregisterTimeout)
	}
	return !time.Now().Before(s.deadline)
}

// look sees to the signals between turns, without waiting: a process that has
// a turn to make all the time must hear them too.
func (s *drain) poll() {
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

// wait sleeps until there is something to do.
func (d *dispatcher) wait(s *drain) {
	timer := time.NewTimer(d.nextTime())
	defer timer.Stop()
	select {
	case f := <-d.done:
		d.finish(f)
	case token := <-d.overdue:
		d.abandon(token)
	case <-d.wakeups():
		d.handleWakeups(d.Wakes.Take())
	case <-d.workerGone:
		d.sweepAt = time.Now()
	case <-d.notListening:
		d.markAllReady()
	case o := <-d.newControls:
		d.applyControls(o)
	case <-timer.C:
	case <-s.stopped:
		s.begin()
	case <-s.grace.C:
		s.cancel()
	case <-s.abort:
		s.cancel()
	}
}

// nextTime is how long until something is due by the clock.
func (d *dispatcher) nextTime() time.Duration {
	if !d.outage.isOver() {
		return time.Until(d.outage.until)
	}
	next := d.sweepAt
	if d.draining {
		next = time.Now().Add(time.Second) // to see whether it is overdue
	}
	for _, f := range d.reports {
		if f.next.Before(next) {
			next = f.next
		}
	}
	if d.draining {
		return time.Until(next)
	}
	for i := range d.queues {
		for _, a := range d.prefetched[i].waiting {
			if late := a.claimed.Add(maxPrefetchWait); late.Before(next) {
				next = late
			}
		}
		l := &d.queues[i]
		for _, at := range []time.Time{l.nextAt, l.suspectAt} {
			if !at.IsZero() && at.Before(next) {
				next = at
			}
		}
		if l.due && d.free(i) > 0 && l.notUntil.Before(next) {
			next = l.notUntil
		}
		if until := d.suspended[i].until; l.due && until.After(time.Now()) && until.Before(next) {
			next = until
		}
	}
	return time.Until(next)
}

// noteDrain writes down that this process was told to end while it is at work, so that
// the list of workers says so.
func (d *dispatcher) noteDrain(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-d.drainStarted:
	}
	ctx, cancel := context.WithTimeout(ctx, deregisterTimeout)
	defer cancel()
	_ = d.Backend.DrainWorker(ctx, d.workerID()) // the list alone depends on it
}

// leave gives nothing back any more, only says good-bye, and has readers told of
// that and of the last turns: the herald has stopped.
func (d *dispatcher) deregister(life context.Context) {
	ctx, cancel := context.WithTimeout(life, deregisterTimeout)
	defer cancel()
	err := d.Backend.DeregisterWorker(ctx, d.workerID())
	if err == nil {
		telling, enough := context.WithTimeout(ctx, shutdownTimeout)
		_ = d.Backend.NotifyEvents(telling) // readers look by themselves now and then
		enough()
	}
	d.Observe(Event{Kind: WorkerStopped, Worker: d.workerID(), Err: err})
}
