package stages

import (
	"math/rand/v2"
	"time"

	"github.com/cuelight/cuelight/store"
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

	due         bool      // tasks may be ready
	woken       bool      // due only because of a notification: nothing was ready before
	missed      bool      // due only because of the sweep, or because no notifications arrive
	notBefore   time.Time // after a miss: when to claim again
	shortClaims int       // in a row: claims that got less than was ready

	promote         bool      // a time that tasks wait for has come
	nextDue         time.Time // the next such time; zero for none
	promoteFailures int       // how often in a row due tasks could not be promoted
	wakeExpectedAt  time.Time // when a task that the sweep found should have been announced; zero for none

	after     engine.Position // where to go on claiming, because more are ready than slots; zero: at the start
	restartAt time.Time       // when to claim from the start again all the same
	aged      []store.ID      // tasks to claim first, from the latest sweep

	prefetch
	suspension
	postponed postponed
	paused    bool
}

// wake handles a notification; free says that there are slots for its tasks.
func (q *stageQueue) wake(free bool) {
	q.woken = free && (q.woken || !q.due)
	q.due, q.shortClaims, q.notBefore = true, 0, time.Time{}
	q.wakeExpectedAt, q.missed = time.Time{}, false
	q.after = engine.Position{}
}

// checkTimes handles what is due at now.
func (q *stageQueue) checkTimes(now time.Time) {
	if !q.nextDue.IsZero() && !now.Before(q.nextDue) {
		q.due, q.promote, q.nextDue, q.notBefore = true, true, time.Time{}, time.Time{}
	}
	if !q.wakeExpectedAt.IsZero() && !now.Before(q.wakeExpectedAt) {
		q.missed = q.missed || !q.due
		q.due, q.wakeExpectedAt = true, time.Time{}
	}
}

// earliest returns the time when the next thing is due, if that is before t.
func (q *stageQueue) earliest(t time.Time, free bool) time.Time {
	for _, a := range q.prefetched {
		if at := a.claimed.Add(maxPrefetchWait); at.Before(t) {
			t = at
		}
	}
	for _, at := range []time.Time{q.nextDue, q.wakeExpectedAt} {
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

// restartShare is how many times as long as an exchange that claims from the start the
// following ones go on after a position.
const restartShare = 20

// updateQueue decides whether and when to claim from a queue again.
//
// A claim that got fewer tasks than it had slots for, although more are ready, met rows
// that another process had locked, to claim sibling stages of the same tasks. No
// notification will announce them, so the stage is claimed from again, after a
// millisecond or two at first.
//
// Where more tasks are ready than there are slots, claims go on after the last position,
// until one falls short or a notification arrives: a claim from the start reads all index
// entries of tasks claimed since the last vacuum. It may still miss tasks whose rows were
// locked, so claims restart after a while.
func (d *dispatcher) updateQueue(queue int, r engine.ExchangeRequest, out engine.ExchangeResult, took time.Duration) {
	q := &d.queues[queue]
	q.woken = false
	if out.NewlyReady[queue] {
		q.after = engine.Position{}
	}
	q.aged = q.aged[len(r.Aged[queue]):]
	if !r.ClaimFrom[queue] {
		q.due = q.due || out.MoreReady[queue]
		if out.NewlyReady[queue] {
			q.shortClaims, q.notBefore = 0, time.Time{}
		}
		return
	}
	fromStart := r.After[queue] == engine.Position{}
	gotAll := out.Granted[queue] >= out.Requested[queue]
	if fromStart {
		q.scheduleNext(r.PromoteDue[queue], out.NextDue[queue])
		q.restartAt = time.Now().Add(restartShare * took)
	}
	q.due = out.MoreReady[queue] || !fromStart
	if q.missed && out.Granted[queue] > 0 {
		d.sweeps.recordMiss(d.p.SweepInterval)
		if d.p.MaxRunningPerUser == 0 || len(q.stage.Needs) > 0 { // otherwise the limit may have kept them waiting
			d.p.observe(Event{Kind: WakeMissed, Stage: q.stage.Name, Count: out.Granted[queue]})
		}
	}
	q.missed = q.missed && q.due
	q.after = engine.Position{}
	switch {
	case !q.due || !gotAll || out.NewlyReady[queue]:
	case out.Requested[queue] == 0:
		q.after = r.After[queue]
	default:
		q.after = out.LastPosition[queue]
	}
	if !q.due || gotAll || !fromStart {
		q.shortClaims, q.notBefore = 0, time.Time{}
		return
	}
	q.delayAfterShortClaim()
}

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

// scheduleNext sets the time when the next task is due. Where tasks are due already and
// could not be promoted, it tries again, less and less often.
func (q *stageQueue) scheduleNext(tried bool, next time.Duration) {
	q.promote, q.nextDue = false, time.Time{}
	if next < 0 {
		q.promoteFailures = 0
		return
	}
	if next > 0 || !tried {
		q.promoteFailures = 0
	} else {
		q.promoteFailures = min(q.promoteFailures+1, 8)
		next = 4 * time.Millisecond << q.promoteFailures
	}
	q.nextDue = time.Now().Add(next)
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
