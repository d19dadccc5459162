package stages

import (
	"errors"
	"time"
)

// suspension is a stage that this process claims nothing of for a while, because an
// attempt was postponed: what is the matter with this host would meet every task.
// Owned by the dispatcher.
//
// One task is tried after a pause, and after each try in vain the pause doubles, up
// to what [Postpone] asks for. The first attempt that ends otherwise ends the
// suspension. So trouble that lasts costs a claim now and then, and not one for every
// task that waits.
type suspension struct {
	since time.Time // zero: the stage is not suspended
	until time.Time // no claim before
	pause time.Duration
}

// firstSuspension is the first pause: trouble may be over soon.
const firstSuspension = time.Second

// errSuspended ends a claim that had not started when its stage was suspended.
var errSuspended = errors.New("stage is suspended on this host")

func (s *suspension) active() bool { return !s.since.IsZero() }

// room is how many claims a suspended stage may have beside those it has.
func (s *suspension) slots(held int) int {
	if held > 0 || time.Now().Before(s.until) {
		return 0
	}
	return 1
}

// learnTrouble takes in how an attempt ended: it may begin or end a suspension.
func (d *dispatcher) updateSuspension(f finished) {
	s := &d.suspended[f.claim.Stage]
	switch {
	case f.suspends:
		d.suspend(f)
	case s.active() && f.began.After(s.since) && (f.kind == StageCompleted || f.kind == AttemptFailed || f.kind == StageDead):
		*s = suspension{}
		d.queues[f.claim.Stage].wake(false)
		d.Observe(Event{Kind: StageResumed, Worker: d.workerID(), Stage: f.stage.Name})
	}
}

// suspend begins a suspension, or makes it longer after a try in vain. Attempts that
// were under way when it began tell nothing new.
func (d *dispatcher) suspend(f finished) {
	s, now := &d.suspended[f.claim.Stage], time.Now()
	asked, _ := RetryDelay(f.err)
	switch {
	case !s.active():
		s.since, s.pause = now, min(firstSuspension, asked)
		d.releaseStagePrefetched(f.claim.Stage, errSuspended)
		d.Observe(Event{Kind: StageSuspended, Worker: d.workerID(), Stage: f.stage.Name, Err: f.err})
	case !f.began.Before(s.until):
		s.pause = min(2*s.pause, asked)
	default:
		return
	}
	s.until = now.Add(jitter(s.pause))
}
