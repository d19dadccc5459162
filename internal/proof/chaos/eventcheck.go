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
	started  int // by its log
	recorded int // of these, completed or divided by the history
	reported int // as completed or divided
	divided  int // of these, as divided
	ended    int // reported as failed, dead or revoked
	released int // reported as released
}

// wrongReports lists claims whose end a process did not report once, as the history has it. A
// killed process may not have reported it.
func (v *verifier) wrongReports() {
	for _, log := range v.logs {
		for key, n := range v.countEvents(log) {
			if v.isPurged(key.task) {
				continue
			}
			subject := fmt.Sprintf("%s: attempt %d at %s", workerName(log.worker), key.attempt, key.stageKey)
			wasKilled := !log.killed.IsZero()
			if n.reported > n.recorded || !wasKilled && n.reported < n.recorded {
				v.add("%s was completed or divided %d times, and reported so %d times",
					subject, n.recorded, n.reported)
			}
			// The process also releases claims that it did not start, and reports those as revoked that it lost before. The
			// join of a divided stage is one more, of the same attempt.
			ended, wasPrefetched := n.reported+n.ended, n.started == 0 && n.reported == 0
			if ended > n.started+n.divided && !wasPrefetched || !wasKilled && ended+n.released < n.started {
				v.add("%s started %d times, and its end was reported %d times",
					subject, n.started, ended+n.released)
			}
		}
	}
}

func (v *verifier) countEvents(log workerLog) map[attemptKey]*attemptCounts {
	counts := make(map[attemptKey]*attemptCounts)
	for _, e := range log.entries {
		if e.Task.IsZero() || e.What == endEntry || e.What == removalEntry {
			continue
		}
		key := attemptKey{stageKey{e.Task, e.Stage, e.Part}, e.Attempt}
		n := counts[key]
		if n == nil {
			n = new(attemptCounts)
			counts[key] = n
		}
		outcome := v.rows[e.Token].outcome
		switch kind := stages.Kind(e.How); {
		case e.What == startEntry:
			n.started++
			if outcome == string(engine.Completed) || outcome == string(engine.Divided) {
				n.recorded++
			}
		case slices.Contains([]stages.Kind{stages.StageCompleted, stages.PartCompleted, stages.StageDivided}, kind):
			n.reported++
			if kind == stages.StageDivided {
				n.divided++
			}
		case slices.Contains([]stages.Kind{stages.AttemptFailed, stages.StageDead, stages.ClaimRevoked}, kind):
			n.ended++
		case kind == stages.ClaimReleased:
			n.released++
		}
	}
	return counts
}
