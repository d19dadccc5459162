// Package contest is what the benchmark asks of everything it measures: to
// take tasks through the five stages of the video pipeline, with work that does
// nothing, or waits for a fixed time.
//
//	ingest ──▶ transcode ──┐
//	      └──▶ metadata  ──┴──▶ assemble ──▶ publish
//
// A [Contestant] knows a system and its best sensible settings. Its [Crew] is
// one process of it at work. The packages beside this one have a contestant
// each; the workloads know none of them.
package harness

import (
	"context"
	"time"
)

// Stage is one of the five.
type Stage int

// The stages, in an order in which they can be done.
const (
	Ingest Stage = iota
	Transcode
	Metadata
	Assemble
	Publish
	StageCount int = iota
)

var stageNames = [StageCount]string{"ingest", "transcode", "metadata", "assemble", "publish"}

func (s Stage) String() string { return stageNames[s] }

// Needs are the stages that must be completed before this one.
func (s Stage) Needs() []Stage {
	switch s {
	case Transcode, Metadata:
		return []Stage{Ingest}
	case Assemble:
		return []Stage{Transcode, Metadata}
	case Publish:
		return []Stage{Assemble}
	}
	return nil
}

// What happened to a stage of a task.
type Kind int

// A stage's work begins, ends, and then the system has it written down that
// the stage is completed. A contestant whose system completes in bulk later on,
// and does not say when, says Completed as soon as the work has ended, which is
// earlier than it is fair to the others.
const (
	Started Kind = iota
	Ended
	Completed
)

// Moment is something that happened to a task. Tasks are numbered in the order
// in which they were submitted, from 0.
type Observation struct {
	Task  int64
	Stage Stage
	Kind  Kind
	At    time.Time
}

// Options say how a crew works.
type Options struct {
	// Slots is how many tasks it works on at once in each stage. A system that
	// has one pool for everything gets a pool of as many for each stage together.
	Slots int

	// Single are the stages that have one slot, whatever Slots says; nil for none. Only
	// contestants that say so can heed it.
	SingleSlot []Stage

	// Work is how long a stage takes: it waits, and uses no CPU. 0 is not to
	// wait at all.
	WorkTime time.Duration

	// Only are the stages it works on; nil for all. Only contestants that say so
	// in Can heed it.
	Stages []Stage

	// Observe is told what happens, by several goroutines at once. It must be
	// quick. Nil for not.
	Observe func(Observation)
}

// Contestant is a system in its best sensible settings.
type System interface {
	// Name is its word in results: letters, digits, underscores.
	Name() string

	// Settings says for people what it is, with version, and how it was set up:
	// one line.
	Settings() string

	// Setup makes its tables in an empty database.
	Setup(ctx context.Context, url string) error

	// Start begins to work. Once it returns, the crew hears of new tasks.
	Start(ctx context.Context, url string, o Options) (Workers, error)
}

// Sizes are how many bytes a contestant's tasks take: their table; its indexes; what
// was done to them, with its index; and what is told of them, with its own.
type Sizes struct{ Tasks, Indexes, History, Outbox int64 }

// Crew is one process at work. Several may work on one database.
type Workers interface {
	// Submit commits one task, whose work can then begin.
	Submit(ctx context.Context, task int64) error

	// SubmitAll commits n tasks, numbered from first, in the fastest way the
	// system has.
	SubmitAll(ctx context.Context, first int64, n int) error

	// Stop ends the work, and returns when nothing of the crew is left. What
	// went wrong while it worked, and would have been logged, is its error.
	Stop(ctx context.Context) error
}
