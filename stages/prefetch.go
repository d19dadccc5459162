package stages

import (
	"context"
	"slices"
	"time"
)

// freeSlots is how many more claims of a queue to make.
func (d *dispatcher) freeSlots(queue int) int {
	q := &d.queues[queue]
	slots, held := q.slots, q.busy+len(q.prefetched)
	switch {
	case q.paused:
		return 0
	case q.suspension.active():
		return d.suspendedSlots(queue)
	}
	ahead := 0
	if q.workTime > 0 && !d.hasQueueAfter(q) {
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
func (d *dispatcher) hasQueueAfter(q *stageQueue) bool {
	if len(q.stage.Needs) > 0 {
		return false
	}
	for i := range d.queues {
		other := &d.queues[i]
		if other.number != q.number && other.Due && slices.Contains(d.p.Pipeline.graph.Upstream(other.number), q.number) {
			return true
		}
	}
	return false
}

// releaseOverdue releases prefetched claims that were cancelled or waited too long.
func (d *dispatcher) releaseOverdue(q *stageQueue, now time.Time) {
	q.prefetched = slices.DeleteFunc(q.prefetched, func(a *attempt) bool {
		switch {
		case a.ctx.Err() != nil:
			d.releaseClaim(a, context.Cause(a.ctx))
		case now.Sub(a.claimed) >= maxPrefetchWait:
			d.releaseClaim(a, errNoSlot)
			q.recordWorkTime(maxPrefetchWait * time.Duration(q.slots))
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
	d.report(a.conclude(nil, nil, why, why))
}

// busySlots is how many slots are in use.
func (d *dispatcher) busySlots() (n int) {
	for i := range d.queues {
		n += d.queues[i].busy
	}
	return n
}
