package stages

import (
	"context"
	"sync"
	"time"
)

// drain is the end of a run: no more claims, then a grace for what is being
// worked on, then its cancelling.
type drain struct {
	d       *dispatcher
	stopped <-chan struct{} // nil once it has been seen
	abort   <-chan struct{}
	grace   *time.Timer
	over    bool      // the work is to end at once
	giveUp  time.Time // when to leave even with reports that could not be handed in
}

// farewell is how long, after the work has ended, the database may take to
// hear of it.
const farewell = 10 * time.Second

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
	s.d.retire()
	if s.d.atWork() > 0 {
		poke(s.d.retired, true)
	}
	s.grace.Reset(max(s.d.Grace, 0))
}

func (s *drain) cancel() {
	s.grace.Stop()
	s.abort = nil
	s.d.live.cancelAll(ErrDraining)
	s.over = true
}

// hasten sees to the end of the grace while the dispatcher itself waits for an
// answer that may not come: work is cancelled at once, and the answer is waited
// for only so much longer. The function it returns ends that.
func (d *dispatcher) hasten(ctx context.Context) (stop func()) {
	haste, hurry := context.WithCancel(context.Background())
	d.haste = haste
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
		last := time.NewTimer(hastyTimeout)
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
func (d *dispatcher) atWork() (n int) {
	for _, busy := range d.busy {
		n += busy
	}
	return n
}

// overdue says that waiting has no sense any more: no work goes on, and the
// database, or somebody's lock, keeps the last reports from being handed in.
func (s *drain) overdue() bool {
	if !s.over || s.d.atWork() > len(s.d.stubborn) {
		s.giveUp = time.Now().Add(farewell)
	}
	return !time.Now().Before(s.giveUp)
}

// look sees to the signals between turns, without waiting: a process that has
// a turn to make all the time must hear them too.
func (s *drain) look() {
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
	case token := <-d.over:
		d.giveUp(token)
	case <-d.news():
		d.hear(d.Wakes.Take())
	case <-d.gone:
		d.sweepAt = time.Now()
	case <-d.deaf:
		d.guess()
	case o := <-d.orders:
		d.obey(o)
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
	if !d.trouble.over() {
		return time.Until(d.trouble.until)
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
	for i := range d.look {
		for _, a := range d.ahead[i].waiting {
			if late := a.claimed.Add(waitsAtMost); late.Before(next) {
				next = late
			}
		}
		l := &d.look[i]
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
	case <-d.retired:
	}
	ctx, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	_ = d.Store.Drain(ctx, d.workerID()) // the list alone depends on it
}

// leave gives nothing back any more, only says good-bye, and has readers told of
// that and of the last turns: the herald has stopped.
func (d *dispatcher) leave(life context.Context) {
	ctx, cancel := context.WithTimeout(life, farewell)
	defer cancel()
	err := d.Store.Leave(ctx, d.workerID())
	if err == nil {
		telling, enough := context.WithTimeout(ctx, hastyTimeout)
		_ = d.Store.Herald(telling) // readers look by themselves now and then
		enough()
	}
	d.Observe(Event{Kind: Stopped, Worker: d.workerID(), Err: err})
}
