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
	started  int                 // by its log
	recorded map[stages.Kind]int // completed or divided, by the history
	reported map[stages.Kind]int
}

// wrongReports lists claims whose end a process did not report once, as the history has it. A
// killed process may not have reported it.
func (v *verifier) wrongReports() (found []string) {
	for i, log := range v.logs {
		for key, n := range v.countEvents(i) {
			if v.isPurged(key.task) {
				continue
			}
			ended := 0
			for _, kind := range []stages.Kind{
				stages.StageCompleted, stages.PartCompleted, stages.StageDivided,
				stages.AttemptFailed, stages.StageDead, stages.ClaimRevoked,
			} {
				ended += n.reported[kind]
			}
			// The process also releases claims that it did not start.
			atMost := ended + n.reported[stages.ClaimReleased]
			subject := fmt.Sprintf("%s: attempt %d at %s of task %s",
				workerName(log.worker), key.attempt, stageName(key.stage, key.part), key.task)
			wasKilled := !log.killed.IsZero()
			for kind, verb := range map[stages.Kind]string{
				stages.StageCompleted: "completed", stages.PartCompleted: "completed", stages.StageDivided: "divided",
			} {
				recorded, reported := n.recorded[kind], n.reported[kind]
				if reported > recorded || !wasKilled && reported < recorded {
					found = append(found, fmt.Sprintf("%s was %s %d times, and reported as %s %d times",
						subject, verb, recorded, verb, reported))
				}
			}
			// It reports a claim as revoked that it lost before it started it.
			wasPrefetched := n.started == 0 && ended == n.reported[stages.ClaimRevoked]
			if ended > n.started && !wasPrefetched || !wasKilled && atMost < n.started {
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
		key := attemptKey{stageKey{e.Task, e.Stage, e.Part}, e.Attempt}
		if counts[key] == nil {
			counts[key] = &attemptCounts{recorded: make(map[stages.Kind]int), reported: make(map[stages.Kind]int)}
		}
		return counts[key]
	}
	for _, e := range v.logs[incarnation].entries {
		switch {
		case e.What == startEntry:
			n := countsOf(e)
			n.started++
			switch v.rows[e.Token].outcome {
			case string(engine.Divided):
				n.recorded[stages.StageDivided]++
			case string(engine.Completed):
				n.recorded[completedKind(e.Part)]++
			}
		case e.What == eventEntry && !e.Task.IsZero():
			countsOf(e).reported[stages.Kind(e.How)]++
		}
	}
	return counts
}

// completedKind is the kind of event that says that a stage, or a part of one, is completed.
func completedKind(part int) stages.Kind {
	if part > 0 {
		return stages.PartCompleted
	}
	return stages.StageCompleted
}
