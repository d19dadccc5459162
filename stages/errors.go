package stages

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Why a job's context ended; see [context.Cause].
var (
	// ErrLeaseLost: the claim is no longer this worker's, because the others
	// had no sign of life of it. Nothing it does now will be kept.
	ErrLeaseLost = errors.New("lease lost")
	// ErrCancelled: the task was cancelled, deleted, or is to be done again.
	// Nothing the worker does now will be kept.
	ErrCancelled = errors.New("task was cancelled")
	// ErrDraining: the process stops and the grace is over. The claim goes
	// back without counting as an attempt.
	ErrDraining = errors.New("process is stopping")
	// ErrTimeout: the attempt took longer than the stage's Timeout.
	ErrTimeout = errors.New("attempt timed out")
	// ErrStalled: the attempt made no progress for the stage's Stall.
	ErrStalled = errors.New("attempt made no progress")
)

// ErrStubborn is what [Runner.Run] returns when a stage's Work did not return
// although its context was done, and the process was to stop.
var ErrIgnoredCancel = errors.New("work does not heed its context")

// errStubborn is what such work failed with.
var ignoredCancelError = fmt.Errorf("%w: it went on for %s after that", ErrIgnoredCancel, cancelGrace)

func newIgnoredCancelError(all []*attempt) error {
	var names []string
	for _, a := range all {
		names = append(names, fmt.Sprintf("%s of task %s", a.stage.Name, a.claim.Task))
	}
	return fmt.Errorf("%w: %s", ErrIgnoredCancel, strings.Join(names, ", "))
}

// errGoexit is what Work that ends its goroutine instead of returning failed with.
var errGoexit = errors.New("work ended its goroutine without returning")

// errRevoked marks the causes that say that the claim is certainly somebody
// else's or nobody's: there is nothing to report any more.
var errRevoked = errors.New("claim was taken back")

// lostFor is why a claim that is lost was lost.
func lostFor(cancelled bool) error {
	if cancelled {
		return ErrCancelled
	}
	return ErrLeaseLost
}

// Permanent marks an error that no further attempt can mend: the stage is dead
// at once. A nil error stays nil.
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

// RetryAfter marks an error after which the next attempt should wait d instead
// of the stage's Backoff. It counts as an attempt like any other. A nil error
// stays nil.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &delayError{err: err, after: d, counts: true}
}

// Postpone marks an error that is not the task's: this host, or something else
// that everybody needs, has to be mended first. The claim is given back without
// counting as an attempt, and the next one waits for d, or for as long as this
// one took if that is longer. There is no limit to how often: what keeps a task
// from being done for ever should fail it. A nil error stays nil.
//
// Until an attempt ends otherwise, the process claims only one task of the stage at a
// time, as a try, after pauses that grow from a second to d. So it is not for what
// concerns one task alone; see [PostponeTask] and [RetryAfter].
//
// Of several marks of [RetryAfter], Postpone and PostponeTask on one error the
// outermost counts.
func Postpone(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &delayError{err: err, after: d}
}

// PostponeTask is [Postpone] for what this task waits for and others do not: room for
// a large file on a disk where small ones fit, a directory of its own. The stage is not
// suspended: the process goes on with the other tasks. A nil error stays nil.
func PostponeTask(d time.Duration, err error) error {
	if err == nil {
		return nil
	}
	return &delayError{err: err, after: d, alone: true}
}

type delayError struct {
	err    error
	after  time.Duration
	counts bool
	alone  bool // it concerns no other task
}

func (e *delayError) Error() string { return e.err.Error() }
func (e *delayError) Unwrap() error { return e.err }

// RetryDelay is the pause that err, or one it wraps, asks for with
// [RetryAfter], [Postpone] or [PostponeTask], and whether there is one.
func RetryDelay(err error) (time.Duration, bool) {
	later, ok := errors.AsType[*delayError](err)
	if !ok {
		return 0, false
	}
	return max(later.after, 0), true
}

// IsPostponed reports whether err was marked by [Postpone] or [PostponeTask].
func IsPostponed(err error) bool {
	later, ok := errors.AsType[*delayError](err)
	return ok && !later.counts
}

// SuspendsStage reports whether err was marked by [Postpone], so that the process which
// meets it suspends the stage.
func SuspendsStage(err error) bool {
	later, ok := errors.AsType[*delayError](err)
	return ok && !later.counts && !later.alone
}

// panicError is what a panic in Work becomes.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n\n%s", e.value, e.stack) }
