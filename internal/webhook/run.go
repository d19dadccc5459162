package webhook

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cuelight/cuelight/store"
)

const (
	lookGap    = 100 * time.Millisecond // between two looks at the outbox, at least
	sweepEvery = 10 * time.Minute
	sweepFor   = 2 * time.Second // at most, in one turn
	idleGap    = time.Second     // between two looks for webhooks, where there is none, at least
	idleFor    = time.Minute     // … and at most
	stopWithin = 5 * time.Second // to write what became of the last deliveries

	abortWithin = time.Second // … where the grace was ended
)

// Run delivers while this process has the lease, and waits for it else, until ctx
// ends; then it gives deliveries that are on their way Options.Grace, and returns
// nil. A database that is away is waited for. It may be called once at a time.
func (w *Webhooks) Run(ctx context.Context) error {
	d := &deliverer{w: w, holder: newID(), wake: w.o.Wake}
	for ctx.Err() == nil {
		any, err := w.any(ctx)
		if err == nil && !any {
			d.tell(ctx, nil)
			d.idle(ctx)
			continue
		}
		held := false
		if err == nil {
			held, err = d.acquire(ctx)
		}
		d.tell(ctx, err)
		if held {
			d.lead(ctx)
		}
		pause(ctx, w.o.lease/renewParts)
	}
	return nil
}

// idle waits, where there is no webhook, until there may be one. The triggers wake
// who listens when one is registered.
func (d *deliverer) idle(ctx context.Context) {
	pause(ctx, idleGap)
	timer := time.NewTimer(idleFor)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case _, open := <-d.wake:
		if !open {
			d.wake = nil
		}
	case <-timer.C:
	}
}

// deliverer is one Run. One goroutine does all but the calls to receivers, and
// nobody else touches the fields.
type deliverer struct {
	w       *Webhooks
	holder  store.ID
	wake    <-chan struct{}
	renewed time.Time // the lease was, no earlier than then
	trouble bool      // was told of

	// While it leads:
	calls  sync.WaitGroup
	ended  chan result           // has room for all calls
	flying map[store.ID]store.ID // deliveries that are on their way or not written, and their webhooks
	done   []result              // to be written
	back   []store.ID            // receivers that answer again
	urls   map[store.ID]string   // where the webhooks lead
	health map[store.ID]*health  // of the receivers there; nil before the first turn
	looked time.Time             // at the outbox
	next   time.Time             // when it is to be looked at
	behind error                 // with an event that not all have seen
	swept  time.Time
}

// lead delivers until the lease is lost or ctx ends. It leaves no call behind.
func (d *deliverer) lead(ctx context.Context) {
	calling, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	d.ended = make(chan result, d.w.o.Concurrency)
	d.flying, d.health = map[store.ID]store.ID{}, nil
	d.done, d.back = nil, nil
	d.looked, d.next = time.Time{}, time.Time{}
	d.behind = nil
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(time.Until(d.next))
		select {
		case <-ctx.Done():
			d.stop(ctx, abort)
			return
		case _, open := <-d.wake:
			if !open {
				d.wake = nil
			}
			if soon := d.looked.Add(lookGap); soon.Before(d.next) {
				d.next = soon
			}
			continue
		case r := <-d.ended:
			d.gather(r)
		case <-timer.C:
		}
		err := d.turn(ctx, calling)
		switch {
		case errors.Is(err, errLost):
			abort()
			d.calls.Wait()
			return
		case errors.Is(err, errNone):
			d.tell(ctx, d.release(ctx))
			return
		}
		d.tell(ctx, err)
	}
}

// turn writes what became of calls and what is to be told, and makes the next
// calls. After an error nothing of that is lost: the next turn does it.
func (d *deliverer) turn(ctx, calling context.Context) error {
	// A connection on which nothing comes back any more must not hold it up.
	within, cancel := context.WithTimeout(ctx, d.w.o.lease)
	defer cancel()
	look := !time.Now().Before(d.next)
	if look {
		d.looked = time.Now()
		d.next = d.looked.Add(d.w.o.poll)
	}
	hooks, err := d.w.hooks(within)
	if err != nil {
		return err
	}
	d.forget(hooks)
	if d.health == nil {
		if err := d.known(within); err != nil {
			return err
		}
	}
	if len(hooks)+len(d.flying)+len(d.done) == 0 {
		return errNone
	}
	var plans []plan
	if look && len(hooks) > 0 {
		if plans, err = d.look(within, hooks); err != nil {
			return err
		}
	}
	if len(plans)+len(d.done)+len(d.back) > 0 || time.Since(d.renewed) >= d.w.o.lease/renewParts {
		if err := d.record(within, plans, d.done, d.back); err != nil {
			return err
		}
		d.recorded(plans)
	}
	if err := d.call(within, calling, hooks); err != nil {
		return err
	}
	if look && time.Since(d.swept) >= sweepEvery {
		return errors.Join(d.behind, d.sweep(within))
	}
	return d.behind
}

// look prepares what is to be told: to those that are at the front first. What goes
// wrong with an event that another is still at does not stop these.
func (d *deliverer) look(ctx context.Context, hooks []hook) ([]plan, error) {
	front, turn := apart(hooks)
	plans, more, err := d.w.plans(ctx, front)
	if err != nil {
		return nil, err
	}
	late, _, behind := d.w.plans(ctx, turn)
	if more || len(late) > 0 {
		d.next = d.looked
	}
	d.behind = behind
	return append(plans, late...), nil
}

// gather takes the calls that have ended, beginning with r.
func (d *deliverer) gather(r result) {
	for {
		if r.aborted {
			delete(d.flying, r.id)
		} else {
			d.w.judge(&r)
			d.done = append(d.done, r)
			if r.url == d.urls[r.hook] && d.judged(r.hook).saw(r.reply, time.Now()) {
				d.back = append(d.back, r.hook)
			}
		}
		select {
		case r = <-d.ended:
		default:
			return
		}
	}
}

// recorded: all that was to be written is.
func (d *deliverer) recorded(plans []plan) {
	for _, r := range d.done {
		delete(d.flying, r.id)
		d.w.o.Observe(Observation{Webhook: r.hook, Type: r.typ, Outcome: r.outcome, Status: r.status, Took: r.took})
	}
	for _, p := range plans {
		for _, row := range p.rows {
			if row.suppressed {
				d.w.o.Observe(Observation{Webhook: p.hook.id, Type: row.typ, Outcome: Suppressed})
			}
		}
	}
	d.done, d.back = nil, nil
}

// stop waits for the calls, for as long as it may, writes what became of them, and
// gives the lease back. What could not be written is delivered again.
func (d *deliverer) stop(ctx context.Context, abort context.CancelFunc) {
	grace := time.AfterFunc(max(d.w.o.Grace, 0), abort)
	defer grace.Stop()
	aborted, patience := d.w.o.Abort, stopWithin
	for len(d.flying) > len(d.done) {
		select {
		case r := <-d.ended:
			d.gather(r)
		case <-aborted:
			abort()
			aborted = nil
		}
	}
	d.calls.Wait()
	select {
	case <-d.w.o.Abort:
		patience = abortWithin
	default:
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if len(d.done)+len(d.back) > 0 {
		if err := d.record(within, nil, d.done, d.back); err != nil {
			d.tell(within, err)
			return
		}
		d.recorded(nil)
	}
	d.tell(within, d.release(within))
}

// tell tells of trouble once, and once when it is over. That nothing works because
// ctx ended is no trouble.
func (d *deliverer) tell(ctx context.Context, err error) {
	switch {
	case err != nil && ctx.Err() == nil && !d.trouble:
		d.trouble = true
		d.w.o.Trouble(err)
	case err == nil && d.trouble:
		d.trouble = false
		d.w.o.Trouble(nil)
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
