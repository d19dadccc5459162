package stages

import (
	"time"

	"github.com/cuelight/cuelight/store"
)

// Kind says what an [Event] tells.
type Kind string

// What a Runner tells its Observe function. What concerns a claim is told
// once the database has it, so that it stays true.
const (
	StageStarted   Kind = "started"         // work on a claim begins
	StageProgress  Kind = "progress"        // how far it is
	StageCompleted Kind = "stage_completed" // the stage is completed
	AttemptFailed  Kind = "attempt_failed"  // the attempt failed; RetryIn says when the next may start
	StageDead      Kind = "dead"            // the attempt failed and was the last
	ClaimReleased  Kind = "released"        // the claim was given back, begun or not, and is not counted as an attempt; RetryIn says how long it waits
	ClaimRevoked   Kind = "revoked"         // the claim was cancelled or lost, begun or not; what was done is thrown away

	WorkerStarted   Kind = "worker_started" // the process is known to the database, as Worker
	DatabaseLost    Kind = "database_lost"  // Err says why; told once, until it is back
	DatabaseBack    Kind = "database_back"
	WorkerLost      Kind = "worker_lost"      // Gone was given up: it is not there any more, or was silent too long
	AttemptsExpired Kind = "attempts_expired" // Count claims of workers that went away were freed
	WakeMissed      Kind = "wake_missed"      // Count claims of Stage were found by the sweep alone: nobody was woken for them
	StagePaused     Kind = "stage_paused"     // nothing is claimed of Stage, because somebody wants it so
	StageResumed    Kind = "stage_resumed"    // it is again, after Paused or Suspended
	StageSuspended  Kind = "stage_suspended"  // nothing is claimed of Stage for a while, but one task now and then as a try: Err, which [Postpone] marked, would meet every task
	PruneFailed     Kind = "prune_failed"     // old events could not be deleted: Err says why; told once, until they can
	// ClaimsUnchecked: the database takes the heartbeats and does not say which claims
	// are still held: Err says why; told once, until it does.
	ClaimsUnchecked Kind = "claims_unchecked"
	// TransactionLeft: Gone was given up, or is to be, and has left a transaction open
	// with its locks, which this role may not end; told once for each.
	TransactionLeftOpen Kind = "transaction_left_open"
	WorkerDraining      Kind = "worker_draining" // no more claims; Count are still being worked on
	WorkerStopped       Kind = "worker_stopped"  // the process gave back what it held
)

// Event is one thing that happened in a Runner.
type Event struct {
	Kind    Kind
	Worker  store.ID
	Gone    store.ID
	Task    store.ID
	Stage   string
	Attempt int
	// Traceparent is that of the task's submission; empty for none.
	Traceparent string
	Duration    time.Duration // of the work
	Waited      time.Duration // what is started: for how long it could have been claimed, by the database's clock
	Woken       bool          // … and slots were free, so that only the news of it was waited for
	Aged        bool          // … and it began before tasks of higher priority, as it had waited for the Runner's AgeAfter
	RetryIn     time.Duration
	Progress    Progress
	Count       int
	Err         error
}
