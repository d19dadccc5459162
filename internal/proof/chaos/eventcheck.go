package main

import (
	"fmt"
	"slices"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store/engine"
)

// attemptKey names a claim as events do. It is not unique: a claim that was released or undone may
// come back with the same number.
type attemptKey struct {
	stageKey
	attempt int
}

// attemptCounts say what one process did and reported about the claims of one attemptKey.
type attemptCounts struct {
	started   int // by its log
	completed int // by the history
	reported  map[stages.Kind]int
}

// wrongReports lists claims whose end a process did not report once, as the history has it. A
// killed process may not have reported it.
func (v *verifier) wrongReports() (found []string) {
	for i, log := range v.logs {
		for key, n := range v.countEvents(i) {
			ended := 0
			for _, kind := range []stages.Kind{
				stages.StageCompleted, stages.AttemptFailed, stages.StageDead, stages.ClaimRevoked,
			} {
				ended += n.reported[kind]
			}
			// The process also releases claims that it did not start.
			atMost := ended + n.reported[stages.ClaimReleased]
			reportedCompleted := n.reported[stages.StageCompleted]
			subject := fmt.Sprintf("%s: attempt %d at %s of task %s", workerName(log.worker), key.attempt, key.stage, key.task)
			wasKilled := !log.killed.IsZero()
			switch {
			case reportedCompleted > n.completed, !wasKilled && reportedCompleted < n.completed:
				found = append(found, fmt.Sprintf("%s was completed %d times, and reported as completed %d times",
					subject, n.completed, reportedCompleted))
			case ended > n.started, !wasKilled && atMost < n.started:
				found = append(found, fmt.Sprintf("%s started %d times, and its end was reported %d times",
					subject, n.started, atMost))
			}
		}
	}
	slices.Sort(found)
	return found
}

func (v *verifier) countEvents(incarnation int) map[attemptKey]*attemptCounts {
	counts := make(map[attemptKey]*attemptCounts)
	countsOf := func(e logEntry) *attemptCounts {
		key := attemptKey{stageKey{e.Task, e.Stage}, e.Attempt}
		if counts[key] == nil {
			counts[key] = &attemptCounts{reported: make(map[stages.Kind]int)}
		}
		return counts[key]
	}
	for _, e := range v.logs[incarnation].entries {
		switch {
		case e.What == startEntry:
			n := countsOf(e)
			n.started++
			if v.rows[e.Token].outcome == string(engine.Completed) {
				n.completed++
			}
		case e.What == eventEntry && !e.Task.IsZero():
			countsOf(e).reported[stages.Kind(e.How)]++
		}
	}
	return counts
}
