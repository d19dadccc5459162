package stages

import (
	"time"

	"github.com/cuelight/cuelight/store"
)

// Kind is the kind of an [Event]. Kinds that are also events in the database have the name
// and the value of their store.EventType.
type Kind string

// The kinds of events. Those about claims are reported once the database has recorded them.
const (
	StageStarted   Kind = "started"         // an attempt starts
	StageProgress  Kind = "progress"        //
	StageCompleted Kind = "stage_completed" //
	AttemptFailed  Kind = "attempt_failed"  // RetryIn is the delay of the retry
	StageDead      Kind = "dead"            // the last allowed attempt failed
	ClaimReleased  Kind = "released"        // the claim was released, before or after its start; not counted as an attempt; RetryIn is its delay
	ClaimRevoked   Kind = "revoked"         // the claim was cancelled or lost; its outcome is not recorded

	WorkerStarted       Kind = "worker_started"   // the process is registered
	WorkerDraining      Kind = "worker_draining"  // no more claims; Count attempts are running
	WorkerStopped       Kind = "worker_stopped"   // the process deregistered
	WorkerLost          Kind = "worker_lost"      // the lease of the worker Gone ran out, or its process ended
	AttemptsExpired     Kind = "attempts_expired" // Count claims of lost workers were expired
	WakeMissed          Kind = "wake_missed"      // only the sweep found Count tasks of Stage: no notification announced them
	StagePaused         Kind = "stage_paused"     // an operator paused Stage
	StageSuspended      Kind = "stage_suspended"  // claims of Stage stop because of Err, which [Postpone] marked; one task at a time is tried
	StageResumed        Kind = "stage_resumed"    // after StagePaused or StageSuspended
	DatabaseLost        Kind = "database_lost"    // requests fail with Err; reported once per outage
	DatabaseBack        Kind = "database_back"
	ClaimsUnchecked     Kind = "claims_unchecked"      // the database takes heartbeats but does not check claims, because of Err; reported once
	TransactionLeftOpen Kind = "transaction_left_open" // the lost worker Gone has an open transaction, with locks, that this role may not end; reported once
	PruneFailed         Kind = "prune_failed"          // old events could not be deleted, because of Err; reported once
)

// Event is one thing that happened in a Runner. Fields that do not apply are zero.
type Event struct {
	Kind    Kind
	Worker  store.ID
	Gone    store.ID
	Task    store.ID
	Stage   string
	Attempt int
	// Traceparent is the trace context of the task's submission.
	Traceparent string
	Duration    time.Duration // of the attempt
	Waited      time.Duration // StageStarted: how long the stage was ready
	Woken       bool          // StageStarted: a slot was free, so that only the notification was waited for
	Aged        bool          // StageStarted: claimed before tasks of higher priority; see Runner.AgeAfter
	RetryIn     time.Duration
	Progress    Progress
	Count       int
	Err         error
}
