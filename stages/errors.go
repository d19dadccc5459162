package stages

import (
	"errors"
	"fmt"
	"time"
)

// Why a job's context ended; see [context.Cause].
var (
	// ErrLeaseLost: this worker missed its heartbeats and lost the claim. The outcome will
	// not be recorded.
	ErrLeaseLost = errors.New("lease lost")
	// ErrCancelled: the task was cancelled, deleted or retried. The outcome will not be
	// recorded.
	ErrCancelled = errors.New("task was cancelled")
	// ErrDraining: the process is stopping and the grace is over. The claim is released
	// and not counted as an attempt.
	ErrDraining = errors.New("process is stopping")
	// ErrTimeout: the attempt took longer than the stage's Timeout.
	ErrTimeout = errors.New("attempt timed out")
	// ErrStalled: the attempt made no progress for the stage's Stall.
	ErrStalled = errors.New("attempt made no progress")
)

// ErrIgnoredCancel is returned by [Runner.Run] when the process stopped although a stage's
// Work had not returned after its context was done.
var ErrIgnoredCancel = errors.New("work ignored its cancelled context")

// cancelGrace is how long Work may go on after its cancel.
const cancelGrace = 15 * time.Second

// errIgnoredCancel is the error of an attempt that went on for longer.
var errIgnoredCancel = fmt.Errorf("%w for %s", ErrIgnoredCancel, cancelGrace)

// Prefetched claims end with one of these errors before they have started.
var (
	errPaused    = errors.New("stage is paused")
	errSuspended = errors.New("stage is suspended on this host")
	errNoSlot    = errors.New("no slot came free in time")
)

// errGoexit is the error of an attempt whose Work ended its goroutine.
var errGoexit = errors.New("work ended its goroutine without returning")

// errRevoked marks causes that say that the claim is certainly lost: nothing is reported.
var errRevoked = errors.New("claim was revoked")

// claimLostError is the error for a lost claim.
func claimLostError(cancelled bool) error {
	if cancelled {
		return ErrCancelled
	}
	return ErrLeaseLost
}

// Permanent marks an error that a retry cannot change: the stage is dead at once. A nil
// error stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// IsPermanent reports whether err, or one it wraps, was marked by [Permanent].
func IsPermanent(err error) bool {
	var p *permanentError
	return errors.As(err, &p)
}

// RetryAfter marks an error after which the next attempt waits for d instead of the
// stage's Backoff. The attempt counts. A nil error stays nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &delayError{err: err, after: d, counts: true}
}

// Postpone marks an error that is not the task's: this host, or a service that every task
// needs, must be repaired first. The claim is released and not counted as an attempt. There
// is no limit, so an error that will never go away should fail the attempt. A nil error
// stays nil.
//
// Until an attempt ends otherwise, the process claims only one task of the stage at a time,
// to try. The pauses between tries, and the waits of the postponed tasks, grow with the
// problem: each is a quarter of the time for which it has lasted, from a second up to d. A
// task whose attempts are longer than d may wait for as long as one took. For an error of
// one task alone, or a wait of exactly d, use [PostponeTask] or [RetryAfter]; for a resource
// that attempts share, [PostponeUntilIdle]. The outermost of several marks counts.
func Postpone(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &delayError{err: err, after: d}
}

// PostponeUntilIdle is [Postpone] for what attempts of the stage on this host share, such as
// space on a disk: the process claims no task of the stage while an attempt of it runs. A nil
// error stays nil.
func PostponeUntilIdle(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &delayError{err: err, after: d, untilIdle: true}
}

// PostponeTask is [Postpone] for an error that other tasks do not meet: space for a large
// file on a disk where small ones fit, a directory of its own. The next attempt waits for d,
// or for as long as this one took if that is longer. The stage is not suspended. A nil error
// stays nil.
func PostponeTask(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &delayError{err: err, after: d, alone: true}
}

type delayError struct {
	err       error
	after     time.Duration
	counts    bool
	alone     bool // other tasks do not meet it
	untilIdle bool // attempts that run may be the reason
}

func (e *delayError) Error() string { return e.err.Error() }
func (e *delayError) Unwrap() error { return e.err }

// RetryDelay returns the delay that err, or an error it wraps, asks for with [RetryAfter],
// [Postpone], [PostponeUntilIdle] or [PostponeTask], and whether it does.
func RetryDelay(err error) (time.Duration, bool) {
	later, ok := errors.AsType[*delayError](err)
	if !ok {
		return 0, false
	}
	return max(later.after, 0), true
}

// IsPostponed reports whether err was marked by [Postpone], [PostponeUntilIdle] or
// [PostponeTask].
func IsPostponed(err error) bool {
	later, ok := errors.AsType[*delayError](err)
	return ok && !later.counts
}

// SuspendsStage reports whether err was marked by [Postpone] or [PostponeUntilIdle], so that
// the process suspends the stage.
func SuspendsStage(err error) bool { return suspendsStage(err) != nil }

// suspendsStage returns the mark of an error that suspends the stage, or nil.
func suspendsStage(err error) *delayError {
	later, ok := errors.AsType[*delayError](err)
	if !ok || later.counts || later.alone {
		return nil
	}
	return later
}

// panicError is the error of an attempt whose Work panicked.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n\n%s", e.value, e.stack) }
