package main

import (
	"slices"
	"time"

	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// recovery is the next attempt at a stage whose worker was killed.
type recovery struct {
	duration    time.Duration // from the kill to the start of the next attempt
	bySuccessor bool          // by the process that replaced the killed one
	undisturbed bool          // no other fault explains a delay
	hidden      bool          // nobody could notice the end of the worker
	remote      bool          // of a remote worker
}

// isPromised reports whether the default settings promise this recovery within 10 s.
func (r recovery) isPromised() bool { return r.undisturbed && !r.hidden }

// serverRecoveryTime is how long the server must have been available again for a recovery to be
// undisturbed.
const serverRecoveryTime = 10 * time.Second

// recoveries returns those of all claims that killed workers had. A claim that was the last
// attempt has none; exhausted counts these.
func (v *verifier) recoveries() (all []recovery, exhausted int) {
	for i, log := range v.logs {
		if log.killed.IsZero() {
			continue
		}
		for _, claim := range v.claimsAtDeath(i) {
			next, ok := v.nextExecution(claim, log.killed)
			if !ok {
				exhausted++
				continue
			}
			all = append(all, recovery{
				duration: next.from.Sub(log.killed), bySuccessor: v.workerOf(next) == log.worker,
				undisturbed: v.isUndisturbed(claim, log.killed, next.from), hidden: v.endWasHidden(log),
				remote: isRemote(log.worker),
			})
		}
	}
	return all, exhausted
}

// claimsAtDeath returns the claims that expired after the process was killed, or were undone.
func (v *verifier) claimsAtDeath(incarnation int) []stageKey {
	var claims []stageKey
	for _, row := range v.history {
		owner, isKnown := v.incarnations[row.worker]
		if isKnown && owner == incarnation && row.outcome == "expired" && row.finished.After(v.logs[incarnation].killed) {
			claims = append(claims, row.key())
		}
	}
	for _, e := range v.executions {
		if _, ok := v.rows[e.start.Token]; !ok && e.incarnation == incarnation && e.end == "" {
			claims = append(claims, e.key())
		}
	}
	return claims
}

func (v *verifier) nextExecution(claim stageKey, after time.Time) (execution, bool) {
	for _, e := range v.byStage[claim] {
		if e.from.After(after) {
			return e, true
		}
	}
	return execution{}, false
}

// isUndisturbed reports whether the server was available, no fault locked rows or cancelled queries, and the task was not
// deleted.
func (v *verifier) isUndisturbed(claim stageKey, from, to time.Time) bool {
	return !v.hadFault(from.Add(-serverRecoveryTime), to, (*fault).isOfServer) &&
		!v.hadFault(from, to, func(f *fault) bool { return f.is(lockRows, cancelQueries) }) && v.deletions[claim.task] == nil
}

// coordinatorKillTime is how long before a kill of a remote worker that of a coordinator hides it: the
// worker may not have found the other one yet.
const coordinatorKillTime = 3 * time.Second

// endWasHidden reports whether the network kept the end of the process from the server or
// the coordinators, or the coordinator was killed that would have noticed it.
func (v *verifier) endWasHidden(log workerLog) bool {
	return slices.ContainsFunc(v.faults, func(f *fault) bool {
		return f.is(powerLoss) && f.worker == log.worker && f.overlaps(log.killed, log.killed) ||
			f.is(killCoordinator) && isRemote(log.worker) &&
				f.from.After(log.killed.Add(-coordinatorKillTime)) && f.from.Before(log.killed.Add(time.Second))
	})
}

// percentiles returns the 50th and the 99th of the chosen recoveries, in milliseconds; nil if
// there are none.
func percentiles(all []recovery, isChosen func(recovery) bool) (p50, p99 *int64) {
	var durations []int64
	for _, r := range all {
		if isChosen(r) {
			durations = append(durations, r.duration.Milliseconds())
		}
	}
	if len(durations) == 0 {
		return nil, nil
	}
	return new(proofkit.Percentile(durations, 50)), new(proofkit.Percentile(durations, 99))
}
