package stages

import (
	"errors"
	"time"
)

// suspension stops claims of a stage for a while, because an attempt was postponed: the
// problem is this host's, and every task would meet it.
//
// After a pause one task is tried. Each failed try doubles the pause, up to what
// [Postpone] asks for; the first attempt that ends otherwise ends the suspension. A
// lasting problem thus costs one claim now and then, not one per waiting task.
type suspension struct {
	since time.Time // zero: not suspended
	until time.Time // no claim before
	pause time.Duration
}

// firstSuspension is the first pause: the problem may be short.
const firstSuspension = time.Second

// errSuspended ends a prefetched claim of a stage that was suspended.
var errSuspended = errors.New("stage is suspended on this host")

func (s *suspension) active() bool { return !s.since.IsZero() }

// slots is how many claims a suspended stage may make, which holds some already.
func (s *suspension) slots(held int) int {
	if held > 0 || time.Now().Before(s.until) {
		return 0
	}
	return 1
}

// updateSuspension starts or ends a suspension after an attempt has ended.
func (d *dispatcher) updateSuspension(q *stageQueue, f finished) {
	s := &q.suspension
	switch {
	case f.suspends:
		d.suspend(q, f)
	case s.active() && f.started.After(s.since) &&
		(f.kind == StageCompleted || f.kind == AttemptFailed || f.kind == StageDead):
		*s = suspension{}
		q.wake(false)
		d.p.observe(Event{Kind: StageResumed, Stage: f.stage.Name})
	}
}

// suspend starts a suspension, or extends it after a failed try. Attempts that were
// running when it started do not count.
func (d *dispatcher) suspend(q *stageQueue, f finished) {
	s, now := &q.suspension, time.Now()
	asked, _ := RetryDelay(f.err)
	switch {
	case !s.active():
		s.since, s.pause = now, min(firstSuspension, asked)
		d.releasePrefetched(q, errSuspended)
		d.p.observe(Event{Kind: StageSuspended, Stage: f.stage.Name, Err: f.err})
	case !f.started.Before(s.until):
		s.pause = min(2*s.pause, asked)
	default:
		return
	}
	s.until = now.Add(jitter(s.pause))
}
