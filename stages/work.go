package stages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// start gives an attempt its slot.
func (d *dispatcher) start(a *attempt) {
	c := a.claim
	a.begin()
	a.turn = d.exchanges
	d.justStarted++
	d.busy[c.Stage]++
	job := d.job(a)
	d.Observe(Event{Kind: StageStarted, Worker: d.workerID(), Task: c.Task, Stage: a.stage.Name, Attempt: c.Attempt, Traceparent: c.Traceparent, Waited: c.Waited, Woken: a.wokenByNotify, Aged: c.Aged})
	d.work.Go(func() {
		var f finished
		// Reported in a defer, so that the slot comes back even from Work that
		// ends its goroutine.
		defer func() {
			a.stopTimers()
			if f.attempt == nil {
				f = a.conclude(nil, errGoexit, nil)
			}
			d.done <- f
		}()
		f = a.work(job)
	})
}

func (d *dispatcher) job(a *attempt) *Job {
	return &Job{
		Task: a.claim.Task, Source: a.claim.Source, Params: a.claim.Params, UserID: a.claim.UserID, Traceparent: a.claim.Traceparent,
		Stage: a.stage.Name, Attempt: a.claim.Attempt, Token: a.claim.Token,
		Results: func(ctx context.Context, stage string) (json.RawMessage, error) {
			return d.result(ctx, a.claim.Task, stage)
		},
		OnConfirm: func(ctx context.Context) error {
			lost, err := d.lostClaims(ctx, a.claim)
			if err != nil {
				return err
			}
			if len(lost) > 0 {
				why := lostFor(lost[0].Cancelled)
				a.cancel(fmt.Errorf("%w: %w", why, errRevoked))
				return why
			}
			return nil
		},
		OnProgress: func(p Progress) {
			p.Note = redact.Text(p.Note, a.claim.Source)
			p = p.clean()
			a.setProgress(p)
			d.Observe(Event{Kind: StageProgress, Task: a.claim.Task, Stage: a.stage.Name, Attempt: a.claim.Attempt, Progress: p})
		},
	}
}

// maxConcurrentQueries is half of the pool's connections. Queries of Work wait while a
// table is locked, and must leave connections for heartbeats and exchanges.
func maxConcurrentQueries(pool *pgxpool.Pool) int {
	if pool == nil {
		return 2
	}
	return max(int(pool.Config().MaxConns)/2, 1)
}

// queryWithinLimit runs a query of an attempt, for up to 10 s, when a query slot is free.
func (d *dispatcher) queryWithinLimit(ctx context.Context, query func(ctx context.Context) error) error {
	select {
	case d.querySlots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-d.querySlots }()
	within, cancel := context.WithTimeout(ctx, deregisterTimeout)
	defer cancel()
	return query(within)
}

// result waits for a database that is away, which is not the attempt's failure.
func (d *dispatcher) result(ctx context.Context, task store.ID, stage string) (json.RawMessage, error) {
	for pause := newPause(); ; {
		var raw json.RawMessage
		err := d.queryWithinLimit(ctx, func(ctx context.Context) (err error) {
			raw, err = d.Backend.Result(ctx, task, stage)
			return err
		})
		if err == nil || errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrNoStage) {
			return raw, err
		}
		again := time.NewTimer(pause.NextBackOff())
		select {
		case <-ctx.Done():
			again.Stop()
			return nil, err
		case <-again.C:
		}
	}
}

// lostClaims waits for whoever has the table locked.
func (d *dispatcher) lostClaims(ctx context.Context, c engine.Claim) ([]engine.LostClaim, error) {
	for {
		var lost []engine.LostClaim
		err := d.queryWithinLimit(ctx, func(ctx context.Context) (err error) {
			lost, err = d.Backend.FindLostClaims(ctx, []engine.Claim{c})
			return err
		})
		if !errors.Is(err, store.ErrLocked) && !errors.Is(err, context.DeadlineExceeded) {
			return lost, err
		}
		again := time.NewTimer(jitter(lockedAgain))
		select {
		case <-ctx.Done():
			again.Stop()
			return nil, err
		case <-again.C:
		}
	}
}

// giveUp says what became of an attempt that was told to end and does not. Its
// slot is taken for as long as it goes on.
func (d *dispatcher) abandon(token store.ID) {
	a := d.live.get(token)
	if a == nil || a.began.IsZero() || slices.ContainsFunc(d.reports, func(f finished) bool { return f.attempt == a }) {
		return // it ended after all, or never began
	}
	d.ignoredCancel = append(d.ignoredCancel, a)
	f := a.conclude(nil, ignoredCancelError, context.Cause(a.ctx))
	f.took = time.Since(a.began)
	if f.dropped {
		d.live.remove(token)
		d.observe(f, ClaimRevoked)
		return
	}
	d.reports = append(d.reports, f)
}
