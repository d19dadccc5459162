package stages

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// trouble is what the dispatcher remembers while the database does not answer.
type outage struct {
	reported  bool      // the observer knows
	locked    bool      // it was somebody's lock
	uncertain bool      // a turn may have been committed although it failed
	until     time.Time // no turn before
	pause     *backoff.ExponentialBackOff
}

func (t *outage) isOver() bool { return !time.Now().Before(t.until) }

// turnFailed waits a little longer after every failure. Two transactions that
// got in each other's way are no trouble: the turn is made again. Where somebody has
// a table locked the server is there, and has undone the turn; the others' heartbeats
// go on.
func (d *dispatcher) exchangeFailed(life context.Context, err error) {
	t := &d.outage
	t.locked = errors.Is(err, store.ErrLocked)
	t.uncertain = t.uncertain || !t.locked
	switch {
	case store.IsRetryable(err):
		t.until = time.Now().Add(jitter(2 * time.Millisecond))
		return
	case store.IsRejected(err) && d.reportSeparately(life):
		return
	}
	if t.pause == nil {
		t.pause = newPause()
	}
	t.until = time.Now().Add(t.pause.NextBackOff())
	if t.locked {
		t.until = time.Now().Add(jitter(lockedAgain))
	} else {
		d.contact.failed()
	}
	if !t.reported {
		t.reported = true
		d.Observe(Event{Kind: DatabaseLost, Worker: d.workerID(), Err: err})
	}
}

// lockedAgain is how long after a wait for a lock the next one begins.
const lockedAgain = 500 * time.Millisecond

// newPause makes the pauses between tries while the database does not answer,
// each of them changed by chance so that processes do not come back as one.
func newPause() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxInterval(5*time.Second),
		backoff.WithMaxElapsedTime(0),
	)
}

// enter registers this process, waiting for a database that is away. What the
// database itself has against it will not pass by waiting.
func (d *dispatcher) register(ctx context.Context) error {
	return backoff.RetryNotify(func() error {
		err := d.Backend.Check(ctx)
		if err == nil {
			err = d.registerWorker(ctx)
		}
		for _, hopeless := range []error{store.ErrNoSchema, store.ErrSchemaOlder, store.ErrSchemaNewer, store.ErrSchemaShape, store.ErrSchemaBroken} {
			if errors.Is(err, hopeless) {
				return backoff.Permanent(err)
			}
		}
		return err
	}, backoff.WithContext(newPause(), ctx), func(err error, _ time.Duration) {
		if !d.outage.reported {
			d.outage.reported = true
			d.Observe(Event{Kind: DatabaseLost, Err: err})
		}
	})
}

// recovered takes in an answer. After trouble that was worth telling, news may
// have gone astray, perhaps to a server that is not the one any more.
func (d *dispatcher) databaseAnswered() {
	if d.outage.reported {
		d.Observe(Event{Kind: DatabaseBack, Worker: d.workerID()})
		for i := range d.queues {
			d.queues[i].wake(false)
		}
		if c, ok := d.Wakes.(interface{ Check() }); ok {
			c.Check()
		}
	}
	d.outage = outage{}
	d.contact.answered()
}

// reconciled makes certain what a failed turn left uncertain: which of its
// reports are in the history already, and which claims the database gave this
// process that it never heard of. The latter are given back.
func (d *dispatcher) reconcile(life context.Context) bool {
	if !d.outage.uncertain {
		return true
	}
	ctx, cancel := d.exchangeContext(life)
	defer cancel()
	settled, err := d.recordedOutcomes(ctx)
	if err == nil {
		err = d.releaseUnknownClaims(ctx, settled)
	}
	if err != nil {
		d.exchangeFailed(life, err)
		return false
	}
	d.outage.uncertain = false
	return true
}

func (d *dispatcher) recordedOutcomes(ctx context.Context) (map[store.ID]bool, error) {
	if len(d.reports) == 0 {
		return nil, nil
	}
	var reports []engine.Report
	for _, f := range d.reports {
		reports = append(reports, f.report)
	}
	return d.Backend.FindRecordedOutcomes(ctx, reports)
}

// disown gives back the claims nobody here knows of.
func (d *dispatcher) releaseUnknownClaims(ctx context.Context, settled map[store.ID]bool) error {
	held, err := d.Backend.FindHeldClaims(ctx, d.workerID())
	if err != nil {
		return err
	}
	var left []finished
	for _, f := range d.reports {
		if settled[f.report.Token] {
			d.confirm(f)
		} else {
			left = append(left, f)
		}
	}
	d.reports = left
	for _, c := range held {
		if d.live.has(c.Token) || slices.ContainsFunc(d.reports, func(f finished) bool { return f.report.Token == c.Token }) {
			continue
		}
		d.reports = append(d.reports, finished{
			attempt: &attempt{claim: c, stage: &d.stages[c.Stage]},
			report:  engine.Report{Task: c.Task, Stage: c.Stage, Token: c.Token, Outcome: engine.Released},
			kind:    ClaimReleased, err: errors.New("the claim's confirmation was lost"),
		})
	}
	return nil
}

// refusedAgain is when to hand in again what the database does not take.
const refusedAgain = time.Minute

// isolate hands in the reports one by one, and makes a failed attempt of the
// one that the database does not take: one task must not stop all. It reports
// whether there was one.
func (d *dispatcher) reportSeparately(life context.Context) bool {
	found := false
	for i := range d.reports {
		f := &d.reports[i]
		ctx, cancel := d.exchangeContext(life)
		_, err := d.Backend.Exchange(ctx, engine.ExchangeRequest{
			Worker: d.workerID(), Reports: []engine.Report{f.report},
			FreeSlots: make([]int, len(d.stages)), ClaimFrom: make([]bool, len(d.stages)),
		})
		cancel()
		signal(d.wrote, err == nil)
		switch {
		case err == nil || !store.IsRejected(err):
		case f.report.Outcome == engine.Completed:
			found = true
			f.report.Result = nil
			f.fail(f, Permanent(fmt.Errorf("keep result: %w", err)), nil)
		default: // nothing of it can be left out: the others go on without it
			found = true
			f.next = time.Now().Add(jitter(refusedAgain))
		}
	}
	return found
}
