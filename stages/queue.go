package stages

import (
	"slices"
	"time"

	"github.com/cuelight/cuelight/store/engine"
)

// stageQueue is what the dispatcher knows about one stage, or about its parts: whether tasks may be
// ready, which claims are prefetched, and which slots are in use. The dispatcher owns it.
type stageQueue struct {
	number int // of the stage
	stage  *Stage
	parts  bool
	slots  int
	busy   int // slots in use

	engine.ReadyQueue
	woken      bool             // due only because of a notification: nothing was ready before
	missed     bool             // due only because of the sweep, or because no notifications arrive
	missedStep *engine.Position // what the sweep found, if it is because of that

	wakeExpectedAt time.Time        // when a step that the sweep found should have been announced; zero for none
	found          *engine.Position // that step

	prefetch
	suspension
	postponed postponed
	paused    bool
}

// wake handles notifications of steps, or of any step; free says that there are slots for them.
func (q *stageQueue) wake(free bool, payloads []string) {
	q.woken = free && (q.woken || !q.Due)
	q.wakeExpectedAt, q.missed = time.Time{}, false
	q.Wake(payloads)
}

// checkWake handles a step that the sweep found, and that should have been announced by now.
func (q *stageQueue) checkWake(now time.Time) {
	if q.wakeExpectedAt.IsZero() || now.Before(q.wakeExpectedAt) {
		return
	}
	if !q.missed && !q.Due {
		q.missed, q.missedStep = true, q.found
	}
	q.Open(*q.found)
	q.wakeExpectedAt = time.Time{}
}

// earliest returns the time when the next thing is due, if that is before t.
func (q *stageQueue) earliest(t time.Time, free bool) time.Time {
	for _, a := range q.prefetched {
		if at := a.claimed.Add(maxPrefetchWait); at.Before(t) {
			t = at
		}
	}
	if at := q.wakeExpectedAt; !at.IsZero() && at.Before(t) {
		t = at
	}
	if free || !q.Due {
		t = q.Next(t)
	}
	if until := q.suspension.until; q.Due && until.After(time.Now()) && until.Before(t) {
		t = until
	}
	return t
}

// updateQueue records what an exchange has found in a queue.
func (d *dispatcher) updateQueue(queue int, r engine.ExchangeRequest, out engine.ExchangeResult) {
	q := &d.queues[queue]
	if !r.ClaimFrom[queue] {
		return
	}
	q.woken = false
	q.Update(queue, q.Mark(), r, out)
	if !d.p.isListening() {
		q.Position = engine.Position{}
	}
	if q.missed && d.hasMissed(queue, out) {
		d.sweeps.recordMiss(d.p.SweepInterval)
		if d.p.MaxRunningPerUser == 0 || len(q.stage.Needs) > 0 { // otherwise the limit may have kept them waiting
			d.p.observe(Event{Kind: WakeMissed, Stage: q.stage.Name, Count: out.Claimed[queue]})
		}
	}
	q.missed = q.missed && out.MoreReady[queue]
}

// hasMissed reports whether an exchange claimed what no notification had announced. A step that the sweep found may have been claimed
// since, and the exchange have claimed only what its own reports opened.
func (d *dispatcher) hasMissed(queue int, out engine.ExchangeResult) bool {
	step := d.queues[queue].missedStep
	return out.Claimed[queue] > 0 && (step == nil || slices.ContainsFunc(out.Claims, func(c engine.Claim) bool {
		return d.queueOf(c) == queue && c.Position == *step
	}))
}

// prefetch is the claims of one stage beyond the slots.
//
// A slot that becomes free waits for the exchange under way and for the next one, which
// fills it: one to three milliseconds. That is nothing for work of hours, and a tenth of
// work of 20 ms. So as many tasks are claimed ahead as will be finished within two
// exchanges; none where the work takes longer.
type prefetch struct {
	prefetched []*attempt    // in the order in which they start
	workTime   time.Duration // how long Work takes: the longest lately; 0 for not known
}

// recordWorkTime updates workTime with the time of one attempt: up at once, down slowly.
func (f *prefetch) recordWorkTime(took time.Duration) {
	f.workTime = max(took, f.workTime-f.workTime/8, 1)
}

// maxPrefetchWait is how long a claim waits for a slot before it is released, because
// other processes may have free slots.
const maxPrefetchWait = 250 * time.Millisecond
