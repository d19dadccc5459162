package stages

import (
	"math/rand/v2"
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

	due         bool             // steps may be ready
	woken       bool             // due only because of a notification: nothing was ready before
	missed      bool             // due only because of the sweep, or because no notifications arrive
	missedStep  *engine.Position // what the sweep found, if it is because of that
	notBefore   time.Time        // after a miss: when to claim again
	shortClaims int              // in a row: claims that got less than was ready

	// position is where to claim: all ready steps before it are claimed, or were announced to this process since. Zero: the start.
	position       engine.Position
	leftAt         time.Time        // when a step is left to this process that others are preferred for; zero for none
	wakeExpectedAt time.Time        // when a step that the sweep found should have been announced; zero for none
	found          *engine.Position // that step

	prefetch
	suspension
	postponed postponed
	paused    bool
}

// wake handles notifications of steps, or of any step; free says that there are slots for them.
func (q *stageQueue) wake(free bool, payloads []string) {
	q.woken = free && (q.woken || !q.due)
	q.due, q.shortClaims, q.notBefore = true, 0, time.Time{}
	q.wakeExpectedAt, q.missed = time.Time{}, false
	for _, text := range payloads {
		if step, ok := engine.ParseStep(text); ok {
			q.open(step)
		} else if text != engine.Due {
			q.position = engine.Position{}
		}
	}
}

// open handles a step that may be ready now: the next claim begins before it.
func (q *stageQueue) open(step engine.Position) {
	q.due = true
	if before := step.Before(); before.Compare(q.position) < 0 {
		q.position = before
	}
}

// restart makes the next claim begin at the start.
func (q *stageQueue) restart() { q.due, q.position = true, engine.Position{} }

// checkTimes handles what is due at now.
func (q *stageQueue) checkTimes(now time.Time) {
	if !q.leftAt.IsZero() && !now.Before(q.leftAt) {
		q.restart()
		q.leftAt, q.notBefore = time.Time{}, time.Time{}
	}
	if !q.wakeExpectedAt.IsZero() && !now.Before(q.wakeExpectedAt) {
		if !q.missed && !q.due {
			q.missed, q.missedStep = true, q.found
		}
		q.open(*q.found)
		q.wakeExpectedAt = time.Time{}
	}
}

// earliest returns the time when the next thing is due, if that is before t.
func (q *stageQueue) earliest(t time.Time, free bool) time.Time {
	for _, a := range q.prefetched {
		if at := a.claimed.Add(maxPrefetchWait); at.Before(t) {
			t = at
		}
	}
	for _, at := range []time.Time{q.leftAt, q.wakeExpectedAt} {
		if !at.IsZero() && at.Before(t) {
			t = at
		}
	}
	if q.due && free && q.notBefore.Before(t) {
		t = q.notBefore
	}
	if until := q.suspension.until; q.due && until.After(time.Now()) && until.Before(t) {
		t = until
	}
	return t
}

// maxShortClaims is how often in a row a stage is claimed from without getting what is ready.
// After that the sweep finds it.
const maxShortClaims = 12

// updateQueue decides whether and when to claim from a queue again.
//
// A claim that got fewer steps than it had slots for, although more are ready, met rows
// that another process had locked, to claim sibling stages of the same tasks. No
// notification will announce them, so the queue is claimed from again, after a
// millisecond or two at first.
//
// A claim goes on where the one before has ended, because one from the start reads all index entries of steps claimed since the
// last vacuum. What becomes ready before is announced, so without notifications claims begin at the start.
func (d *dispatcher) updateQueue(queue int, r engine.ExchangeRequest, out engine.ExchangeResult) {
	q := &d.queues[queue]
	if !r.ClaimFrom[queue] {
		return
	}
	q.woken, q.leftAt = false, time.Time{}
	if wait := out.Wait[queue]; wait >= 0 {
		q.leftAt = time.Now().Add(max(wait, minWait))
	}
	q.position = engine.Position{}
	if d.p.isListening() {
		q.position = out.Next[queue]
	}
	q.due = out.MoreReady[queue]
	if q.missed && d.hasMissed(queue, out) {
		d.sweeps.recordMiss(d.p.SweepInterval)
		if d.p.MaxRunningPerUser == 0 || len(q.stage.Needs) > 0 { // otherwise the limit may have kept them waiting
			d.p.observe(Event{Kind: WakeMissed, Stage: q.stage.Name, Count: out.Claimed[queue]})
		}
	}
	q.missed = q.missed && q.due
	if !q.due || out.Claimed[queue] >= r.FreeSlots[queue] {
		q.shortClaims, q.notBefore = 0, time.Time{}
		return
	}
	q.delayAfterShortClaim()
}

// hasMissed reports whether an exchange claimed what no notification had announced. A step that the sweep found may have been claimed
// since, and the exchange have claimed only what its own reports opened.
func (d *dispatcher) hasMissed(queue int, out engine.ExchangeResult) bool {
	step := d.queues[queue].missedStep
	return out.Claimed[queue] > 0 && (step == nil || slices.ContainsFunc(out.Claims, func(c engine.Claim) bool {
		return d.queueOf(c) == queue && c.Position == *step
	}))
}

// minWait is the shortest wait for a time that the database has named.
const minWait = 4 * time.Millisecond

// delayAfterShortClaim delays the next claim after one that fell short.
func (q *stageQueue) delayAfterShortClaim() {
	q.shortClaims++
	if q.shortClaims > maxShortClaims {
		q.due, q.shortClaims = false, 0
		return
	}
	delay := time.Millisecond << min(q.shortClaims-1, 6)
	q.notBefore = time.Now().Add(delay + time.Duration(rand.Int64N(int64(delay))))
}

// dueSteps is when a step that waits for a time is due, of any queue.
type dueSteps struct {
	next     time.Time // zero for none
	promote  bool      // it has come
	failures int       // how often in a row due steps could not be promoted
}

// check handles what is due at now.
func (s *dueSteps) check(now time.Time) {
	if !s.next.IsZero() && !now.Before(s.next) {
		s.promote, s.next = true, time.Time{}
	}
}

// add adds a time.
func (s *dueSteps) add(at time.Time) {
	if s.next.IsZero() || at.Before(s.next) {
		s.next = at
	}
}

// update sets the next time as the database knows it. Where steps are due already and could not be promoted, it tries again,
// less and less often.
func (s *dueSteps) update(tried bool, next time.Duration) {
	s.promote, s.next = false, time.Time{}
	if next != 0 || !tried {
		s.failures = 0
	} else {
		s.failures = min(s.failures+1, 8)
		next = minWait << s.failures
	}
	if next >= 0 {
		s.next = time.Now().Add(next)
	}
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
