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
	// Attempts and claims. StageDead: the last allowed attempt failed. A released claim may
	// not have started, and is not counted as an attempt; RetryIn is its delay, as that of a
	// failed attempt. A revoked claim was cancelled or lost; its outcome is not recorded.
	StageStarted   Kind = "started"
	StageProgress  Kind = "progress"
	StageDivided   Kind = "divided" // into Count parts, of which Kept stay; Err if DivideAgain got one
	PartCompleted  Kind = "part_completed"
	StageCompleted Kind = "stage_completed"
	AttemptFailed  Kind = "attempt_failed"
	StageDead      Kind = "dead"
	ClaimReleased  Kind = "released"
	ClaimRevoked   Kind = "revoked"

	// This worker registered, drains (Count attempts are running), or deregistered.
	WorkerStarted  Kind = "worker_started"
	WorkerDraining Kind = "worker_draining"
	WorkerStopped  Kind = "worker_stopped"

	// The lease of LostWorker ran out, or its process ended; Count claims of lost workers
	// were expired. TransactionLeftOpen: LostWorker left a transaction open, with locks, that this
	// role may not end; reported once.
	WorkerLost          Kind = "worker_lost"
	AttemptsExpired     Kind = "attempts_expired"
	TransactionLeftOpen Kind = "transaction_left_open"

	// Only the sweep found Count tasks of Stage: no notification announced them.
	WakeMissed Kind = "wake_missed"

	// A sweep has ended; the next one is due in RetryIn.
	SweepEnded Kind = "sweep_ended"

	// An operator paused Stage; or it is suspended because of Err, which [Postpone] marked, so
	// that only one task at a time is tried; or claims go on.
	StagePaused    Kind = "stage_paused"
	StageSuspended Kind = "stage_suspended"
	StageResumed   Kind = "stage_resumed"

	// Requests to the database fail with Err, or succeed again. The first is reported once per outage, and again, after
	// half a minute or later, with another Err.
	DatabaseUnavailable Kind = "database_unavailable"
	DatabaseAvailable   Kind = "database_available"

	// The published files of a deleted Task were removed; all its files and its rows were removed.
	TaskUnpublished Kind = "unpublished"
	TaskPurged      Kind = "purged"

	// Old rows were deleted: those in Pruned, and Count by Retention.PruneOthers; or Count rows of the outbox.
	RowsPruned   Kind = "rows_pruned"
	EventsPruned Kind = "events_pruned"

	// The database takes heartbeats but does not check claims; it answers, but not to the sweep in time; old rows could not be
	// deleted; deleted tasks could not be removed. All because of Err, and reported once.
	ClaimsUnchecked Kind = "claims_unchecked"
	SweepFailed     Kind = "sweep_failed"
	PruneFailed     Kind = "prune_failed"
	RemovalFailed   Kind = "removal_failed"
)

// Event is one thing that happened in a Runner. Fields that do not apply are zero.
type Event struct {
	Kind       Kind
	Worker     store.ID
	LostWorker store.ID
	LostName   string // of LostWorker, in WorkerLost
	// Predecessor: LostWorker is an earlier process on this machine, found when this one started. It
	// ended without stopping.
	Predecessor bool
	Task        store.ID
	Stage       string
	Part, Parts int // of a divided stage: the number of a part, counted from 1, and how many there are
	Attempt     int
	// Traceparent is the trace context of the task's submission.
	Traceparent string
	Duration    time.Duration // of the attempt
	Reporting   time.Duration // StageCompleted, PartCompleted: from its end until it was recorded, with the check of a coordinator
	Waited      time.Duration // StageStarted: how long the stage was ready
	Woken       bool          // StageStarted: a slot was free, so that only the notification was waited for
	Aged        bool          // StageStarted: claimed before tasks of higher priority; see Runner.AgeAfter
	RetryIn     time.Duration
	Progress    Progress
	Count       int
	Kept        int
	Pruned      store.PruneResult
	Err         error
}
