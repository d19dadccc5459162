package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/cuelight/cuelight/stages"
)

// maxUpgradeWait is how long a ready stage may wait for its start during an upgrade.
const maxUpgradeWait = 2 * time.Second

// stageWait is the time from when a stage or a part was ready until its next attempt started.
type stageWait struct {
	attemptRow
	ready, start time.Time
	worker       int // that started it, or noWorker
}

func (w stageWait) duration() time.Duration { return max(w.start.Sub(w.ready), 0) }

// withoutQueue cuts a wait for one of the few divisions and joins that a process does at once: it began when the one
// before had started.
func (v *verifier) withoutQueue(w stageWait) stageWait {
	if w.stage != dividedStage || w.part > 0 {
		return w
	}
	longest := w
	longest.start = w.ready
	ready := w.ready
	for _, e := range v.executions {
		if e.start.Stage != w.stage || e.start.Part > 0 || e.from.Before(ready) || e.from.After(w.start) {
			continue
		}
		if e.from.Sub(ready) >= longest.duration() {
			longest.ready, longest.start = ready, e.from
		}
		ready = e.from
	}
	return longest
}

// describe describes a wait during an upgrade.
func (w stageWait) describe(u *upgrade) string {
	return fmt.Sprintf("%s was ready %v before attempt %d at it started (%s), %.1f s after the migration began",
		w.key(), w.duration().Round(ms), w.attempt, workerName(w.worker), w.start.Sub(u.from).Seconds())
}

// upgradeWaits returns the waits during an upgrade that no fault explains.
func (v *verifier) upgradeWaits(u *upgrade) (all []stageWait) {
	for _, row := range v.history {
		w := v.withoutQueue(v.waitOf(row))
		if !w.start.Before(u.from) && !w.ready.After(u.to) && !v.explainsWait(w) {
			all = append(all, w)
		}
	}
	return all
}

// waitOf returns the wait before an attempt.
func (v *verifier) waitOf(row attemptRow) stageWait {
	w := stageWait{attemptRow: row, start: row.started, worker: noWorker}
	if incarnation, ok := v.incarnations[row.worker]; ok {
		w.worker = v.logs[incarnation].worker
	}
	if executions := v.byToken[row.token]; len(executions) > 0 {
		w.start = executions[0].from
	}
	task := v.tasks[row.task]
	for _, t := range []time.Time{task.created, v.notBefore[task.request]} {
		w.readyNotBefore(t)
	}
	for _, need := range v.needs[row.stage] {
		w.readyNotBefore(lastOf(v.completed[stageKey{row.task, need, 0}]).finished)
	}
	before := row.finished.Add(-time.Microsecond)
	if d, ok := v.lastDivision(row.key(), before); ok {
		w.readyNotBefore(d.finished)
		for part := range d.parts {
			if completed, ok := v.completion(stageKey{row.task, row.stage, part + 1}, before); ok && row.part == 0 {
				w.readyNotBefore(completed.finished)
			}
		}
	}
	for _, earlier := range v.attempts[row.key()] {
		if earlier.finished.Before(row.finished) {
			w.readyNotBefore(earlier.finished)
			w.readyNotBefore(earlier.retryAt)
		}
	}
	return w
}

func (w *stageWait) readyNotBefore(t time.Time) {
	if t.After(w.ready) {
		w.ready = t
	}
}

const (
	// switchTime is how long remote workers may take to find another coordinator.
	switchTime = switchoverTime
	// pollTime is how long a process without notifications may take to ask the database.
	pollTime = 3 * time.Second
)

// explainsWait reports whether a fault explains a wait: the server was away, triggers were disabled, the task was locked, or
// the worker that started the stage had a fault itself.
func (v *verifier) explainsWait(w stageWait) bool {
	return slices.ContainsFunc(v.faults, func(f fault) bool {
		switch {
		case f.is(serverFaults[:]...):
			return f.overlaps(w.ready.Add(-serverRecoveryTime), w.start)
		case f.is(disableTriggers):
			return f.overlaps(w.ready, w.start)
		case f.is(endListeners, endSessions):
			return f.overlaps(w.ready.Add(-pollTime), w.start)
		case f.is(lockRows):
			return slices.Contains(f.tasks, w.task) && f.overlaps(w.ready, w.start)
		case f.is(killCoordinator):
			return isRemote(w.worker) && f.overlaps(w.ready.Add(-switchTime), w.start)
		}
		return f.worker != noWorker && f.worker == w.worker && f.overlaps(w.ready.Add(-recoveryTime), w.start)
	})
}

// checkUpgrade lists what must not happen in an upgrade, and returns the longest wait.
func (v *verifier) checkUpgrade(u *upgrade) (longest stageWait, measured int, violations []string) {
	violations = append(violations, u.failures...)
	waits := v.upgradeWaits(u)
	for _, w := range waits {
		if w.duration() > longest.duration() {
			longest = w
		}
		if w.duration() > maxUpgradeWait {
			violations = append(violations, w.describe(u))
		}
	}
	if len(waits) == 0 {
		violations = append(violations, "faults explain every wait during the upgrade")
	}
	slices.Sort(violations)
	return longest, len(waits), append(violations, v.wrongVersions(u)...)
}

// wrongVersions lists newcomers that worked before the tables were upgraded, or did not say once that they wait, and says
// whether both versions worked afterwards.
func (v *verifier) wrongVersions(u *upgrade) (found []string) {
	var old, current bool
	for _, e := range v.executions {
		if e.from.After(u.migrated) && e.from.Before(u.to) {
			old, current = old || v.logs[e.incarnation].isOld, current || !v.logs[e.incarnation].isOld
		}
	}
	if !old || !current {
		found = append(found, fmt.Sprintf("after the migration only one version worked (earlier %t, this %t)", old, current))
	}
	hasWaited := make(map[int]bool) // by worker
	for _, log := range v.logs {
		waiting := 0
		for _, e := range log.entries {
			if e.How == waitingForTables {
				waiting++
				hasWaited[log.worker] = true
			}
			if e.How == string(stages.WorkerStarted) && !log.isOld && e.time().Before(u.from) {
				found = append(found, fmt.Sprintf("%s of this version started before the migration", workerName(log.worker)))
			}
		}
		if waiting > 1 {
			found = append(found, fmt.Sprintf("%s said %d times that it waits for the migration", workerName(log.worker), waiting))
		}
	}
	for worker := workers - newcomers; worker < workers; worker++ {
		if !hasWaited[worker] {
			found = append(found, fmt.Sprintf("%s did not say that it waits for the migration", workerName(worker)))
		}
	}
	return found
}
