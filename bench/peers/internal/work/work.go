// Package work is what the peers do alike: take a stage on, tell what happens,
// and keep what goes wrong until it is asked for.
package work

import (
	"context"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
)

// Do takes a stage of a task on: it begins, lasts as long as work lasts, and
// ends. It is an error if ctx ends it.
func Work(ctx context.Context, o harness.Options, task int64, s harness.Stage) error {
	tell(o, task, s, harness.Started)
	if o.WorkTime > 0 {
		timer := time.NewTimer(o.WorkTime)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	tell(o, task, s, harness.Ended)
	return nil
}

// Completed tells that the system has it written down.
func Completed(o harness.Options, task int64, s harness.Stage) {
	tell(o, task, s, harness.Completed)
}

func tell(o harness.Options, task int64, s harness.Stage, what harness.Kind) {
	if o.Observe != nil {
		o.Observe(harness.Observation{Task: task, Stage: s, Kind: what, At: time.Now()})
	}
}

// After are the stages that a completed one lets begin, apart from
// [harness.Assemble], which waits for two.
func After(s harness.Stage) []harness.Stage {
	switch s {
	case harness.Ingest:
		return []harness.Stage{harness.Transcode, harness.Metadata}
	case harness.Assemble:
		return []harness.Stage{harness.Publish}
	}
	return nil
}

// Joins says whether Assemble waits for the stage and one more.
func Joins(s harness.Stage) bool { return s == harness.Transcode || s == harness.Metadata }
