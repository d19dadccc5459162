package webhook

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/cuelight/cuelight/store"
)

const (
	minPollGap      = 100 * time.Millisecond // between two looks at the outbox, at least
	cleanupInterval = 10 * time.Minute
	cleanupTimeout  = 2 * time.Second // at most, in one turn
	minIdleWait     = time.Second     // between two looks for webhooks, where there is none, at least
	maxIdleWait     = time.Minute     // … and at most
	stopTimeout     = 5 * time.Second // to write what became of the last deliveries

	abortTimeout = time.Second // … where the grace was ended
)

// Run delivers while this process has the lease, and waits for it else, until ctx
// ends; then it gives deliveries that are on their way Options.Grace, and returns
// nil. A database that is away is waited for. It may be called once at a time.
func (w *Webhooks) Run(ctx context.Context) error {
	d := &deliverer{webhooks: w, holder: newID(), wake: w.options.Wake}
	for ctx.Err() == nil {
		any, err := w.hasEnabled(ctx)
		if err == nil && !any {
			d.reportError(ctx, nil)
			d.waitForWebhooks(ctx)
			continue
		}
		held := false
		if err == nil {
			held, err = d.acquire(ctx)
		}
		d.reportError(ctx, err)
		if held {
			d.runAsLeader(ctx)
		}
		sleep(ctx, w.options.leaseDuration/renewalsPerLease)
	}
	return nil
}

// idle waits, where there is no webhook, until there may be one. The triggers wake
// who listens when one is registered.
func (d *deliverer) waitForWebhooks(ctx context.Context) {
	sleep(ctx, minIdleWait)
	timer := time.NewTimer(maxIdleWait)
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
	webhooks *Webhooks
	holder   store.ID
	wake     <-chan struct{}
	renewed  time.Time // the lease was, no earlier than then
	failing  bool      // was told of

	// While it leads:
	calls       sync.WaitGroup
	finished    chan attemptResult           // has room for all calls
	inFlight    map[store.ID]store.ID        // deliveries that are on their way or not written, and their webhooks
	unwritten   []attemptResult              // to be written
	recovered   []store.ID                   // receivers that answer again
	urls        map[store.ID]string          // where the webhooks lead
	health      map[store.ID]*endpointHealth // of the receivers there; nil before the first turn
	lastPoll    time.Time                    // at the outbox
	nextPoll    time.Time                    // when it is to be looked at
	laggingErr  error                        // with an event that not all have seen
	lastCleanup time.Time
}

// lead delivers until the lease is lost or ctx ends. It leaves no call behind.
func (d *deliverer) runAsLeader(ctx context.Context) {
	calling, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	d.finished = make(chan attemptResult, d.webhooks.options.Concurrency)
	d.inFlight, d.health = map[store.ID]store.ID{}, nil
	d.unwritten, d.recovered = nil, nil
	d.lastPoll, d.nextPoll = time.Time{}, time.Time{}
	d.laggingErr = nil
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(time.Until(d.nextPoll))
		select {
		case <-ctx.Done():
			d.stop(ctx, abort)
			return
		case _, open := <-d.wake:
			if !open {
				d.wake = nil
			}
			if soon := d.lastPoll.Add(minPollGap); soon.Before(d.nextPoll) {
				d.nextPoll = soon
			}
			continue
		case r := <-d.finished:
			d.collect(r)
		case <-timer.C:
		}
		err := d.step(ctx, calling)
		switch {
		case errors.Is(err, errLeaseLost):
			abort()
			d.calls.Wait()
			return
		case errors.Is(err, errNoWebhooks):
			d.reportError(ctx, d.release(ctx))
			return
		}
		d.reportError(ctx, err)
	}
}

// turn writes what became of calls and what is to be told, and makes the next
// calls. After an error nothing of that is lost: the next turn does it.
func (d *deliverer) step(ctx, calling context.Context) error {
	// A connection on which nothing comes back any more must not hold it up.
	within, cancel := context.WithTimeout(ctx, d.webhooks.options.leaseDuration)
	defer cancel()
	look := !time.Now().Before(d.nextPoll)
	if look {
		d.lastPoll = time.Now()
		d.nextPoll = d.lastPoll.Add(d.webhooks.options.pollInterval)
	}
	hooks, err := d.webhooks.endpoints(within)
	if err != nil {
		return err
	}
	d.dropStaleHealth(hooks)
	if d.health == nil {
		if err := d.loadHealth(within); err != nil {
			return err
		}
	}
	if len(hooks)+len(d.inFlight)+len(d.unwritten) == 0 {
		return errNoWebhooks
	}
	var plans []plan
	if look && len(hooks) > 0 {
		if plans, err = d.poll(within, hooks); err != nil {
			return err
		}
	}
	if len(plans)+len(d.unwritten)+len(d.recovered) > 0 || time.Since(d.renewed) >= d.webhooks.options.leaseDuration/renewalsPerLease {
		if err := d.write(within, plans, d.unwritten, d.recovered); err != nil {
			return err
		}
		d.reportWritten(plans)
	}
	if err := d.sendDue(within, calling, hooks); err != nil {
		return err
	}
	if look && time.Since(d.lastCleanup) >= cleanupInterval {
		return errors.Join(d.laggingErr, d.deleteExpired(within))
	}
	return d.laggingErr
}

// look prepares what is to be told: to those that are at the front first. What goes
// wrong with an event that another is still at does not stop these.
func (d *deliverer) poll(ctx context.Context, hooks []endpoint) ([]plan, error) {
	front, turn := splitByCursor(hooks)
	plans, more, err := d.webhooks.planDeliveries(ctx, front)
	if err != nil {
		return nil, err
	}
	late, _, behind := d.webhooks.planDeliveries(ctx, turn)
	if more || len(late) > 0 {
		d.nextPoll = d.lastPoll
	}
	d.laggingErr = behind
	return append(plans, late...), nil
}

// gather takes the calls that have ended, beginning with r.
func (d *deliverer) collect(r attemptResult) {
	for {
		if r.aborted {
			delete(d.inFlight, r.id)
		} else {
			d.webhooks.classify(&r)
			d.unwritten = append(d.unwritten, r)
			if r.url == d.urls[r.webhook] && d.healthOf(r.webhook).record(r.response, time.Now()) {
				d.recovered = append(d.recovered, r.webhook)
			}
		}
		select {
		case r = <-d.finished:
		default:
			return
		}
	}
}

// recorded: all that was to be written is.
func (d *deliverer) reportWritten(plans []plan) {
	for _, r := range d.unwritten {
		delete(d.inFlight, r.id)
		d.webhooks.options.OnDelivery(DeliveryResult{Webhook: r.webhook, Type: r.eventType, Outcome: r.outcome, Status: r.status, Duration: r.duration})
	}
	for _, p := range plans {
		for _, row := range p.deliveries {
			if row.suppressed {
				d.webhooks.options.OnDelivery(DeliveryResult{Webhook: p.endpoint.id, Type: row.eventType, Outcome: Suppressed})
			}
		}
	}
	d.unwritten, d.recovered = nil, nil
}

// stop waits for the calls, for as long as it may, writes what became of them, and
// gives the lease back. What could not be written is delivered again.
func (d *deliverer) stop(ctx context.Context, abort context.CancelFunc) {
	grace := time.AfterFunc(max(d.webhooks.options.Grace, 0), abort)
	defer grace.Stop()
	aborted, patience := d.webhooks.options.Abort, stopTimeout
	for len(d.inFlight) > len(d.unwritten) {
		select {
		case r := <-d.finished:
			d.collect(r)
		case <-aborted:
			abort()
			aborted = nil
		}
	}
	d.calls.Wait()
	select {
	case <-d.webhooks.options.Abort:
		patience = abortTimeout
	default:
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if len(d.unwritten)+len(d.recovered) > 0 {
		if err := d.write(within, nil, d.unwritten, d.recovered); err != nil {
			d.reportError(within, err)
			return
		}
		d.reportWritten(nil)
	}
	d.reportError(within, d.release(within))
}

// tell tells of trouble once, and once when it is over. That nothing works because
// ctx ended is no trouble.
func (d *deliverer) reportError(ctx context.Context, err error) {
	switch {
	case err != nil && ctx.Err() == nil && !d.failing:
		d.failing = true
		d.webhooks.options.OnError(err)
	case err == nil && d.failing:
		d.failing = false
		d.webhooks.options.OnError(nil)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
