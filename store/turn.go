package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Outcome is how a claim ended.
type Outcome string

// The outcomes a worker may report. The history has two more: expired, for a
// claim whose worker went away, and cancelled, for one that was taken back.
const (
	Completed Outcome = "completed" // the work was done
	Failed    Outcome = "failed"    // the work returned an error
	Released  Outcome = "released"  // given back; not counted as an attempt
)

// Claim is one stage of one task, held by one worker. The token names it for
// ever: whatever is reported for another token changes nothing.
type Claim struct {
	Task    ID
	Stage   int // its number in the [Graph]
	Token   ID
	Attempt int

	Priority    int16
	Source      string
	Params      json.RawMessage
	UserID      string
	Traceparent string // of the submission; empty for none

	// Aged says that it was claimed before tasks of higher priority, because it had
	// waited for long; see [Sweep].
	Aged bool

	// Waited is for how long the stage could have been claimed, by the database's
	// clock; 0 where it was claimed with what it needs. What was submitted for later
	// waits from then on, and what is done again from when [Store.Retry] was called.
	Waited time.Duration
}

// Report says how a claim ended.
type Report struct {
	Task    ID
	Stage   int
	Token   ID
	Outcome Outcome

	Result json.RawMessage // of a completed stage; nil is null

	Error   string        // of a failed one, or why it was given back
	Class   string        // what kind of error, a word; kept in the history
	Dead    bool          // a failed one: no further attempt, the stage is dead
	RetryIn time.Duration // otherwise, and for one given back: how long until the next
}

// Turn is what a dispatcher hands in: what its workers did since the last
// turn, what they could take on, and where to look for it.
type ExchangeRequest struct {
	Worker     ID
	Reports    []Report
	FreeSlots  []int  // by stage: how many claims it can take, reports included
	ClaimFrom  []bool // by stage: whether something may be waiting there
	PromoteDue []bool // by stage: whether a time that tasks wait for has come
	OnlyTasks  []ID   // the tasks to claim from; nil for all
	Aged       [][]ID // by stage looked at: tasks to claim before all others, as [Store.Sweep] has found them; nil for none

	// After makes a turn look in a stage only at what is ready after a place,
	// where nothing was claimed since the last vacuum that it had to go past. It
	// is for stages where more is sure to be waiting than Free. Nil, or a zero
	// Place, for all that is ready. Of a stage that the tasks reported may be ready
	// for, the turn looks at all in any case.
	After []Position
}

// Place is one in the order in which the ready tasks of a stage are claimed. The
// tasks after it are those of the same priority that were submitted later.
type Position struct {
	Priority int16
	Task     ID
}

// StaleReport is a report of a claim that was lost.
type StaleReport struct {
	Report
	Cancelled bool // as in [LostClaim]
}

// Turned is what a dispatcher gets back.
type ExchangeResult struct {
	Claims []Claim // in the order of [Claim.Compare]
	// Stale are the reports that changed nothing, because the claim was no
	// longer the worker's.
	Stale []StaleReport
	// Locked are the reports that changed nothing yet, because somebody else
	// had the task's row locked. They are to be handed in again.
	Locked []Report
	// Asked says, by stage, how many claims were asked for beside those that go
	// on with the tasks reported, and Found how many of them there were.
	Requested, Granted []int
	// Left says, by stage, that there may be something to claim which this turn
	// did not get: there were more tasks than free slots, or another worker had
	// the row locked just then. Of a stage looked at After a place it is not known.
	MoreReady []bool
	// Last is, by stage, the place of the last one Found; zero for none.
	LastPosition []Position
	// Yielded says, by stage, that a task reported is ready there since, and was not
	// gone on with: no slot was free, or one that comes before it was waiting, or it is
	// to be tried again. If the stage was looked at, it may have been claimed since.
	NewlyReady []bool
	// Next is, by stage looked at, how long until the earliest time that a
	// task waits for, 0 when that has come; negative where none waits.
	NextDue []time.Duration
}

// settings of a turn. The shape of its plans must not depend on how large the
// table was, or was thought to be, when a connection made them, so they are
// made once, for all parameters, and by the indexes. What a role is set to allow
// its people's statements is not meant for these, which have a limit of their
// own, shorter than the patience of those who send them.
//
// A claim that is lost with a crash of the server costs a repeated attempt and
// never a result, so a turn that only claims does not wait for the disk.
//
// The triggers are told who makes the changes, see madeBySQL.
//
// A turn does not wait for a lock on a whole table, as of an alter or a vacuum full: the
// connection may be the only one, and the heartbeat needs it, too.
//
// A process that stands still in the middle of a request leaves its transaction open,
// with all its locks, and the server takes it for active. So the transaction says in
// application_name whose it is, and is ended with its worker ([Store.Sweep]): nothing
// needs to be written down of a worker's connections, of which it uses several and
// which a pooler may share out anew, and no process id is ever that of another by
// now. Where the server has a limit for whole transactions, it ends by itself.
const exchangeSettingsSQL = `
/* settings */
select set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('jit', 'off', true),
       set_config('statement_timeout', '25s', true),
       set_config('cuelight.origin', $2, true),
       set_config('lock_timeout', $4, true),
       set_config('application_name', 'cuelight ' || $3::uuid, true),
       case when current_setting('server_version_num')::integer >= 170000
            then set_config('transaction_timeout', '30s', true) end,
       case when $1 then set_config('synchronous_commit', 'off', true) end`

const originSQL = `
/* say who makes the changes */
select set_config('cuelight.origin', $1, true)`

// The maker of the changes of a transaction, as the triggers know it: a sweep, or a turn,
// which records in its own statements what it starts and completes. The triggers do
// the rest. Where there is no rest, the statements say so, and the triggers are not
// called at all.
const originExchange, originSweep, originRecorded = "exchange", "sweep", "recorded"

// queueSettings begins a batch of a worker's.
func queueSettings(ctx context.Context, batch *pgx.Batch, async bool, madeBy string, worker ID) {
	batch.Queue(exchangeSettingsSQL, async, madeBy, worker, fmt.Sprintf("%dms", lockWait(ctx)))
}

// batchTasks is how many tasks one statement of a turn changes at the most: an
// event's id has room for that many in one row of the outbox.
const batchTasks = 1024

// Turn is the dispatcher's step, one round trip and one transaction: it
// applies the reports, goes on with the next stages of the same tasks while
// slots are free, and claims what else is ready in the stages to look at. It
// waits for nobody's locks.
//
// After an error nothing may be assumed: the transaction may have been
// committed all the same. See [Store.Settled] and [Store.Held].
func (s *Store) Exchange(ctx context.Context, in ExchangeRequest) (ExchangeResult, error) {
	stages := len(s.graph.nodes)
	t := exchange{store: s, request: in, mayBecomeReady: make([]int, stages), retried: make([]bool, stages), agedSlots: make([]int, stages), continued: make([]int, stages)}
	t.result = ExchangeResult{
		Claims:    make([]Claim, 0, len(in.Reports)),
		Requested: make([]int, stages), Granted: make([]int, stages), LastPosition: make([]Position, stages),
		MoreReady: make([]bool, stages), NewlyReady: make([]bool, stages), NextDue: noneDue(stages),
	}
	queueSettings(ctx, &t.batch, len(in.Reports) == 0, originRecorded, in.Worker)
	t.origin = originRecorded
	for i := range stages {
		t.queuePromote(i) // before anything later goes on
	}
	for i := range stages {
		t.queueAgedClaims(i)
	}
	if len(in.Reports) > 0 {
		t.queueReports()
	}
	for i := range stages {
		t.queueClaimStage(i)
	}
	if err := s.db.SendBatch(ctx, &t.batch).Close(); err != nil {
		return ExchangeResult{}, s.explain("dispatch", err)
	}
	slices.SortFunc(t.result.Claims, Claim.Compare)
	t.classifyUnapplied(ctx)
	return t.result, nil
}

// tell the triggers who makes the changes of the statements to come, in a turn.
func (t *exchange) queueOrigin(madeBy string) {
	if t.origin != madeBy && t.origin != originSweep {
		t.origin = madeBy
		t.batch.Queue(originSQL, madeBy)
	}
}

// never is the Next of stages where nothing waits.
func noneDue(stages int) []time.Duration {
	all := make([]time.Duration, stages)
	for i := range all {
		all[i] = -1
	}
	return all
}

// turn is one Turn being made.
type exchange struct {
	store          *Store
	request        ExchangeRequest
	mayBecomeReady []int  // by stage: how many of the tasks reported may be ready for it
	retried        []bool // by stage: a task reported is to be tried again at once
	agedSlots      []int  // by stage: how many slots are for aged tasks
	continued      []int  // by stage: how many of them go on
	batch          pgx.Batch
	origin         string      // what the triggers were told last
	applied        map[ID]bool // tokens of the reports that changed a row
	result         ExchangeResult
}

// sortOut tells the reports that changed nothing apart: those whose rows were
// locked by somebody else, and those whose claims, or tasks, are gone. The turn
// is committed, so where that cannot be found out they are taken to have been
// locked: they will come again.
func (t *exchange) classifyUnapplied(ctx context.Context) {
	var vain []Report
	var claims []Claim
	for _, r := range t.request.Reports {
		if !t.applied[r.Token] {
			vain = append(vain, r)
			claims = append(claims, Claim{Task: r.Task, Stage: r.Stage, Token: r.Token})
		}
	}
	lost, err := t.store.FindLostClaims(ctx, claims)
	for _, r := range vain {
		i := slices.IndexFunc(lost, func(l LostClaim) bool { return l.Token == r.Token })
		if err == nil && i >= 0 {
			t.result.Stale = append(t.result.Stale, StaleReport{r, lost[i].Cancelled})
		} else {
			t.result.Locked = append(t.result.Locked, r)
		}
	}
}
