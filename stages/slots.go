package stages

import (
	"context"
	"slices"
	"time"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// queueOf returns the queue of a claim.
func (d *dispatcher) queueOf(c engine.Claim) int {
	return d.p.Pipeline.graph.Queue(c.Stage, c.Part > 0)
}

// accept starts an attempt on a claim, or prefetches the claim until a slot is free. It releases one that was on its way
// when this process stopped claiming from the queue: a coordinator grants claims at any time.
// woken says that only the notification of its task was waited for.
func (d *dispatcher) accept(base context.Context, c engine.Claim, woken bool) {
	q := &d.queues[d.queueOf(c)]
	reason := d.releaseReason(d.queueOf(c))
	a := newAttempt(base, c, q.stage, d.p.overdue)
	a.woken = woken
	d.p.attempts.add(a)
	if reason != nil {
		d.releaseClaim(a, reason)
		return
	}
	if q.busy < q.slots {
		d.start(a)
		return
	}
	at, _ := slices.BinarySearchFunc(q.prefetched, c, func(b *attempt, c engine.Claim) int { return b.claim.Compare(c) })
	q.prefetched = slices.Insert(q.prefetched, at, a)
}

// releaseReason returns why a new claim of a queue is released; nil if it starts or is prefetched.
func (d *dispatcher) releaseReason(queue int) error {
	q := &d.queues[queue]
	switch {
	case d.draining:
		return ErrDraining
	case q.paused:
		return errPaused
	case q.suspension.active() && d.suspendedSlots(queue) == 0:
		return errSuspended
	}
	return nil
}

// start runs an attempt in a slot.
func (d *dispatcher) start(a *attempt) {
	c := a.claim
	a.begin()
	a.exchange = d.exchanges
	d.justStarted++
	d.queues[d.queueOf(c)].busy++
	job := d.p.job(a)
	d.p.observe(Event{
		Kind: StageStarted, Task: c.Task, Stage: a.stage.Name, Part: c.Part, Parts: c.Parts, Attempt: c.Attempt, Traceparent: c.Traceparent,
		Waited: c.Waited, Woken: a.woken, Aged: c.Aged,
	})
	d.p.attempts.work.Go(func() { a.run(job, d.p.ended) })
}

// finish frees the slot of an attempt that ended.
func (d *dispatcher) finish(f finished) {
	q := &d.queues[d.queueOf(f.claim)]
	q.busy--
	switch f.kind {
	case StageCompleted, PartCompleted:
		q.recordWorkTime(f.took)
	}
	d.updateSuspension(q, &f)
	d.refill(q)
	if f.exchange == d.exchanges && d.justStarted > 0 {
		d.justStarted--
	}
	if i := slices.Index(d.ignoredCancel, f.attempt); i >= 0 {
		d.ignoredCancel = slices.Delete(d.ignoredCancel, i, i+1) // it was reported already
		return
	}
	d.report(f)
}

// abandon reports an attempt as failed that ignored its cancel. Its slot stays in use
// until its Work returns.
func (d *dispatcher) abandon(token store.ID) {
	a := d.p.attempts.get(token)
	if a == nil || a.started.IsZero() || d.reports.contains(token) {
		return // it ended after all, or never started
	}
	d.ignoredCancel = append(d.ignoredCancel, a)
	f := a.conclude(nil, nil, errIgnoredCancel, context.Cause(a.ctx))
	f.took = time.Since(a.started)
	d.report(f)
}

// refill starts prefetched claims while slots are free.
func (d *dispatcher) refill(q *stageQueue) {
	for q.busy < q.slots && len(q.prefetched) > 0 {
		a := q.prefetched[0]
		q.prefetched = q.prefetched[1:]
		if a.ctx.Err() != nil {
			d.releaseClaim(a, context.Cause(a.ctx))
			continue
		}
		d.start(a)
	}
}
