package stages

import (
	"time"
)

// firstSuspension is the first delay: the problem may be short.
const firstSuspension = time.Second

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
		s.since, s.delay = now, min(firstSuspension, asked)
		d.releasePrefetched(q, errSuspended)
		d.p.observe(Event{Kind: StageSuspended, Stage: f.stage.Name, Err: f.err})
	case !f.started.Before(s.until):
		s.delay = min(2*s.delay, asked)
	default:
		return
	}
	s.until = now.Add(jitter(s.delay))
}
