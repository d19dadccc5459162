package remote

import (
	"context"
	"slices"
	"time"

	"github.com/cuelight/cuelight/store/engine"
)

// maxShortClaims is how often in a row a stage is claimed from without getting what is ready.
const maxShortClaims = 12

// grantTimeout is that of a claim for a waiting worker.
const grantTimeout = 30 * time.Second

// grantReady claims for waiting workers, the longest waiting first, until no stage has both ready
// tasks and a waiting worker. It returns when to try again.
func (c *Coordinator) grantReady(ctx context.Context) (next time.Time) {
	var looked time.Time
	for ctx.Err() == nil {
		looked = time.Now()
		w, free, claimFrom := c.nextGrant()
		if w == nil {
			break
		}
		within, cancel := context.WithTimeout(ctx, grantTimeout)
		out, err := c.claimFor(within, w, nil, free, claimFrom)
		cancel()
		<-w.exchanging
		c.mu.Lock()
		if err == nil && len(out.Claims) > 0 {
			c.answer(w, waitResult{claims: out.Claims})
		} else {
			c.moveToEnd(w) // the database may know it as lost, and then it never gets any
		}
		c.mu.Unlock()
		if err != nil {
			c.o.OnError(err)
			return time.Now().Add(time.Second)
		}
	}
	return c.nextTime(looked)
}

// nextGrant chooses a waiting worker for which a stage may have ready tasks, and takes its turn
// of exchanging.
func (c *Coordinator) nextGrant() (w *worker, free []int, claimFrom []bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.waiting {
		claimFrom, any := c.claimable(w, w.free)
		if !any {
			continue
		}
		select {
		case w.exchanging <- struct{}{}:
			return w, slices.Clone(w.free), claimFrom
		default: // its own exchange claims
		}
	}
	return nil, nil, nil
}

// claimable returns the queues to claim from for a worker with free slots.
func (c *Coordinator) claimable(w *worker, free []int) (claimFrom []bool, any bool) {
	now := time.Now()
	mayClaim := c.mayClaim(w, free)
	claimFrom = make([]bool, len(mayClaim))
	if !c.nextDue.IsZero() && !now.Before(c.nextDue) {
		c.promote, c.nextDue = true, time.Time{}
		for i := range w.class.queues {
			w.class.queues[i].wake(engine.Position{}) // the promoted steps are also announced to the others
		}
	}
	for i := range w.class.queues {
		q := &w.class.queues[i]
		if !q.leftAt.IsZero() && !now.Before(q.leftAt) {
			q.leftAt = time.Time{}
			q.wake(engine.Position{})
		}
		claimFrom[i] = mayClaim[i] && q.ready && !now.Before(q.retryAt)
		any = any || claimFrom[i]
	}
	return claimFrom, any
}

// mayClaim says, by queue, whether a worker would claim from it if there were ready tasks.
func (c *Coordinator) mayClaim(w *worker, free []int) []bool {
	paused := c.pausedStages(w.host)
	may := make([]bool, len(free))
	free = c.withinLimits(w, free)
	for i := range may {
		stage, _ := c.graph.QueueStage(i)
		may[i] = free[i] > 0 && !paused[stage] && !w.draining && !w.class.lacks[stage]
	}
	return may
}

// pausedStages says, by stage, whether workers of a host claim nothing.
func (c *Coordinator) pausedStages(host string) []bool {
	paused := make([]bool, len(c.stages))
	for _, p := range c.pauses {
		for i, name := range c.stages {
			paused[i] = paused[i] || (p.Host == "" || p.Host == host) && (p.Stage == "" || p.Stage == name)
		}
	}
	return paused
}

// claimFor exchanges reports and free slots of a worker, whose turn of exchanging the caller has.
func (c *Coordinator) claimFor(
	ctx context.Context, w *worker, reports []engine.Report, free []int, claimFrom []bool,
) (engine.ExchangeResult, error) {
	c.mu.Lock()
	limited := c.withinLimits(w, free)
	c.mu.Unlock()
	in := engine.ExchangeRequest{
		Worker: w.id, Reports: reports, FreeSlots: limited, ClaimFrom: claimFrom, After: make([]engine.Position, len(free)),
		MaxRunningPerUser: c.o.MaxRunningPerUser,
	}
	wakes := make([]int, len(free))
	c.mu.Lock()
	for i, q := range w.class.queues {
		wakes[i], in.After[i] = q.wakes, q.position
	}
	in.PromoteDue, c.promote = c.promote, false
	c.mu.Unlock()
	out, err := c.engine.Exchange(ctx, in)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		w.uncertainSince = time.Now()
		return out, err
	}
	if slices.Contains(claimFrom, true) {
		c.nextDue = time.Time{}
		if out.NextDue >= 0 {
			c.nextDue = time.Now().Add(max(out.NextDue, 4*time.Millisecond))
		}
	}
	for i := range w.class.queues {
		w.class.queues[i].update(in, out, i, wakes[i])
	}
	before := len(w.claims)
	w.update(c.graph, reports, free, out)
	c.lockedLimitsOf(w.principal).claims += len(w.claims) - before
	if len(reports)+len(out.Claims) > 0 {
		signal(c.wrote)
	}
	return out, nil
}

// moveToEnd makes a waiting worker the last one. The lock is held.
func (c *Coordinator) moveToEnd(w *worker) {
	if i := slices.Index(c.waiting, w); i >= 0 {
		c.waiting = append(slices.Delete(c.waiting, i, i+1), w)
	}
}

// update records what an exchange found out about a queue. wakes is their count before it.
func (q *stageQueue) update(in engine.ExchangeRequest, out engine.ExchangeResult, queue, wakes int) {
	if !in.ClaimFrom[queue] {
		return
	}
	q.leftAt = time.Time{}
	if wait := out.Wait[queue]; wait >= 0 {
		q.leftAt = time.Now().Add(max(wait, 4*time.Millisecond))
	}
	if q.wakes == wakes {
		q.position = out.Next[queue]
	}
	if !out.MoreReady[queue] {
		q.ready = q.wakes != wakes
		q.short, q.retryAt = 0, time.Time{}
		return
	}
	q.ready = true
	if out.Claimed[queue] >= in.FreeSlots[queue] {
		q.short, q.retryAt = 0, time.Time{}
		return
	}
	if q.short++; q.short > maxShortClaims {
		q.ready, q.short, q.retryAt = false, 0, time.Time{}
		return
	}
	q.retryAt = time.Now().Add(time.Millisecond << min(q.short, 7))
}

// nextTime is when a stage may have ready tasks for a waiting worker without a notification. nextGrant has
// seen the times that had passed when it looked.
func (c *Coordinator) nextTime(looked time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := time.Now().Add(scanInterval)
	for _, w := range c.waiting {
		for i, may := range c.mayClaim(w, w.free) {
			for _, at := range []time.Time{c.nextDue, w.class.queues[i].leftAt, w.class.queues[i].retryAt} {
				if may && at.After(looked) && at.Before(next) {
					next = at
				}
			}
		}
	}
	return next
}
