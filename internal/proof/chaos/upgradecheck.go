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
	worker       int           // that started it, or noWorker
	unexplained  time.Duration // of it
	isDisturbed  bool          // faults explain some of it
}

func (w stageWait) duration() time.Duration { return max(w.start.Sub(w.ready), 0) }

// describe describes a wait during an upgrade.
func (w stageWait) describe(u *upgrade) string {
	return fmt.Sprintf("%s was ready %v before attempt %d at it started (%s), %v of them without a cause, %.1f s after the migration began",
		w.key(), w.duration().Round(ms), w.attempt, workerName(w.worker), w.unexplained.Round(ms), w.start.Sub(u.from).Seconds())
}

// upgradeWaits returns the waits during an upgrade, except those of tasks that were deleted meanwhile. One in a queue of
// divisions is its longest step, by the time that no fault explains.
func (v *verifier) upgradeWaits(u *upgrade) (all []stageWait) {
	queue := v.queuedDivisions()
	for _, row := range v.history {
		if _, exists := v.tasks[row.task]; !exists || v.deletions[row.task] != nil {
			continue
		}
		var longest stageWait
		for i, step := range v.stepsOf(v.waitOf(row), queue) {
			if v.explain(&step); i == 0 || step.unexplained > longest.unexplained {
				longest = step
			}
		}
		if !longest.start.Before(u.from) && !longest.ready.After(u.to) {
			all = append(all, longest)
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
	for _, t := range []time.Time{task.created, v.submissions[task.request].NotBefore} {
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

func (w *stageWait) readyNotBefore(t time.Time) { w.ready = latest(w.ready, t) }

const (
	// switchTime is how long remote workers may take to find another coordinator.
	switchTime = switchoverTime
	// pollTime is how long a process without notifications may take to ask the database.
	pollTime = 3 * time.Second
	// sweepTime is how long a task may wait for a sweep, which finds what no notification announced.
	sweepTime = 15 * time.Second
)

// explains reports whether a fault may explain a wait: the server was away, triggers were disabled, the task was locked, or
// the worker that started the stage had a fault itself. After its end it does so for the recovery time.
func (f fault) explains(w stageWait) (recovery time.Duration, ok bool) {
	switch {
	case f.is(serverFaults[:]...):
		return serverRecoveryTime, true
	case f.is(disableTriggers):
		if f.overlaps(w.ready, w.ready) { // no notification said that it was ready
			recovery = sweepTime
		}
		return recovery, true
	case f.is(endListeners, endSessions):
		return pollTime, true
	case f.is(lockRows):
		return sweepTime, slices.Contains(f.tasks, w.task)
	case f.is(killCoordinator):
		return switchTime, isRemote(w.worker)
	}
	return recoveryTime, f.worker != noWorker && f.worker == w.worker
}

// explain finds out how much of a wait is left without the times of the faults that explain it.
func (v *verifier) explain(w *stageWait) {
	type period struct{ from, to time.Time }
	var explained []period
	for _, f := range v.faults {
		recovery, ok := f.explains(*w)
		p := period{f.from, f.to.Add(recovery)}
		if f.to.IsZero() {
			p.to = w.start
		}
		if ok && p.from.Before(w.start) && p.to.After(w.ready) {
			explained = append(explained, p)
		}
	}
	slices.SortFunc(explained, func(a, b period) int { return a.from.Compare(b.from) })
	until := w.ready // it is explained, or counted
	for _, p := range append(explained, period{from: w.start}) {
		w.unexplained += max(p.from.Sub(until), 0)
		until = latest(until, p.to)
	}
	w.isDisturbed = len(explained) > 0
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// checkUpgrade lists what must not happen in an upgrade, and returns the wait with the longest time that no fault explains,
// and how many waits no fault disturbed.
func (v *verifier) checkUpgrade(u *upgrade) (longest stageWait, measured int, violations []string) {
	violations = append(violations, u.failures...)
	for _, w := range v.upgradeWaits(u) {
		if w.unexplained > longest.unexplained {
			longest = w
		}
		if w.unexplained > maxUpgradeWait {
			violations = append(violations, w.describe(u))
		}
		if !w.isDisturbed {
			measured++
		}
	}
	if measured < u.minWaits {
		violations = append(violations, fmt.Sprintf("only %d waits during the upgrade were undisturbed, want %d", measured, u.minWaits))
	}
	slices.Sort(violations)
	return longest, measured, append(violations, v.wrongVersions(u)...)
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
