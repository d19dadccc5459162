package remote

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

const (
	// renewInterval is the time between two statements that renew the leases of all workers.
	renewInterval = 2 * time.Second
	// idleRenewals: without anything urgent, one in so many is sent.
	idleRenewals = 3
	// aliveWithin is how long a worker with claims counts as alive after a request.
	aliveWithin = 5 * time.Second
	// forgetAfter is how long a worker that is not heard of is remembered, or its lease if that is longer.
	forgetAfter = 10 * time.Minute
	// unusedAfter is how long a worker is kept that registered and sent nothing more.
	unusedAfter = time.Minute
	// renewTimeout is that of one statement. A worker whose lease was not renewed for
	// maxUnrenewed gets an error instead of an answer to its heartbeat.
	renewTimeout = 3 * time.Second
	maxUnrenewed = 10 * time.Second
)

// runRenewal renews the leases of the workers and checks their claims, every renewInterval and
// when something was changed.
func (c *Coordinator) runRenewal(ctx context.Context) {
	tick := time.NewTicker(renewInterval)
	defer tick.Stop()
	failed := false
	for n := 0; ; n++ {
		now := false
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-c.checkNow:
			now = true
		}
		endErr := errors.Join(c.endUnused(ctx, unusedAfter), c.endStalled(ctx))
		c.countClaims()
		in, urgent := c.heartbeats()
		if len(in.Workers) == 0 {
			c.skipRenewal()
		}
		if !now && endErr == nil && (len(in.Workers) == 0 || !urgent && n%idleRenewals != 0) {
			continue
		}
		within, cancel := context.WithTimeout(ctx, renewTimeout)
		err := errors.Join(endErr, c.renew(within, in))
		cancel()
		if err != nil {
			c.keepProgress(in)
		}
		if (err != nil || failed) && ctx.Err() == nil {
			c.o.OnError(err)
		}
		failed = err != nil
	}
}

// isRenewed reports whether the renewals have the worker, which tell when it is lost. The Coordinator's lock
// is held.
func (w *worker) isRenewed() bool {
	waits := w.wait != nil && len(w.claims) == 0
	return !w.disconnected && (waits || time.Since(w.lastRequest) <= aliveWithin)
}

// renewReturned renews the lease of a worker that the renewals do not have, because it was not heard of. It
// returns store.ErrWorkerUnknown if it was lost meanwhile.
func (c *Coordinator) renewReturned(ctx context.Context, w *worker) error {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()
	sent := time.Now()
	out, err := c.engine.HeartbeatRemote(ctx, engine.RemoteHeartbeat{Workers: []engine.RemoteWorker{{Worker: w.id}}})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, isRegistered := out.Draining[w.id]; isRegistered {
		w.renewed = sent
		return nil
	}
	c.endWorker(w)
	return store.ErrWorkerUnknown
}

// heartbeats lists the workers that are alive, and their claims. It is urgent if there are claims,
// or if attempts have ended.
func (c *Coordinator) heartbeats() (in engine.RemoteHeartbeat, urgent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.workers {
		if w.wait == nil && time.Since(w.lastRequest) > max(forgetAfter, w.lease) {
			c.removeWorker(w) // if it comes back, it is read from the database
			continue
		}
		if !w.isRenewed() {
			continue
		}
		r := engine.RemoteWorker{Worker: w.id, Progressed: w.progressed}
		if w.wait == nil {
			r.Silence = time.Since(w.lastRequest)
		}
		if w.started || w.progressed != nil {
			urgent = true
			r.Running = slices.Clone(w.running)
			if r.Running == nil {
				r.Running = []store.Running{}
			}
		}
		w.progressed, w.started = nil, false
		in.Workers = append(in.Workers, r)
		for _, claim := range w.claims {
			in.Claims = append(in.Claims, claim)
		}
	}
	return in, urgent || len(in.Claims) > 0
}

// skipRenewal records that there was no lease to renew: the database has not failed to answer.
func (c *Coordinator) skipRenewal() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renewed = time.Now()
}

// keepProgress keeps what a renewal that failed would have stored for the next one.
func (c *Coordinator) keepProgress(in engine.RemoteHeartbeat) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range in.Workers {
		if w := c.workers[r.Worker]; w != nil {
			w.started = w.started || r.Running != nil
			if w.progressed == nil {
				w.progressed = r.Progressed
			}
		}
	}
}

func (c *Coordinator) renew(ctx context.Context, in engine.RemoteHeartbeat) error {
	sent := time.Now()
	out, err := c.engine.HeartbeatRemote(ctx, in)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renewed, c.pauses, c.pausesKnown = sent, out.Pauses, true
	if slices.ContainsFunc(in.Workers, func(w engine.RemoteWorker) bool { return w.Progressed != nil }) {
		signal(c.wrote)
	}
	cancelled := make(map[store.ID]bool)
	for _, l := range out.LostClaims {
		cancelled[l.Token] = l.Cancelled
	}
	for _, r := range in.Workers {
		w := c.workers[r.Worker]
		if w == nil {
			continue
		}
		draining, known := out.Draining[w.id]
		if !known {
			c.endWorker(w)
			continue
		}
		w.draining, w.renewed = draining, sent
		c.updateControls(w, cancelled)
	}
	signal(c.grantNow) // a pause may have ended
	return nil
}

// readPauses reads, once, which stages are paused. Later the renewal does.
func (c *Coordinator) readPauses(ctx context.Context) error {
	c.mu.Lock()
	known := c.pausesKnown
	c.mu.Unlock()
	if known {
		return nil
	}
	pauses, err := c.store.Pauses(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.pausesKnown {
		c.pauses, c.pausesKnown = pauses, true
	}
	return nil
}

// updateControls answers the waiting request of a worker whose claims or controls changed. The
// lock is held.
func (c *Coordinator) updateControls(w *worker, cancelled map[store.ID]bool) {
	for token := range w.claims {
		if isCancelled, lost := cancelled[token]; lost {
			delete(w.claims, token)
			w.rememberLost(token, isCancelled)
			w.hasLost = true
			c.checks.forget(token)
		}
	}
	if !c.controlsOf(w).equal(w.controls) {
		c.answer(w, waitResult{})
	}
}

// controlsOf returns what operators want of a worker. The lock is held.
func (c *Coordinator) controlsOf(w *worker) controlsBody {
	body := controlsBody{Paused: []string{}, Drain: w.draining, ClaimsLost: w.hasLost}
	for i, paused := range c.pausedStages(w.host) {
		if paused {
			body.Paused = append(body.Paused, c.stages[i])
		}
	}
	return body
}

// notifyInterval is the shortest time between two notifications of the readers of events. Commits
// with a notification wait for each other.
const notifyInterval = 200 * time.Millisecond

// notifyEvents notifies the readers of events that there are new ones.
func (c *Coordinator) notifyEvents(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wrote:
		}
		within, cancel := context.WithTimeout(ctx, renewTimeout)
		_ = c.store.NotifyEvents(within) // readers also poll
		cancel()
		if ctxsleep.For(ctx, notifyInterval) != nil {
			return
		}
	}
}
