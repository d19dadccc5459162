package engine

import (
	"context"
	"slices"

	"github.com/cuelight/cuelight/store"
)

// Exchange applies reports, continues the reported tasks to their next stages while
// slots are free, and claims other ready tasks: one transaction in one round trip. It
// skips rows that other transactions have locked.
//
// After an error the transaction may or may not have been committed. A report may be sent
// again: one that is recorded counts as applied. See also [Engine.FindRecordedOutcomes] and
// [Engine.FindHeldClaims].
func (e *Engine) Exchange(ctx context.Context, in ExchangeRequest) (ExchangeResult, error) {
	x := e.newExchange(in)
	x.result.Claims = make([]Claim, 0, len(in.Reports))
	e.queueSettings(ctx, &x.batch, len(in.Reports) == 0, originRecorded, in.Worker)
	x.origin = originRecorded
	for i := range e.graph.Queues() {
		x.queuePromote(i) // before anything that continues with the promoted tasks
	}
	for i := range e.graph.Queues() {
		x.queueAgedClaims(i)
	}
	if len(in.Reports) > 0 {
		x.queueReports()
	}
	for i := range e.graph.Queues() {
		x.queueClaims(i)
	}
	x.queueLimitNotification()
	if err := e.db.SendBatch(ctx, &x.batch).Close(); err != nil {
		return ExchangeResult{}, e.explain("exchange", err)
	}
	slices.SortFunc(x.result.Claims, Claim.Compare)
	x.classifyUnapplied(ctx)
	return x.result, nil
}

// classifyUnapplied separates the reports that changed nothing: an earlier exchange, whose
// answer was lost, has recorded some; the claims of others are lost, the rows of the rest were
// locked. The exchange is committed, so where this cannot be found out all count as locked and
// are reported again.
func (x *exchange) classifyUnapplied(ctx context.Context) {
	var unapplied []Report
	var claims []Claim
	for _, r := range x.request.Reports {
		if !x.applied[r.Token] {
			unapplied = append(unapplied, r)
			claims = append(claims, Claim{Task: r.Task, Stage: r.Stage, Part: r.Part, Token: r.Token})
		}
	}
	lost, err := x.FindLostClaims(ctx, claims)
	var recorded map[store.ID]bool
	if err == nil && len(lost) > 0 {
		recorded, err = x.FindRecordedOutcomes(ctx, unapplied)
	}
	for _, r := range unapplied {
		i := slices.IndexFunc(lost, func(l LostClaim) bool { return l.Token == r.Token })
		switch {
		case err != nil || i < 0:
			x.result.Locked = append(x.result.Locked, r)
		case !recorded[r.Token]:
			x.result.Stale = append(x.result.Stale, StaleReport{r, lost[i].Cancelled})
		}
	}
}
