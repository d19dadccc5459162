package main

import (
	"slices"
	"time"
)

// asyncCommitTime is how old a claim may be that a crash of the server undoes: three times
// wal_writer_delay, and some more for a busy machine.
const asyncCommitTime = 2 * time.Second

// wasUndone reports whether a crash of the server has undone the claim, or a failover to a standby
// that had not received it. A process that was frozen or cut off may execute it after the crash.
func (v *verifier) wasUndone(e execution) bool {
	if _, ok := v.rows[e.start.Token]; ok {
		return false
	}
	for _, crash := range v.faults {
		if !crash.is(killServer, restartImmediate, failoverKill, failoverReadOnly) {
			continue
		}
		earliest := crash.from.Add(-asyncCommitTime)
		delay := time.Duration(0)
		for _, f := range v.faults {
			if f.worker == v.workerOf(e) && f.overlaps(earliest, e.from) {
				delay += max(f.to.Sub(f.from), 0) + asyncCommitTime
			}
		}
		if !e.from.Before(earliest) && !e.from.After(crash.to.Add(delay+asyncCommitTime)) {
			return true
		}
	}
	return false
}

// wasFrozen reports whether the process was frozen between the start of the execution and then.
func (v *verifier) wasFrozen(e execution, then time.Time) bool {
	return slices.ContainsFunc(v.faults, func(f fault) bool {
		return f.is(freezeWorker) && f.worker == v.workerOf(e) && f.overlaps(e.from, then)
	})
}

// staleClaimTime is how long a process that was frozen may take to find out that its claims are lost.
const staleClaimTime = time.Second

// beganAfterFreeze reports whether a process that had just been frozen began an earlier attempt than
// another one that runs. Its claim expired while it was frozen, so the attempt must be interrupted.
func (v *verifier) beganAfterFreeze(running, e execution) bool {
	return e.start.Attempt < running.start.Attempt && e.end == endedInterrupted &&
		slices.ContainsFunc(v.faults, func(f fault) bool {
			return f.is(freezeWorker) && f.worker == v.workerOf(e) && f.overlaps(e.from.Add(-staleClaimTime), e.from)
		})
}

// lostSessionWhileCutOff reports whether the server ended the session of the process while that was cut off.
func (v *verifier) lostSessionWhileCutOff(e execution, then time.Time) bool {
	return slices.ContainsFunc(v.faults, func(cutOff fault) bool {
		return cutOff.is(linkDown, blackHole, dropFromServer, dropToServer, holdTraffic) &&
			cutOff.worker == v.workerOf(e) && cutOff.overlaps(e.from, then) &&
			slices.ContainsFunc(v.faults, func(f fault) bool {
				return f.is(restartFast, restartImmediate, killServer, endListeners, endSessions) &&
					f.overlaps(cutOff.from, then)
			})
	})
}
