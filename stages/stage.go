package stages

import (
	"context"
	"math/rand/v2"
	"time"
)

// Work does a stage's job for one task. What it returns becomes the stage's
// result: it is kept as JSON in the same statement that completes the stage,
// and the stages that depend on this one read it with [Result]. A nil result
// is kept as null.
//
// Work must return when ctx is done. [context.Cause] says why: [ErrTimeout],
// [ErrStalled], [ErrCancelled], [ErrLeaseLost] or [ErrDraining]. It
// may be called again for the same task at any time after it has begun (a
// crash, a lost lease), so what it leaves behind must be safe to do twice.
type Work func(ctx context.Context, job *Job) (result any, err error)

// Stage is one step of a pipeline. Name and Work must be set; every other
// field has a useful zero value.
type Stage struct {
	// Name is the stage's word everywhere: in the table's columns, in logs and
	// on the command line. Lower-case letters, digits and underscores,
	// beginning with a letter.
	Name string

	// Needs names the stages that must be completed before this one may start.
	Needs []string

	// Work does it.
	Work Work

	// Workers is the number of slots: how many tasks one process works on at
	// once in this stage. Default 1. With -1 this process does none of it, and
	// leaves the stage to others. Of work that takes milliseconds it claims a few
	// more ahead, at most as many again (in a stage that needs others twice as many),
	// and gives them back if they have to wait.
	Workers int

	// MaxAttempts is how often the stage is tried before it is dead. Default 3.
	MaxAttempts int

	// Timeout ends an attempt that takes longer; the attempt fails. Default 0:
	// none.
	Timeout time.Duration

	// Stall ends an attempt that makes no progress for so long; the attempt
	// fails. What counts is a call of [Job.Progress] with another Percent or
	// Note than the one before. Default 0: none.
	Stall time.Duration

	// Backoff is the pause after a failed attempt.
	Backoff Backoff
}

// Backoff is the pause between attempts of a stage: Base after the first
// failure, twice that after the second and so on up to Max, each changed at
// random by up to a fifth either way so that tasks which failed together do
// not come back together.
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
	if s.Workers == 0 {
		s.Workers = 1
	}
	s.Workers = max(s.Workers, 0)
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

// after is the pause after the given attempt, 1 for the first, before chance
// has its say.
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

// jitter changes d by up to a fifth either way.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}
