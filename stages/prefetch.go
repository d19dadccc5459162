package stages

import (
	"context"
	"errors"
	"slices"
	"time"
)

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

// maxPrefetchWait is how long a claim waits for a slot before it is released, because
// other processes may have free slots.
const maxPrefetchWait = 250 * time.Millisecond

// errNoSlot ends a prefetched claim that waited for so long.
var errNoSlot = errors.New("no slot came free in time")

// freeSlots is how many more tasks of a stage to claim.
func (d *dispatcher) freeSlots(stage int) int {
	q := &d.queues[stage]
	slots, held := q.stage.Workers, q.busy+len(q.prefetched)
	switch {
	case q.paused:
		return 0
	case q.suspension.active():
		return min(q.suspension.slots(held), slots)
	}
	ahead := 0
	if q.workTime > 0 && !d.hasQueueAfter(stage) {
		// Claims that will not start in time would only be released.
		within := min(2*d.exchangeTime, maxPrefetchWait/2)
		limit := slots
		if len(q.stage.Needs) > 0 {
			limit = 2 * slots // else one slow exchange leaves a queue here that stays
		}
		ahead = int(min(within*time.Duration(slots)/q.workTime, time.Duration(limit)))
	}
	return max(slots+ahead-held, 0)
}

// hasQueueAfter reports whether tasks wait for a later stage, if this one needs none.
// Prefetching here would make that queue longer, and a task in a queue costs twice as
// much as one that continues at once. A stage that needs others prefetches all the same:
// otherwise its tasks would wait in a queue of its own.
func (d *dispatcher) hasQueueAfter(stage int) bool {
	if len(d.queues[stage].stage.Needs) > 0 {
		return false
	}
	for i := range d.queues {
		if i != stage && d.queues[i].due && slices.Contains(d.p.Pipeline.graph.Upstream(i), stage) {
			return true
		}
	}
	return false
}

// learn updates workTime with the time of one attempt: up at once, down slowly.
func (f *prefetch) learn(took time.Duration) {
	f.workTime = max(took, f.workTime-f.workTime/8, 1)
}

// refill starts prefetched claims while slots are free.
func (d *dispatcher) refill(q *stageQueue) {
	for q.busy < q.stage.Workers && len(q.prefetched) > 0 {
		a := q.prefetched[0]
		q.prefetched = q.prefetched[1:]
		if a.ctx.Err() != nil {
			d.releaseClaim(a, context.Cause(a.ctx))
			continue
		}
		d.start(a)
	}
}

// releaseOverdue releases prefetched claims that were cancelled or waited too long.
func (d *dispatcher) releaseOverdue(q *stageQueue, now time.Time) {
	q.prefetched = slices.DeleteFunc(q.prefetched, func(a *attempt) bool {
		switch {
		case a.ctx.Err() != nil:
			d.releaseClaim(a, context.Cause(a.ctx))
		case now.Sub(a.claimed) >= maxPrefetchWait:
			d.releaseClaim(a, errNoSlot)
			q.learn(maxPrefetchWait * time.Duration(q.stage.Workers))
		default:
			return false
		}
		return true
	})
}

// releasePrefetched releases all prefetched claims of a stage.
func (d *dispatcher) releasePrefetched(q *stageQueue, why error) {
	for _, a := range q.prefetched {
		d.releaseClaim(a, why)
	}
	q.prefetched = nil
}

// releaseClaim ends an attempt that has not started.
func (d *dispatcher) releaseClaim(a *attempt, why error) {
	a.stopTimers()
	d.report(a.conclude(nil, why, why))
}
