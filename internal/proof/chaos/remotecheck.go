package main

import (
	"slices"
	"time"

	"github.com/cuelight/cuelight/stages"
)

// explainedExpiryTime is how long before an expiry the fault may have ended that explains it: a sweep
// ends the claims of a lost worker, every 15 s.
const explainedExpiryTime = 20 * time.Second

// unexplainedExpiries lists expired claims of remote workers that were neither killed nor had a fault
// of their own, while the server was available. The kill of a coordinator explains nothing: its
// workers go on at the other one.
func (v *verifier) unexplainedExpiries() {
	for _, row := range v.history {
		incarnation, isKnown := v.incarnations[row.worker]
		if row.outcome != "expired" || !isKnown || !isRemote(v.logs[incarnation].worker) {
			continue
		}
		log := v.logs[incarnation]
		isExplained := !log.killed.IsZero() && log.killed.Before(row.finished) ||
			v.hadFault(row.finished.Add(-explainedExpiryTime), row.finished, ofServerOr(log.worker))
		if !isExplained {
			v.add("attempt %d at %s of task %s expired, but nothing was wrong with %s",
				row.attempt, stageName(row.stage, row.part), row.task, workerName(log.worker))
		}
	}
}

// switchovers returns how long each remote worker took, after the kill of a coordinator, until the
// outcome of a new execution was recorded: it was reported to a coordinator that runs. Workers with
// another fault, and times in which the server was away, are left out.
func (v *verifier) switchovers() (all []recovery) {
	for _, f := range v.faults {
		if !f.is(killCoordinator) {
			continue
		}
		for i, log := range v.logs {
			if !isRemote(log.worker) || !v.isRegisteredAt(i, f.from) {
				continue
			}
			end := v.firstOutcomeAfter(i, f.from)
			if end.IsZero() && log.ended.Before(f.from.Add(switchoverTime)) {
				continue // it had no time to show it
			}
			if end.IsZero() {
				end = log.ended
			}
			isDisturbed := v.hadFault(f.from.Add(-serverRecoveryTime), end, ofServerOr(log.worker))
			all = append(all, recovery{duration: end.Sub(f.from), undisturbed: !isDisturbed})
		}
	}
	return all
}

// switchoverTime is how long a remote worker may take to go on at another coordinator.
const switchoverTime = 5 * time.Second

// isRegisteredAt reports whether a process runs and was registered before.
func (v *verifier) isRegisteredAt(incarnation int, at time.Time) bool {
	log := v.logs[incarnation]
	return log.ended.After(at) && slices.ContainsFunc(log.entries, func(e logEntry) bool {
		return e.How == string(stages.WorkerStarted) && e.time().Before(at)
	})
}

// firstOutcomeAfter returns when the first outcome was recorded of the executions that a process
// began after a moment; zero if there is none.
func (v *verifier) firstOutcomeAfter(incarnation int, at time.Time) (first time.Time) {
	for _, e := range v.executions {
		row, ok := v.rows[e.token]
		isRecorded, finished := ok && e.endedAs(row.outcome), row.finished
		if v.isPurged(e.task) { // with its history
			isRecorded, finished = e.end.How != "" && e.end.How != endedInterrupted, e.to
		}
		if e.incarnation == incarnation && e.from.After(at) && isRecorded && (first.IsZero() || finished.Before(first)) {
			first = finished
		}
	}
	return first
}
