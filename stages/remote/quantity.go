package remote

import (
	"context"
	"slices"
	"time"

	"github.com/cuelight/cuelight/store"
)

// maxSlots is how many claims of one queue a worker may hold.
const maxSlots = 256

// withinLimits returns as many of the free slots of a worker as it may fill: its key is not trusted with quantities,
// and one key must not take what others could do. The lock is held.
func (c *Coordinator) withinLimits(w *worker, free []int) []int {
	limited, rest := slices.Repeat([]int{maxSlots}, len(free)), max(c.o.MaxClaims-c.lockedLimitsOf(w.principal).claims, 0)
	for _, claim := range w.claims {
		limited[c.graph.WorkQueue(claim.Stage)]--
	}
	for i := range limited {
		limited[i] = min(max(limited[i], 0), free[i], rest)
		rest -= limited[i]
	}
	return limited
}

// countClaims counts the claims of each principal's workers. Those of a worker that is silent for longer than its lease
// do not count, because others may have them.
func (c *Coordinator) countClaims() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.limits {
		l.claims = 0
	}
	for _, w := range c.workers {
		if w.wait != nil || time.Since(w.lastRequest) <= w.lease {
			c.lockedLimitsOf(w.principal).claims += len(w.claims)
		}
	}
}

// endUnused lets the next sweep expire the workers that registered and sent nothing more, whatever their leases: they
// hold nothing. One that has another coordinator is known there.
func (c *Coordinator) endUnused(ctx context.Context, after time.Duration) error {
	c.mu.Lock()
	var unused []store.ID
	for _, w := range c.workers {
		if !w.isUsed && time.Since(w.since) > after {
			unused = append(unused, w.id)
			c.removeWorker(w)
		}
	}
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	return c.engine.DisconnectSilent(ctx, unused, after/2)
}
