package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/store"
)

const (
	minPollGap      = 100 * time.Millisecond // between two polls of the outbox
	minIdleWait     = time.Second            // between two checks for webhooks if there are none
	maxIdleWait     = time.Minute
	cleanupInterval = 10 * time.Minute
	cleanupTimeout  = 2 * time.Second
	stopTimeout     = 5 * time.Second // to write the last results
	abortTimeout    = time.Second     // the same after Options.Abort
)

var errNoWebhooks = errors.New("there is no webhook")

// Run delivers events while this process holds the lease, and waits for the lease
// otherwise. When ctx ends, running calls get Options.Grace, and Run returns nil. While
// the database is down, it waits. Only one call of Run may be active at a time.
func (w *Webhooks) Run(ctx context.Context) error {
	d := &deliverer{webhooks: w, holder: newID(), wake: w.options.Wake}
	for ctx.Err() == nil {
		hasEnabled, err := w.hasEnabled(ctx)
		if err == nil && !hasEnabled {
			d.reportError(ctx, nil)
			d.waitForWebhooks(ctx)
			continue
		}
		isHolder := false
		if err == nil {
			isHolder, err = d.acquire(ctx)
		}
		d.reportError(ctx, err)
		if isHolder {
			d.runAsLeader(ctx)
		}
		_ = ctxsleep.For(ctx, w.options.leaseDuration/renewalsPerLease)
	}
	return nil
}

const hasEnabledSQL = `
/* is there a webhook */
select exists (select from cuelight_webhooks where pipeline = $1 and disabled_at is null)`

func (w *Webhooks) hasEnabled(ctx context.Context) (hasEnabled bool, err error) {
	err = w.db.QueryRow(ctx, hasEnabledSQL, w.pipeline()).Scan(&hasEnabled)
	if err != nil {
		err = fmt.Errorf("check for webhooks: %w", err)
	}
	return hasEnabled, err
}

// deliverer is the state of one Run. Only the goroutine of Run uses it. Calls to
// receivers run in other goroutines.
type deliverer struct {
	webhooks *Webhooks
	holder   store.ID
	wake     <-chan struct{} // nil after it was closed
	renewed  time.Time       // the lease was renewed at this time or later
	failing  bool            // OnError was called with an error

	// While it holds the lease:
	calls       sync.WaitGroup
	finished    chan attemptResult           // buffered for all calls
	inFlight    map[store.ID]store.ID        // deliveries that are called or not written, to their webhooks
	unwritten   []attemptResult              // results to write
	recovered   []store.ID                   // webhooks whose receivers recovered since the last write
	urls        map[store.ID]string          // of the endpoints
	health      map[store.ID]*endpointHealth // nil before the first step
	lastPoll    time.Time
	nextPoll    time.Time
	laggingErr  error // of the webhooks that lag behind
	lastCleanup time.Time
}

// waitForWebhooks waits until a webhook may exist. Triggers send a wake at a registration.
func (d *deliverer) waitForWebhooks(ctx context.Context) {
	_ = ctxsleep.For(ctx, minIdleWait)
	timer := time.NewTimer(maxIdleWait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case _, isOpen := <-d.wake:
		d.woken(isOpen)
	case <-timer.C:
	}
}

func (d *deliverer) woken(isOpen bool) {
	if !isOpen {
		d.wake = nil
	}
}

// runAsLeader delivers until the lease is lost or ctx ends. It waits for its calls.
func (d *deliverer) runAsLeader(ctx context.Context) {
	callCtx, abort := context.WithCancel(context.WithoutCancel(ctx))
	defer abort()
	d.finished = make(chan attemptResult, d.webhooks.options.Concurrency)
	d.inFlight, d.health = map[store.ID]store.ID{}, nil
	d.unwritten, d.recovered, d.laggingErr = nil, nil, nil
	d.lastPoll, d.nextPoll = time.Time{}, time.Time{}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(time.Until(d.nextPoll))
		select {
		case <-ctx.Done():
			d.stop(ctx, abort)
			return
		case _, isOpen := <-d.wake:
			d.woken(isOpen)
			if earliest := d.lastPoll.Add(minPollGap); earliest.Before(d.nextPoll) {
				d.nextPoll = earliest
			}
			continue
		case r := <-d.finished:
			d.collectFinished(r)
		case <-timer.C:
		}
		err := d.step(ctx, callCtx)
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

// step writes results and new deliveries, and starts the next calls. After an error, the
// next step does the rest.
func (d *deliverer) step(ctx, callCtx context.Context) error {
	o := d.webhooks.options
	// A dead connection must not block for longer than a lease.
	ctx, cancel := context.WithTimeout(ctx, o.leaseDuration)
	defer cancel()
	isPoll := !time.Now().Before(d.nextPoll)
	if isPoll {
		d.lastPoll = time.Now()
		d.nextPoll = d.lastPoll.Add(o.pollInterval)
	}
	endpoints, err := d.webhooks.endpoints(ctx)
	if err != nil {
		return err
	}
	if err := d.updateHealth(ctx, endpoints); err != nil {
		return err
	}
	if len(endpoints)+len(d.inFlight)+len(d.unwritten) == 0 {
		return errNoWebhooks
	}
	var plans []plan
	if isPoll && len(endpoints) > 0 {
		if plans, err = d.poll(ctx, endpoints); err != nil {
			return err
		}
	}
	if time.Since(d.renewed) >= o.leaseDuration/renewalsPerLease || len(plans)+len(d.unwritten)+len(d.recovered) > 0 {
		if err := d.write(ctx, plans); err != nil {
			return err
		}
	}
	if err := d.sendDue(ctx, callCtx, endpoints); err != nil {
		return err
	}
	if isPoll && time.Since(d.lastCleanup) >= cleanupInterval {
		return errors.Join(d.laggingErr, d.deleteExpired(ctx))
	}
	return d.laggingErr
}

// poll plans deliveries of new events. An error about the lagging webhooks does not stop
// the others.
func (d *deliverer) poll(ctx context.Context, endpoints []endpoint) ([]plan, error) {
	current, lagging := splitByCursor(endpoints)
	plans, more, err := d.webhooks.planDeliveries(ctx, current)
	if err != nil {
		return nil, err
	}
	laggingPlans, _, err := d.webhooks.planDeliveries(ctx, lagging)
	d.laggingErr = err
	if more || len(laggingPlans) > 0 {
		d.nextPoll = d.lastPoll
	}
	return append(plans, laggingPlans...), nil
}

// collectFinished takes r and all other finished calls.
func (d *deliverer) collectFinished(r attemptResult) {
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

// reportWritten reports the written results to OnDelivery.
func (d *deliverer) reportWritten(plans []plan) {
	report := d.webhooks.options.OnDelivery
	for _, r := range d.unwritten {
		delete(d.inFlight, r.id)
		report(DeliveryResult{
			Webhook: r.webhook, Type: r.eventType, Outcome: r.outcome, Status: r.status, Duration: r.duration,
		})
	}
	for _, p := range plans {
		for _, n := range p.deliveries {
			if n.suppressed {
				report(DeliveryResult{Webhook: p.endpoint.id, Type: n.eventType, Outcome: Suppressed})
			}
		}
	}
	d.unwritten, d.recovered = nil, nil
}

// stop waits for the calls within the grace, writes their results, and releases the
// lease. Deliveries whose results it cannot write are delivered again.
func (d *deliverer) stop(ctx context.Context, abort context.CancelFunc) {
	o := d.webhooks.options
	grace := time.AfterFunc(max(o.Grace, 0), abort)
	defer grace.Stop()
	aborted, timeout := o.Abort, stopTimeout
	for len(d.inFlight) > len(d.unwritten) {
		select {
		case r := <-d.finished:
			d.collectFinished(r)
		case <-aborted:
			abort()
			aborted = nil
		}
	}
	d.calls.Wait()
	select {
	case <-o.Abort:
		timeout = abortTimeout
	default:
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	if len(d.unwritten)+len(d.recovered) > 0 {
		if err := d.write(ctx, nil); err != nil {
			d.reportError(ctx, err)
			return
		}
	}
	d.reportError(ctx, d.release(ctx))
}

// reportError calls OnError if errors begin or end. It ignores errors after ctx ended.
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
