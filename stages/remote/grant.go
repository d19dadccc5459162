package remote

import (
	"context"
	"slices"
	"time"

	"github.com/cuelight/cuelight/store/engine"
)

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
	if c.waitingSteps.Check(now) {
		w.class.markReady() // the promoted steps are also announced to the others
	}
	for i := range w.class.queues {
		isReady := w.class.queues[i].Check(now)
		claimFrom[i] = mayClaim[i] && isReady
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
	marks := make([]engine.Mark, len(free))
	c.mu.Lock()
	for i, q := range w.class.queues {
		marks[i], in.After[i] = q.Mark(), q.Position
	}
	in.PromoteDue, c.waitingSteps.Due = c.waitingSteps.Due, false
	c.mu.Unlock()
	out, err := c.engine.Exchange(ctx, in)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		w.uncertainSince = time.Now()
		c.waitingSteps.Due = c.waitingSteps.Due || in.PromoteDue
		return out, err
	}
	c.waitingSteps.Update(in.PromoteDue, slices.Contains(claimFrom, true), out.NextDue)
	for i := range w.class.queues {
		w.class.queues[i].Update(i, marks[i], in, out)
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

// nextTime is when a stage may have ready tasks for a waiting worker without a notification. nextGrant has
// seen the times that had passed when it looked.
func (c *Coordinator) nextTime(looked time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := time.Now().Add(scanInterval)
	for _, w := range c.waiting {
		for i, may := range c.mayClaim(w, w.free) {
			for _, at := range []time.Time{c.waitingSteps.Next, w.class.queues[i].Next(next)} {
				if may && at.After(looked) && at.Before(next) {
					next = at
				}
			}
		}
	}
	return next
}
