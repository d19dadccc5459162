package stages

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cuelight/cuelight/store/engine"
)

// ahead is what a process has claimed of one stage beyond its slots.
//
// A slot that becomes free waits for the turn under way, and then for the one
// that fills it: a millisecond or three, which is nothing for work that takes
// hours, and a tenth of work that takes 20 ms. So as many tasks are claimed ahead
// as are going to be finished within two turns. That is none where the work takes
// longer than all slots together need for one.
type prefetch struct {
	waiting []*attempt    // claimed, in the order in which they start
	took    time.Duration // how long the work takes: the longest of late; 0 for not known
}

// waitsAtMost is how long a claim waits for a slot before it is given back: work
// has begun to take longer, and others may have slots.
const maxPrefetchWait = 250 * time.Millisecond

// errCrowded ends a claim that waited for so long.
var errNoSlot = errors.New("no slot came free in time")

// free is how many more tasks of a stage to claim.
func (d *dispatcher) free(stage int) int {
	if d.paused[stage] {
		return 0
	}
	h, slots := &d.prefetched[stage], d.stages[stage].Workers
	if s := &d.suspended[stage]; s.active() {
		return min(s.slots(d.busy[stage]+len(h.waiting)), slots)
	}
	margin := 0
	if h.took > 0 && !d.hasQueueAfter(stage) {
		// What is not going to start in time anyway would only be given back.
		within := min(2*d.exchangeTime, maxPrefetchWait/2)
		most := slots
		if len(d.stages[stage].Needs) > 0 {
			most = 2 * slots // else a turn in which this stage is a little slower leaves a queue, which stays
		}
		margin = int(min(within*time.Duration(slots)/h.took, time.Duration(most)))
	}
	return max(slots+margin-d.busy[stage]-len(h.waiting), 0)
}

// hasQueueAfter says that tasks wait for a stage that comes after this one, which needs none.
// Claiming more ahead here would only make that queue longer, and what goes through a
// queue costs twice as much as what goes on at once. A stage that needs others claims
// ahead even so: what found no room there would wait in a queue of its own.
func (d *dispatcher) hasQueueAfter(stage int) bool {
	if len(d.stages[stage].Needs) > 0 {
		return false
	}
	for i := range d.queues {
		if i != stage && d.queues[i].due && slices.Contains(d.Pipeline.graph.Upstream(i), stage) {
			return true
		}
	}
	return false
}

// learn takes in how long the work of one attempt took. It believes in longer
// ones at once, and forgets them slowly.
func (h *prefetch) learn(took time.Duration) {
	h.took = max(took, h.took-h.took/8, 1)
}

// accept sets a claim to work, now or when a slot is free. It was woken for where
// nothing but the news of it was waited for.
func (d *dispatcher) accept(life context.Context, c engine.Claim, woken bool) {
	a := newAttempt(life, c, &d.stages[c.Stage], d.overdue)
	a.wokenByNotify = woken
	d.live.add(a)
	if d.busy[c.Stage] < a.stage.Workers {
		d.start(a)
		return
	}
	h := &d.prefetched[c.Stage]
	at, _ := slices.BinarySearchFunc(h.waiting, c, func(b *attempt, c engine.Claim) int { return b.claim.Compare(c) })
	h.waiting = slices.Insert(h.waiting, at, a)
}

// refill starts what waits, while slots are free.
func (d *dispatcher) refill(stage int) {
	h := &d.prefetched[stage]
	for d.busy[stage] < d.stages[stage].Workers && len(h.waiting) > 0 {
		a := h.waiting[0]
		h.waiting = h.waiting[1:]
		if a.ctx.Err() != nil {
			d.releasePrefetched(a, context.Cause(a.ctx))
			continue
		}
		d.start(a)
	}
}

// thin gives back what was taken away, or has waited for too long.
func (d *dispatcher) releaseOverdue(now time.Time) {
	for i := range d.prefetched {
		h := &d.prefetched[i]
		var left []*attempt
		for _, a := range h.waiting {
			switch {
			case a.ctx.Err() != nil:
				d.releasePrefetched(a, context.Cause(a.ctx))
			case now.Sub(a.claimed) >= maxPrefetchWait:
				d.releasePrefetched(a, errNoSlot)
				h.learn(maxPrefetchWait * time.Duration(d.stages[i].Workers))
			default:
				left = append(left, a)
			}
		}
		h.waiting = left
	}
}

// withdraw ends an attempt that has not started.
func (d *dispatcher) releasePrefetched(a *attempt, why error) {
	a.stopTimers()
	f := a.conclude(nil, why, why)
	if f.dropped {
		d.live.remove(a.claim.Token)
		d.observe(f, ClaimRevoked)
		return
	}
	d.reports = append(d.reports, f)
}

// withdrawAll gives back whatever has not started.
func (d *dispatcher) releaseAllPrefetched(why error) {
	for i := range d.prefetched {
		d.releaseStagePrefetched(i, why)
	}
}

// withdrawFrom gives back what has not started of one stage.
func (d *dispatcher) releaseStagePrefetched(stage int, why error) {
	for _, a := range d.prefetched[stage].waiting {
		d.releasePrefetched(a, why)
	}
	d.prefetched[stage].waiting = nil
}
