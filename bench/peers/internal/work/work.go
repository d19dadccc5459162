// Package work is what the peers do alike: take a stage on, tell what happens,
// and keep what goes wrong until it is asked for.
package work

import (
	"context"
	"time"

	"github.com/cuelight/cuelight/bench/contest"
)

// Do takes a stage of a task on: it begins, lasts as long as work lasts, and
// ends. It is an error if ctx ends it.
func Do(ctx context.Context, o contest.Options, task int64, s contest.Stage) error {
	tell(o, task, s, contest.Began)
	if o.Work > 0 {
		timer := time.NewTimer(o.Work)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	tell(o, task, s, contest.Ended)
	return nil
}

// Completed tells that the system has it written down.
func Completed(o contest.Options, task int64, s contest.Stage) {
	tell(o, task, s, contest.Completed)
}

func tell(o contest.Options, task int64, s contest.Stage, what contest.What) {
	if o.Observe != nil {
		o.Observe(contest.Moment{Task: task, Stage: s, What: what, At: time.Now()})
	}
}

// After are the stages that a completed one lets begin, apart from
// [contest.Assemble], which waits for two.
func After(s contest.Stage) []contest.Stage {
	switch s {
	case contest.Ingest:
		return []contest.Stage{contest.Transcode, contest.Metadata}
	case contest.Assemble:
		return []contest.Stage{contest.Publish}
	}
	return nil
}

// Joins says whether Assemble waits for the stage and one more.
func Joins(s contest.Stage) bool { return s == contest.Transcode || s == contest.Metadata }
