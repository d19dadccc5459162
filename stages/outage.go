package stages

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// outage is what the dispatcher remembers while requests to the database fail.
type outage struct {
	reported  time.Time // to Observe; zero: not
	cause     string    // that was reported
	locked    bool      // the request waited for a lock
	uncertain bool      // an exchange may have been committed although it failed
	until     time.Time // no request before
	backoff   *backoff.ExponentialBackOff
}

func (o *outage) canRetry() bool { return !time.Now().Before(o.until) }

// rejectedRetryDelay is the time before a rejected report is sent again.
const rejectedRetryDelay = time.Minute

// exchangeFailed waits longer after every failure. An exchange that conflicted with
// another transaction is repeated. Where a table is locked the server works and has
// rolled the exchange back.
func (d *dispatcher) exchangeFailed(base context.Context, err error) {
	if IsPermanent(err) {
		d.stopRefused(err)
		return
	}
	o := &d.outage
	o.locked = errors.Is(err, store.ErrLocked)
	o.uncertain = o.uncertain || !o.locked
	switch {
	case store.IsRetryable(err):
		o.until = time.Now().Add(jitter(2 * time.Millisecond))
		return
	case store.IsRejected(err) && d.reportSeparately(base):
		return
	}
	if o.backoff == nil {
		o.backoff = newRetryBackoff()
	}
	o.until = time.Now().Add(o.backoff.NextBackOff())
	if o.locked {
		o.until = time.Now().Add(jitter(lockRetryDelay))
	} else {
		d.p.contact.failed()
	}
	d.reportOutage(err)
}

// OutageCauseInterval is the least time between two reports of causes of one outage.
const OutageCauseInterval = 30 * time.Second

// reportOutage reports an outage, and again when its cause has changed: the server is back, but refuses the password.
func (d *dispatcher) reportOutage(err error) {
	o, cause := &d.outage, err.Error()
	if o.reported.IsZero() || cause != o.cause && time.Since(o.reported) >= OutageCauseInterval {
		o.reported, o.cause = time.Now(), cause
		d.p.observe(Event{Kind: DatabaseUnavailable, Err: err})
	}
}

// stopRefused cancels all attempts, because their outcomes will not be accepted.
func (d *dispatcher) stopRefused(err error) {
	d.refused = err
	d.p.attempts.cancelAll(fmt.Errorf("%w: %w", ErrLeaseLost, err))
}

// databaseAnswered ends an outage. Notifications may have been lost in it.
func (d *dispatcher) databaseAnswered() {
	if !d.outage.reported.IsZero() {
		d.p.observe(Event{Kind: DatabaseAvailable})
		for i := range d.queues {
			d.queues[i].wake(false, []string{""})
		}
		if d.p.listener != nil {
			d.p.listener.Check()
		}
	}
	d.outage = outage{}
	d.p.contact.answered()
}

// registerWhenReachable registers this process, and waits for a database that does not
// answer. Missing or foreign tables are an error.
func (d *dispatcher) registerWhenReachable(ctx context.Context) error {
	return backoff.RetryNotify(func() error {
		err := d.p.Backend.Check(ctx)
		if err == nil {
			err = d.p.register(ctx)
		}
		if IsPermanent(err) {
			return backoff.Permanent(err)
		}
		for _, permanent := range []error{
			store.ErrNoSchema, store.ErrSchemaOlder, store.ErrForeignTables, store.ErrSchemaNewer, store.ErrSchemaShape, store.ErrSchemaBroken,
			store.ErrInvalidWorker, store.ErrEncoding, store.ErrSettings,
		} {
			if errors.Is(err, permanent) {
				return backoff.Permanent(err)
			}
		}
		return err
	}, backoff.WithContext(newRetryBackoff(), ctx), func(err error, _ time.Duration) {
		d.reportOutage(err)
	})
}

// reconcile finds out what an exchange that failed may have changed: which reports the
// history contains, and which claims this process holds without knowing. It releases those.
func (d *dispatcher) reconcile(base context.Context) bool {
	if d.p.housekeeper == nil {
		d.outage.uncertain = false // the coordinator recognises reports, and returns claims with its next answer
	}
	if !d.outage.uncertain {
		return true
	}
	ctx, cancel := d.exchangeContext(base)
	defer cancel()
	recorded, err := d.recordedOutcomes(ctx)
	if err == nil {
		err = d.releaseUnknownClaims(ctx, recorded)
	}
	if err != nil {
		d.exchangeFailed(base, err)
		return false
	}
	d.outage.uncertain = false
	return true
}

func (d *dispatcher) recordedOutcomes(ctx context.Context) (map[store.ID]bool, error) {
	if d.reports.empty() {
		return nil, nil
	}
	var reports []engine.Report
	for _, f := range d.reports.pending {
		reports = append(reports, f.report)
	}
	return d.p.housekeeper.FindRecordedOutcomes(ctx, reports)
}

func (d *dispatcher) releaseUnknownClaims(ctx context.Context, recorded map[store.ID]bool) error {
	held, err := d.p.housekeeper.FindHeldClaims(ctx, d.p.worker.get())
	if err != nil {
		return err
	}
	d.reports.takeEach(func(f finished) {
		if recorded[f.report.Token] {
			d.endReported(f)
		} else {
			d.reports.add(f)
		}
	})
	d.releaseUnknown(held, 0)
	return nil
}

// maxExchangeAge is how old a claim is at least that no exchange under way has made.
const maxExchangeAge = exchangeTimeout + 10*time.Second

// releaseUnknown releases claims of this process in the database that it does not know, if they are old enough.
func (d *dispatcher) releaseUnknown(held []engine.HeldClaim, age time.Duration) {
	for _, c := range held {
		if c.Age < age || d.p.attempts.get(c.Token) != nil || d.reports.contains(c.Token) {
			continue
		}
		d.reports.add(finished{
			attempt: &attempt{claim: c.Claim, stage: &d.p.Pipeline.stages[c.Stage]},
			report:  engine.Report{Task: c.Task, Stage: c.Stage, Part: c.Part, Token: c.Token, Outcome: engine.Released},
			kind:    ClaimReleased, err: errors.New("the database's answer with the claim was lost"),
		})
	}
}

// reportSeparately sends reports one by one, and makes a failed attempt of one that the
// database rejects, so that it does not block all others. It reports whether there was one.
func (d *dispatcher) reportSeparately(base context.Context) bool {
	found := false
	for i := range d.reports.pending {
		f := &d.reports.pending[i]
		ctx, cancel := d.exchangeContext(base)
		_, err := d.p.Backend.Exchange(ctx, engine.ExchangeRequest{
			Worker: d.p.worker.get(), Reports: []engine.Report{f.report},
			FreeSlots: make([]int, len(d.queues)), ClaimFrom: make([]bool, len(d.queues)),
		})
		cancel()
		signal(d.p.wrote, err == nil)
		switch {
		case err == nil || !store.IsRejected(err):
		case f.report.Outcome == engine.Completed:
			found = true
			f.report.Result = nil
			f.fail(f, Permanent(fmt.Errorf("store result: %w", err)), nil)
		default: // nothing of it can be left out
			found = true
			f.notBefore = time.Now().Add(jitter(rejectedRetryDelay))
		}
	}
	return found
}

// exchangeContext returns the context of one request.
func (d *dispatcher) exchangeContext(base context.Context) (context.Context, context.CancelFunc) {
	if d.shutdownContext.Err() != nil {
		return context.WithTimeout(base, shutdownTimeout)
	}
	within := exchangeTimeout
	if d.outage.locked {
		within = shutdownTimeout // preparing a statement waits for the lock, too, without a lock_timeout
	}
	ctx, cancel := context.WithTimeout(base, within)
	stop := context.AfterFunc(d.shutdownContext, cancel)
	return ctx, func() { stop(); cancel() }
}
