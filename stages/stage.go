package stages

import (
	"context"
	"math/rand/v2"
	"time"
)

// Work does the work of a stage for one task. Its result is stored as JSON, in the statement
// that completes the stage, and later stages read it with [Result]. A nil result is null.
//
// Work must return when ctx is done. [context.Cause] says why: [ErrTimeout], [ErrStalled],
// [ErrCancelled], [ErrLeaseLost] or [ErrDraining]. After a crash or a lost lease it is called
// again for the same task, so its effects must be safe to repeat.
type Work func(ctx context.Context, job *Job) (result any, err error)

// Stage is one step of a pipeline. Name and Work must be set; every other
// field has a useful zero value.
type Stage struct {
	// Name is the stage's name in columns, logs and commands: lower-case letters, digits and
	// underscores, starting with a letter.
	Name string

	// Needs names the stages that must be completed before this one may start.
	Needs []string

	// Work does the stage's work; of a stage that was divided, what remains when all parts are completed.
	Work Work

	// Divide and Part are for a stage that many processes should work on at once, or whose work is too
	// long to be lost: Divide makes parts of it, Part does one of them, and Work joins their results;
	// see [PartResults]. No claim is held while parts are worked on. A part is retried alone, within
	// the stage's MaxAttempts, and if it is dead, the stage is. Completed parts are kept while the stage
	// is retried, and lost if a stage before it is. Work may ask for further parts, or for some again; see
	// [DivideAgain]. Tasks of one priority share the slots by turns.
	//
	// The Slots are for parts, and so are Requires and a task's Placement. Divide and Work should be short; every
	// process that has them runs two of them at once, whatever its Slots. One that has only Part leaves them
	// to others.
	Divide Divide
	Part   Work

	// Slots is how many attempts one process runs at once in this stage. Default 1; -1: none,
	// the stage is left to other processes. If the work takes milliseconds, the process
	// prefetches some more claims, at most as many again (twice as many in a stage with Needs),
	// and releases them if they have to wait.
	Slots int

	// Requires lists what a worker must offer to do the stage; see [store.Worker.Offers]. A process that
	// does not leaves the stage to others. For single tasks there is [store.Submission].Placement.
	Requires []string

	// MaxAttempts is the number of attempts after which the stage is dead. Default 3.
	MaxAttempts int

	// Timeout fails an attempt that takes longer. Default 0: none.
	Timeout time.Duration

	// Stall fails an attempt without progress for so long. Progress is a call of
	// [Job.Progress] with a new Percent or Note. Default 0: none.
	Stall time.Duration

	// Backoff is the delay after a failed attempt.
	Backoff Backoff
}

// Backoff is the delay between attempts: Base after the first failure, twice that after the
// second, up to Max. Each is varied at random by up to a fifth, so that tasks that failed
// together are not retried together.
type Backoff struct {
	Base time.Duration // default 2 s
	Max  time.Duration // default 10 min
}

const (
	defaultMaxAttempts = 3
	defaultBackoffBase = 2 * time.Second
	defaultBackoffMax  = 10 * time.Minute
)

func (s Stage) withDefaults() Stage {
	if s.Slots == 0 {
		s.Slots = 1
	}
	s.Slots = max(s.Slots, 0)
	if s.MaxAttempts == 0 {
		s.MaxAttempts = defaultMaxAttempts
	}
	if s.Backoff.Base == 0 {
		s.Backoff.Base = defaultBackoffBase
	}
	if s.Backoff.Max == 0 {
		s.Backoff.Max = max(defaultBackoffMax, s.Backoff.Base)
	}
	return s
}

// joinSlots is how many tasks of a stage a process divides or joins at once.
func (s *Stage) joinSlots() int {
	if s.Divide == nil {
		return 0
	}
	return 2
}

// retryDelay is [Pipeline.RetryDelay] of one stage.
func (s *Stage) retryDelay(attempt int) (delay time.Duration, again bool) {
	if attempt >= s.MaxAttempts {
		return 0, false
	}
	return jitter(s.Backoff.after(attempt)), true
}

// after is the delay after an attempt, 1 for the first, before it is varied.
func (b Backoff) after(attempt int) time.Duration {
	d := b.Base
	for range attempt - 1 {
		if d >= b.Max/2 {
			return b.Max
		}
		d *= 2
	}
	return min(d, b.Max)
}

// jitter varies d by up to a fifth.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}
