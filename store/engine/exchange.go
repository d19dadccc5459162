package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// Outcome is how an attempt ended.
type Outcome string

// The outcomes that a worker reports. The history has two more: expired, of a lost
// worker's claim, and cancelled, of a claim that was revoked.
const (
	Completed Outcome = "completed"
	Failed    Outcome = "failed"   // the work returned an error
	Released  Outcome = "released" // the worker returned the claim; not counted as an attempt
)

// Claim is a worker's right to work on one stage of one task. Its token is unique for
// ever: a report with another token changes nothing.
type Claim struct {
	Task    store.ID
	Stage   int // its number in the [store.Graph]
	Token   store.ID
	Attempt int

	Priority    int16
	Source      string
	Params      json.RawMessage
	UserID      string
	Traceparent string // of the submission; empty for none

	// Aged says that it was claimed before tasks of higher priority, because it had
	// waited for long; see [SweepRequest].AgeAfter.
	Aged bool

	// Waited is how long the stage was ready, by the database's clock: since the
	// submission, its scheduled time, or a retry. It is 0 where the stage was claimed
	// in the exchange that completed the stages it needs.
	Waited time.Duration
}

// Compare orders claims as they should be started: by stage; within a stage aged tasks
// first, then by priority and id.
func (c Claim) Compare(d Claim) int {
	if c.Stage == d.Stage && c.Aged != d.Aged {
		if c.Aged {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(c.Stage, d.Stage), c.position().compare(d.position()))
}

func (c Claim) position() Position { return Position{c.Priority, c.Task} }

// Report is the outcome of an attempt.
type Report struct {
	Task    store.ID
	Stage   int
	Token   store.ID
	Outcome Outcome

	Result json.RawMessage // of a completed stage; nil is null

	Error   string        // why an attempt failed, or a claim was released
	Class   string        // the kind of error, one word, for the history
	Dead    bool          // of a failed attempt: it was the last, the stage is dead
	RetryIn time.Duration // otherwise: the delay before the stage is ready again
}

// ExchangeRequest is what a worker reports, how many tasks it can take, and where it
// should look for them. Slices are by stage, except Reports and OnlyTasks.
type ExchangeRequest struct {
	Worker     store.ID
	Reports    []Report
	FreeSlots  []int        // how many claims it can take, counting the slots of Reports
	ClaimFrom  []bool       // whether ready tasks should be claimed
	PromoteDue []bool       // whether tasks that waited for a time may be due
	OnlyTasks  []store.ID   // the only tasks to claim; nil for all
	Aged       [][]store.ID // tasks to claim first, from [SweepResult].Aged; nil for none

	// After limits a stage's claims to ready tasks after a position, so that an exchange
	// does not read again the index entries of tasks claimed since the last vacuum. It is
	// for stages that surely have more ready tasks than free slots. Nil, or a zero
	// Position, is no limit. It is ignored in stages that Reports may make ready.
	After []Position
}

// Position is one in the order in which ready tasks of a stage are claimed. The tasks
// after it have the same priority and were submitted later.
type Position struct {
	Priority int16
	Task     store.ID
}

func (p Position) compare(q Position) int {
	return cmp.Or(cmp.Compare(q.Priority, p.Priority), bytes.Compare(p.Task[:], q.Task[:]))
}

// StaleReport is a report of a claim that the worker no longer holds.
type StaleReport struct {
	Report
	Cancelled bool // as in [LostClaim]
}

// ExchangeResult is the database's answer. Slices from Requested on are by stage.
type ExchangeResult struct {
	Claims []Claim // in the order of [Claim.Compare]
	// Stale are the reports that changed nothing because the claim was no longer the
	// worker's.
	Stale []StaleReport
	// Locked are the reports that changed nothing yet because another transaction had
	// locked the task's row. They should be reported again.
	Locked []Report
	// Requested says how many claims the exchange asked for, apart from those of tasks
	// that continue to their next stage; Granted says how many it got.
	Requested, Granted []int
	// MoreReady says that the stage may have ready tasks that this exchange did not
	// claim: there were more than free slots, or another worker had locked them. It is
	// not set for stages claimed After a position.
	MoreReady []bool
	// LastPosition is the position of the last task that was Granted; zero for none.
	LastPosition []Position
	// NewlyReady says that a reported task became ready in the stage and did not continue:
	// no slot was free, a task before it was ready, or it is to be retried. If the stage
	// was claimed from, it may have been claimed since.
	NewlyReady []bool
	// NextDue is, for stages claimed from, the delay until a task that waits for a time is
	// due: 0 when it is due, negative when none waits.
	NextDue []time.Duration
}

// exchangeSettingsSQL sets up a worker's transaction. Plans are made once per
// connection and must use the indexes whatever the tables' statistics were at that
// moment. The role's statement_timeout does not apply: an exchange has its own, shorter
// than the worker's deadline. The triggers read cuelight.origin.
//
// A transaction that only claims commits asynchronously: a claim lost in a crash of the
// server costs a repeated attempt and never a result.
const exchangeSettingsSQL = `
/* settings of an exchange */
select set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('jit', 'off', true),
       set_config('statement_timeout', '25s', true),
       set_config('cuelight.origin', $2, true),
       {{.TransactionLimits "$4" "$3::uuid"}},
       case when $1 then set_config('synchronous_commit', 'off', true) end`

const originSQL = `
/* set origin */
select set_config('cuelight.origin', $1, true)`

// Values of cuelight.origin: an exchange records in its own statements which stages it
// starts and completes, and the triggers record the rest; a sweep; or a statement that
// records everything itself, for which the triggers do not run.
const originExchange, originSweep, originRecorded = "exchange", "sweep", "recorded"

// maxBatch is how many tasks one statement changes: the number of events that one row
// of the outbox can hold.
const maxBatch = 1024

// Exchange applies reports, continues the reported tasks to their next stages while
// slots are free, and claims other ready tasks: one transaction in one round trip. It
// skips rows that other transactions have locked.
//
// After an error the transaction may or may not have been committed. See
// [Engine.FindRecordedOutcomes] and [Engine.FindHeldClaims].
func (e *Engine) Exchange(ctx context.Context, in ExchangeRequest) (ExchangeResult, error) {
	x := e.newExchange(in)
	x.result.Claims = make([]Claim, 0, len(in.Reports))
	e.queueSettings(ctx, &x.batch, len(in.Reports) == 0, originRecorded, in.Worker)
	x.origin = originRecorded
	for i := range e.stages {
		x.queuePromote(i) // before anything that continues with the promoted tasks
	}
	for i := range e.stages {
		x.queueAgedClaims(i)
	}
	if len(in.Reports) > 0 {
		x.queueReports()
	}
	for i := range e.stages {
		x.queueClaims(i)
	}
	if err := e.db.SendBatch(ctx, &x.batch).Close(); err != nil {
		return ExchangeResult{}, e.explain("exchange", err)
	}
	slices.SortFunc(x.result.Claims, Claim.Compare)
	x.classifyUnapplied(ctx)
	return x.result, nil
}

// queueSettings starts the batch of a worker's transaction.
func (e *Engine) queueSettings(ctx context.Context, batch *pgx.Batch, async bool, origin string, worker store.ID) {
	batch.Queue(e.sql.exchangeSettings, async, origin, worker, fmt.Sprintf("%dms", lockWait(ctx)))
}

// exchange is one [Engine.Exchange] in progress. Slices are by stage.
type exchange struct {
	*Engine
	request        ExchangeRequest
	mayBecomeReady []int  // how many of the reported tasks may be ready afterwards
	retried        []bool // a reported task is to be retried at once
	agedSlots      []int  // slots reserved for aged tasks
	continued      []int  // reported tasks that continued
	batch          pgx.Batch
	origin         string            // as last set in the transaction
	applied        map[store.ID]bool // tokens of the reports that changed a row
	result         ExchangeResult
}

func (e *Engine) newExchange(in ExchangeRequest) *exchange {
	n := len(e.stages)
	return &exchange{
		Engine: e, request: in,
		mayBecomeReady: make([]int, n), retried: make([]bool, n), agedSlots: make([]int, n), continued: make([]int, n),
		result: ExchangeResult{
			Requested: make([]int, n), Granted: make([]int, n), LastPosition: make([]Position, n),
			MoreReady: make([]bool, n), NewlyReady: make([]bool, n), NextDue: noneDue(n),
		},
	}
}

// queueOrigin sets the origin of the following changes, in an exchange.
func (x *exchange) queueOrigin(origin string) {
	if x.origin != origin && x.origin != originSweep {
		x.origin = origin
		x.batch.Queue(originSQL, origin)
	}
}

// slots is how many claims of a stage the exchange may make, apart from aged tasks.
func (x *exchange) slots(stage int) int {
	return min(x.request.FreeSlots[stage], maxBatch) - x.agedSlots[stage]
}

// classifyUnapplied separates the reports that changed nothing: the claims of some are
// lost, the rows of the others were locked. The exchange is committed, so where this
// cannot be found out all count as locked and are reported again.
func (x *exchange) classifyUnapplied(ctx context.Context) {
	var unapplied []Report
	var claims []Claim
	for _, r := range x.request.Reports {
		if !x.applied[r.Token] {
			unapplied = append(unapplied, r)
			claims = append(claims, Claim{Task: r.Task, Stage: r.Stage, Token: r.Token})
		}
	}
	lost, err := x.FindLostClaims(ctx, claims)
	for _, r := range unapplied {
		i := slices.IndexFunc(lost, func(l LostClaim) bool { return l.Token == r.Token })
		if err == nil && i >= 0 {
			x.result.Stale = append(x.result.Stale, StaleReport{r, lost[i].Cancelled})
		} else {
			x.result.Locked = append(x.result.Locked, r)
		}
	}
}

// noneDue is the NextDue of stages where no task waits.
func noneDue(stages int) []time.Duration {
	return slices.Repeat([]time.Duration{-1}, stages)
}
