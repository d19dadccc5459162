package engine

import (
	"bytes"
	"cmp"
	"encoding/json"
	"time"

	"github.com/cuelight/cuelight/store"
)

// Outcome is how an attempt ended.
type Outcome string

// The outcomes that a worker reports. The history has two more: expired, of a lost
// worker's claim, and cancelled, of a claim that was revoked.
const (
	Completed Outcome = "completed"
	Divided   Outcome = "divided"  // the stage was divided into parts; see Report.Counted
	Failed    Outcome = "failed"   // the work returned an error
	Released  Outcome = "released" // the worker returned the claim; not counted as an attempt
)

// Claim is a worker's right to work on one stage of one task, or on one part of a divided stage.
// Its token is unique for ever: a report with another token changes nothing.
type Claim struct {
	Task    store.ID
	Stage   int // its number in the [store.Graph]
	Part    int // of the stage, counted from 1; 0: the stage itself
	Token   store.ID
	Attempt int

	// Parts is how many parts the stage was divided into, 0 if it was not; without a Part, all are
	// completed. Spec is that of the Part.
	Parts int
	Spec  json.RawMessage

	Priority    int16
	Source      string
	Params      json.RawMessage
	UserID      string
	Traceparent string // of the submission; empty for none

	// Aged says that it was claimed before tasks of higher priority, because it had
	// waited for long; see [SweepRequest].AgeAfter.
	Aged bool

	turn int64 // of the part, as in the database

	// Waited is how long the stage was ready, by the database's clock: since the
	// submission, its scheduled time, or a retry. It is 0 where the stage was claimed
	// in the exchange that completed the stages it needs.
	Waited time.Duration
}

// Compare orders claims as they should be started: by stage; within a stage aged tasks
// first, then stages, then parts, by priority and id.
func (c Claim) Compare(d Claim) int {
	if c.Stage == d.Stage && c.Aged != d.Aged {
		if c.Aged {
			return -1
		}
		return 1
	}
	if c.Stage == d.Stage && (c.Part > 0 || d.Part > 0) {
		return cmp.Or(cmp.Compare(min(c.Part, 1), min(d.Part, 1)), cmp.Compare(d.Priority, c.Priority), cmp.Compare(c.turn, d.turn),
			bytes.Compare(d.Task[:], c.Task[:]))
	}
	return cmp.Or(cmp.Compare(c.Stage, d.Stage), c.position().compare(d.position()))
}

func (c Claim) position() Position { return Position{c.Priority, c.Task} }

// Report is the outcome of an attempt.
type Report struct {
	Task    store.ID
	Stage   int
	Part    int // as of the Claim
	Token   store.ID
	Outcome Outcome

	Result json.RawMessage   // of a completed stage or part; nil is null
	Parts  []json.RawMessage // of a divided stage: the specs of its parts, at least one

	// Of a stage that its join divides again: the numbers of the completed parts that stay as they are, whose
	// specs are ignored, not of all; and whether the join counts as an attempt, because of Error. Other
	// divisions do not.
	Kept    []int
	Counted bool

	Error   string        // why an attempt failed, a claim was released, or a stage was divided again
	Class   string        // the kind of error, one word, for the history
	Dead    bool          // of a failed attempt: it was the last, the stage is dead
	RetryIn time.Duration // otherwise: the delay before the stage is ready again
}

// resultText is the parameter for the result.
func (r *Report) resultText() *string {
	if r.Result == nil {
		return nil
	}
	text := string(r.Result)
	return &text
}

// ExchangeRequest is what a worker reports, how many tasks it can take, and where it
// should look for them. Slices are by queue, see [store.Graph].Queues, except Reports and
// OnlyTasks; shorter ones have zeros at their ends.
type ExchangeRequest struct {
	Worker     store.ID
	Reports    []Report
	FreeSlots  []int        // how many claims it can take, counting the slots of Reports
	ClaimFrom  []bool       // whether ready tasks should be claimed
	PromoteDue []bool       // whether tasks that waited for a time may be due
	OnlyTasks  []store.ID   // the only tasks to claim; nil for all
	Aged       [][]store.ID // tasks to claim first, from [SweepResult].Aged; nil for none

	// MaxRunningPerUser limits the tasks of each user that have started and are not finished, not counting those that wait
	// for a retry of a stage without needs, by claiming no more for such stages. Of processes with a limit one claims
	// at a time, so it is exact. Aged and OnlyTasks do not keep to it. Default 0: no limit.
	MaxRunningPerUser int

	// After limits the claims of a stage, not of parts, to ready tasks after a position, so that an exchange
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

// CheckingReport is a report of a completed stage whose files are being checked.
type CheckingReport struct {
	Report
	Pause time.Duration // when to report again
}

// ExchangeResult is the database's answer. Slices from Requested on are by queue.
type ExchangeResult struct {
	Claims []Claim // in the order of [Claim.Compare]
	// Stale are the reports that changed nothing because the claim was no longer the
	// worker's.
	Stale []StaleReport
	// Locked are the reports that changed nothing yet because another transaction had
	// locked the task's row. They should be reported again.
	Locked []Report
	// Refused are the reports of completed stages that a coordinator recorded as failed, as they
	// were recorded, because it refuses the results of its remote worker. The database refuses none.
	Refused []Report
	// Checking are the reports that a coordinator has not recorded yet, because it checks the files
	// of its remote worker. The database checks none.
	Checking []CheckingReport
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
