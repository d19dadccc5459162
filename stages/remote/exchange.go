package remote

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/store/engine"
)

// maxWait is the longest time for which a request waits.
const maxWait = 30 * time.Second

// exchange applies reports and claims. Without anything to tell, it waits.
func (c *Coordinator) exchange(ctx context.Context, r request, in exchangeRequest) (out exchangeResponse, err error) {
	if in.Wait < 0 {
		return out, problem.New(problem.Invalid, "wait_s must not be negative")
	}
	w, err := c.findWorker(ctx, in.Worker, r.principal)
	if err != nil {
		return out, err
	}
	free, err := c.freeSlots(in.FreeSlots)
	if err != nil {
		return out, err
	}
	out.Claims = []claimBody{}
	if err := c.exchangeNow(ctx, w, in, free, &out); err != nil {
		return out, err
	}
	if len(in.Reports) == 0 && len(out.Claims) == 0 && in.Wait > 0 {
		claims, err := c.waitForClaims(r.Context(), w, min(seconds(in.Wait), maxWait), c.o.IsDirect(r.Request))
		if err != nil {
			return out, err
		}
		out.Claims = c.claimBodies(claims)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w.controls = c.controlsOf(w)
	out.Control = w.controls
	return out, nil
}

// freeSlots returns the free slots of a request by queue, or nil if it names none. Slots of stages that remote workers may
// not do are an error, because the worker would wait for ever.
func (c *Coordinator) freeSlots(named map[string]int) ([]int, error) {
	if named == nil {
		return nil, nil
	}
	free := make([]int, c.graph.Queues())
	for name, n := range named {
		stage, ok := c.graph.Stage(name)
		if !ok {
			return nil, unknownStage(name)
		}
		if n > 0 && !c.allows[stage] {
			return nil, problem.New(problem.Invalid, "remote workers do not work on stage %s; allowed: %s",
				name, strings.Join(c.o.Stages, ", "))
		}
		free[c.graph.WorkQueue(stage)] = min(max(n, 0), maxSlots)
	}
	return free, nil
}

// exchangeNow applies reports, and claims from stages that may have ready tasks. If free is nil, it
// claims nothing, and the slots of the worker's last exchange remain valid.
func (c *Coordinator) exchangeNow(ctx context.Context, w *worker, in exchangeRequest, free []int, out *exchangeResponse) error {
	reports, err := c.reports(ctx, w, in.Reports, out)
	if err == nil {
		err = c.readPauses(ctx)
	}
	if err != nil {
		return err
	}
	defer signal(c.grantNow) // Run has passed over the worker meanwhile, and more may be ready
	return c.withTurn(ctx, w, func() error {
		if free == nil {
			free = make([]int, c.graph.Queues())
			defer c.keepSlots(w)()
		}
		unlisted, err := c.unlistedClaims(ctx, w, in)
		if err != nil {
			return err
		}
		for _, claim := range unlisted {
			queue := c.graph.WorkQueue(claim.Stage)
			free[queue] = max(free[queue]-1, 0)
		}
		out.Claims = c.claimBodies(unlisted)
		free, claimFrom, any := c.recordSlots(w, in, free)
		if !any && len(reports) == 0 {
			return nil
		}
		result, err := c.claimFor(ctx, w, reports, free, claimFrom)
		if err != nil {
			return err
		}
		c.recordAnswers(w, reports, result, out)
		return nil
	})
}

// recordSlots records the free slots of a request, and returns the queues to claim from. If a later
// request has arrived before, it returns the slots of that one.
func (c *Coordinator) recordSlots(w *worker, in exchangeRequest, free []int) (valid []int, claimFrom []bool, any bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !in.isOvertaken(w) {
		w.free = free
	}
	w.sequence = max(w.sequence, in.Sequence)
	if c.closing {
		return w.free, make([]bool, len(free)), false
	}
	claimFrom, any = c.claimable(w, w.free)
	return slices.Clone(w.free), claimFrom, any
}

// isOvertaken reports whether a later request has arrived before. The Coordinator's lock is held.
func (in exchangeRequest) isOvertaken(w *worker) bool {
	return in.Sequence != 0 && in.Sequence < w.sequence
}

// keepSlots returns a function that sets the free slots of a worker to those of now.
func (c *Coordinator) keepSlots(w *worker) (restore func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	free := w.free
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		w.free = free
	}
}

// waitForClaims waits until the coordinator has claims for the worker, or its controls change.
func (c *Coordinator) waitForClaims(ctx context.Context, w *worker, wait time.Duration, direct bool) ([]engine.Claim, error) {
	result := make(chan waitResult, 1)
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return nil, errClosing
	}
	c.answer(w, waitResult{}) // an older request of the worker
	w.wait = result
	c.waiting = append(c.waiting, w)
	c.updateControls(w, nil)
	c.mu.Unlock()
	signal(c.grantNow)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case r := <-result:
		return r.claims, r.err
	case <-timer.C:
	case <-ctx.Done():
	}
	c.mu.Lock()
	if w.wait == result {
		c.answer(w, waitResult{})
	}
	isEnd := ctx.Err() != nil && !c.closing && w.wait == nil
	c.mu.Unlock()
	r := <-result // it has been answered
	if isEnd && direct {
		c.disconnect(w)
	}
	return r.claims, r.err
}

// disconnect records that the connection of a worker has ended: it has store.DisconnectGrace to
// come back.
func (c *Coordinator) disconnect(w *worker) {
	c.mu.Lock()
	w.disconnected = true
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), renewTimeout)
	defer cancel()
	if err := c.engine.DisconnectWorker(ctx, w.id); err != nil {
		c.o.OnError(err)
	}
}

var _ http.Handler = (*Coordinator)(nil)
