package main

import (
	"slices"
	"time"

	"github.com/cuelight/cuelight/internal/proof/proofkit"
)

// recovery is the next attempt at a stage whose worker was killed.
type recovery struct {
	duration    time.Duration // from the kill to the start of the next attempt
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
			later := v.byStage[claim]
			n := slices.IndexFunc(later, func(e execution) bool { return e.from.After(log.killed) })
			if n < 0 {
				exhausted++
				continue
			}
			next := later[n]
			all = append(all, recovery{
				duration: next.from.Sub(log.killed), undisturbed: v.isUndisturbed(claim, log.killed, next.from),
				hidden: v.endWasHidden(log), remote: isRemote(log.worker),
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
			claims = append(claims, row.stageKey)
		}
	}
	for _, e := range v.executions {
		if _, ok := v.rows[e.token]; !ok && e.incarnation == incarnation && e.end.How == "" {
			claims = append(claims, e.stageKey)
		}
	}
	return claims
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

// milliseconds returns the durations of the chosen recoveries.
func milliseconds(all []recovery, isChosen func(recovery) bool) (durations []int64) {
	for _, r := range all {
		if isChosen(r) {
			durations = append(durations, r.duration.Milliseconds())
		}
	}
	return durations
}

// percentile returns a percentile; nil of nothing.
func percentile(durations []int64, percent int) *int64 {
	if len(durations) == 0 {
		return nil
	}
	return new(proofkit.Percentile(durations, percent))
}
