// Package system defines what the benchmark requires of every system that it measures: the
// system takes tasks through the five stages of the video pipeline, with work that does
// nothing or waits for a fixed time.
//
//	ingest ──▶ transcode ──┐
//	      └──▶ metadata  ──┴──▶ assemble ──▶ publish
//
// A [System] is a product with its best sensible settings. [Workers] are one process of it
// that works; [StartProcess] starts another one. A [Recorder] keeps what they report. The packages
// below have one product each; the scenarios know them by this interface only.
package system

import (
	"context"
	"errors"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
)

// System is a product in its best sensible settings.
type System interface {
	// Name identifies the system in results: letters, digits, underscores.
	Name() string

	// Settings describes the product, its version and its configuration in one line.
	Settings() string

	// SetUp creates its tables in an empty database.
	SetUp(ctx context.Context, url string) error

	// Preload submits tasks while no worker runs.
	Preload(ctx context.Context, url string, first int64, n int) error

	// Start starts to work. When it returns, the workers are notified of new tasks.
	Start(ctx context.Context, url string, o Options) (Workers, error)
}

// Workers are one process that works. Several may work on one database.
type Workers interface {
	// Submit commits one task, whose work can then start.
	Submit(ctx context.Context, task int64) error

	// SubmitAll commits n tasks, numbered from first, in the fastest way the system has.
	SubmitAll(ctx context.Context, first int64, n int) error

	// Stop ends the work and returns when nothing of the workers is left. It returns the
	// errors that occurred during the work.
	Stop(ctx context.Context) error
}

// Options configure workers.
type Options struct {
	// Slots is the number of tasks worked on at once in each stage.
	Slots int

	// SingleSlot lists stages that have one slot instead of Slots. Only Cuelight supports it.
	SingleSlot []Stage

	// WorkTime is how long a stage takes: it waits and uses no CPU. 0 does not wait at all.
	WorkTime time.Duration

	// Stages lists the stages to work on; nil for all. Only Cuelight supports it.
	Stages []Stage

	// Users is how many submit in turns; 0 for tasks without a user. Only Cuelight supports it.
	Users int

	// FailEvery makes the first transcode of every such task fail; 0 for none. Only Cuelight and River support it.
	FailEvery int

	// Observe receives what happens, from several goroutines at once. It must be quick.
	Observe func(Observation) `json:"-"`
}

// ErrPlanned is the error of a stage that is to fail.
var ErrPlanned = errors.New("this attempt is to fail")

// DoWork performs a stage of a task: it reports Started, waits for WorkTime and reports
// Ended. It returns an error if ctx ends first, or if this attempt, counted from 1, is to fail.
func (o Options) DoWork(ctx context.Context, task int64, s Stage, attempt int) error {
	if o.FailEvery > 0 && task%int64(o.FailEvery) == 0 && s == Transcode && attempt == 1 {
		return ErrPlanned
	}
	o.report(task, s, Started)
	if o.WorkTime > 0 {
		if err := ctxsleep.For(ctx, o.WorkTime); err != nil {
			return err
		}
	}
	o.report(task, s, Ended)
	return nil
}

// ReportCompleted reports that the system has recorded the stage as completed.
func (o Options) ReportCompleted(task int64, s Stage) { o.report(task, s, Completed) }

func (o Options) report(task int64, s Stage, kind Kind) {
	o.Observe(Observation{Task: task, Stage: s, Kind: kind, At: time.Now()})
}

// Observation is something that happened to a task. Tasks are numbered in the order of
// submission, from 0.
type Observation struct {
	Task  int64
	Stage Stage
	Kind  Kind
	At    time.Time
}

// Kind is what happened to a stage of a task.
type Kind int

// The kinds, in their order. A system that completes stages in bulk later, and does not
// report when, sends Completed as soon as the work has ended. That favours it.
const (
	// Started means that the work on the stage has begun.
	Started Kind = iota
	// Ended means that the work on the stage has ended.
	Ended
	// Completed means that the system has recorded the end of the stage.
	Completed
)

func (k Kind) String() string { return [...]string{"started", "ended", "was completed"}[k] }
