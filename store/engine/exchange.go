package engine

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// ExchangeRequest is what a worker reports, how many steps it can take, and where it
// should look for them. Slices are by queue, see [store.Graph].Queues, except Reports and
// OnlyTasks; shorter ones have zeros at their ends.
type ExchangeRequest struct {
	Worker     store.ID
	Reports    []Report
	FreeSlots  []int      // how many claims it can take, counting the slots of Reports
	ClaimFrom  []bool     // whether ready steps should be claimed
	After      []Position // where to look for them; zero: from the start of the queue
	PromoteDue bool       // whether steps that wait for a time may be due
	OnlyTasks  []store.ID // the only tasks to claim; nil for all

	// MaxRunningPerUser limits the tasks of each user that have started and are not finished, not counting those that wait
	// for a retry of a stage without needs, by claiming no more for such stages. Of processes with a limit one claims
	// at a time, so it is exact. OnlyTasks do not keep to it. Default 0: no limit.
	MaxRunningPerUser int
}

// StaleReport is a report of a claim that the worker no longer holds.
type StaleReport struct {
	Report
	Cancelled bool // as in [LostClaim]
}

// CheckingReport is a report of a completed stage whose files are being checked.
type CheckingReport struct {
	Report
	Pause time.Duration // when to report again
}

// ExchangeResult is the database's answer. Slices from Claimed on are by queue.
type ExchangeResult struct {
	Claims []Claim // in the order of [Claim.Compare]
	// Stale are the reports that changed nothing because the claim was no longer the
	// worker's.
	Stale []StaleReport
	// Locked are the reports that changed nothing yet because another transaction had
	// locked the rows. They should be reported again.
	Locked []Report
	// Refused are the reports of completed stages that a coordinator recorded as failed, as they
	// were recorded, because it refuses the results of its remote worker. The database refuses none.
	Refused []Report
	// Checking are the reports that a coordinator has not recorded yet, because it checks the files
	// of its remote worker. The database checks none.
	Checking []CheckingReport
	// Claimed is how many of Claims are of the queue.
	Claimed []int
	// MoreReady says that the queue has ready steps that this exchange did not claim: there
	// were more than free slots, or another worker had locked them.
	MoreReady []bool
	// Next is where the next claim should look, in queues that were claimed from.
	Next []Position
	// Wait is the delay until a step is left to this worker that others are preferred for; negative for none.
	Wait []time.Duration
	// NextDue is the delay until a step that waits for a time is due: 0 when it is due, negative when none waits. It is
	// known if a queue was claimed from.
	NextDue time.Duration
}

// Exchange applies reports and claims ready steps, first of all those that the reports opened, if they come first: one
// transaction in one round trip. It skips rows that other transactions have locked.
//
// After an error the transaction may or may not have been committed. A report may be sent
// again: one that is recorded counts as applied. See also [Engine.FindRecordedOutcomes] and
// [Engine.FindHeldClaims].
func (e *Engine) Exchange(ctx context.Context, in ExchangeRequest) (ExchangeResult, error) {
	queues := e.graph.Queues()
	in.FreeSlots, in.ClaimFrom, in.After = padded(in.FreeSlots, queues), padded(in.ClaimFrom, queues), padded(in.After, queues)
	x := &exchange{Engine: e, request: in, applied: make(map[store.ID]bool), result: ExchangeResult{
		Claimed: make([]int, queues), MoreReady: make([]bool, queues), Next: slices.Clone(in.After),
		Wait: slices.Repeat([]time.Duration{-1}, queues),
	}, due: waiting{next: -1, from: e.positions.waitingFrom()}}
	x.queue(ctx)
	if err := e.db.SendBatch(ctx, &x.batch).Close(); err != nil {
		return ExchangeResult{}, e.explain("exchange", err)
	}
	x.finish()
	x.classifyUnapplied(ctx)
	return x.result, nil
}

// padded returns a list with zeros at its end where it is shorter than n.
func padded[T any](list []T, n int) []T { return append(list, make([]T, max(n-len(list), 0))...) }

// exchange is one [Engine.Exchange] in progress.
type exchange struct {
	*Engine
	request ExchangeRequest
	batch   pgx.Batch
	args    queueArgs
	looks   []look // of the queues of args
	due     waiting
	blocked bool // another process had the lock of limited claims
	applied map[store.ID]bool
	result  ExchangeResult
}

// queue queues the statements.
func (x *exchange) queue(ctx context.Context) {
	in := x.request
	for i, claim := range in.ClaimFrom {
		if claim {
			x.args.add(x.Engine, i, in.FreeSlots[i], x.isLimited(i), in.After[i])
		}
	}
	exchange := claiming
	if len(in.Reports) > 0 {
		exchange = reporting
	}
	x.batch.Queue(x.sql.settings, in.Worker, lockWait(ctx), exchange, slices.Contains(x.args.limited, true))
	if in.PromoteDue {
		x.batch.Queue(x.sql.promote, x.due.from)
	}
	if len(in.Reports) > 0 {
		x.queueReports(&x.batch, in.Reports, x.applied)
	}
	if len(x.args.stages) > 0 {
		x.queueClaims()
	}
	if len(in.Reports) > 0 {
		tasks := make([]store.ID, len(in.Reports))
		for i, r := range in.Reports {
			tasks[i] = r.Task
		}
		x.batch.Queue(x.sql.notify, tasks, x.limitedStages())
	}
	if len(x.args.stages) > 0 {
		x.looks = make([]look, x.graph.Queues())
		found := func(queue int, l look) { x.looks[queue] = l }
		x.queueLook(&x.batch, in.Worker, in.OnlyTasks, x.args, found, x.due.from, &x.due)
		x.queuePositions()
	}
}

func (x *exchange) queueClaims() {
	for i, limited := range x.args.limited {
		if limited {
			x.batch.Queue(x.sql.allow, x.args.stages[i], x.request.MaxRunningPerUser, x.args.free[i]).QueryRow(func(row pgx.Row) error {
				var locked bool
				err := row.Scan(nil, &locked)
				x.blocked = !locked
				return err
			})
		}
	}
	a := x.args
	x.batch.Queue(x.sql.claim, x.request.Worker, a.stages, a.parts, a.free, a.limited, a.ranks, a.turns, a.tasks, x.request.OnlyTasks).
		Query(collect(&x.result.Claims, x.scanClaim))
}

// isLimited reports whether claims of a queue keep to the limit of users.
func (x *exchange) isLimited(queue int) bool {
	stage, parts := x.graph.QueueStage(queue)
	return x.request.MaxRunningPerUser > 0 && x.request.OnlyTasks == nil && !parts && len(x.graph.Needs(stage)) == 0
}

// limitedStages are those of which a task may start now, because the reports may have ended one of its user.
func (x *exchange) limitedStages() (names []string) {
	mayEnd := func(r Report) bool {
		return r.Outcome == Failed || r.Outcome == Completed && len(x.graph.Feeds(r.Stage)) == 0
	}
	if x.request.MaxRunningPerUser == 0 || !slices.ContainsFunc(x.request.Reports, mayEnd) {
		return nil
	}
	for i, name := range x.stages {
		if len(x.graph.Needs(i)) == 0 {
			names = append(names, name)
		}
	}
	return names
}

// finish evaluates what was read.
func (x *exchange) finish() {
	slices.SortFunc(x.result.Claims, Claim.Compare)
	x.result.NextDue = x.due.next
	last := slices.Clone(x.request.After)
	for _, c := range x.result.Claims {
		queue := x.graph.Queue(c.Stage, c.Part > 0)
		x.result.Claimed[queue]++
		if last[queue].Compare(c.Position) < 0 {
			last[queue] = c.Position
		}
	}
	for i, queue := range x.args.numbers {
		l, got := x.looks[queue], x.result.Claimed[queue]
		x.result.Wait[queue] = l.wait
		x.result.MoreReady[queue] = l.first != nil && (!x.args.limited[i] || got == int(x.args.free[i]) || x.blocked)
		x.result.Next[queue] = last[queue]
		if l.first != nil && l.first.Compare(last[queue]) < 0 {
			x.result.Next[queue] = l.first.Before()
		}
		if x.args.limited[i] {
			x.result.Next[queue] = Position{}
		}
	}
	x.setPositions()
}

// classifyUnapplied separates the reports that changed nothing: an earlier exchange, whose
// answer was lost, has recorded some; the claims of others are lost, the rows of the rest were
// locked. The exchange is committed, so where this cannot be found out all count as locked and
// are reported again.
func (x *exchange) classifyUnapplied(ctx context.Context) {
	var unapplied []*Report
	for i := range x.request.Reports {
		if r := &x.request.Reports[i]; !x.applied[r.Token] {
			unapplied = append(unapplied, r)
		}
	}
	ended, err := x.findEnded(ctx, unapplied)
	for _, r := range unapplied {
		i := slices.IndexFunc(ended, func(c endedClaim) bool { return c.Token == r.Token })
		switch {
		case err != nil || i < 0:
			x.result.Locked = append(x.result.Locked, *r)
		case ended[i].Outcome != r.Outcome:
			x.result.Stale = append(x.result.Stale, StaleReport{*r, ended[i].isCancelled()})
		}
	}
}
