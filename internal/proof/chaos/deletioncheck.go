package main

import (
	"fmt"
	"time"

	"github.com/cuelight/cuelight/store"
)

// deletedRow is a row of a deleted task at the end of the run.
type deletedRow struct {
	id            store.ID
	isPurged      bool // only its request id is left
	keepPublished bool
	isExpired     bool      // retention deleted it
	claimed       time.Time // by a process that has ended, which removed its files; the epoch: not any more
}

// wasRemoved reports whether an acknowledged task need not exist: this program deleted it, and did not restore it.
func (v *verifier) wasRemoved(id store.ID) bool {
	d := v.deletions[id]
	if d == nil || !d.restored.IsZero() {
		return false
	}
	_, isDeleted := v.deletedRows[id]
	return isDeleted || d.mayBePurged()
}

// isPurged reports whether the task has no rows any more because it was purged, as it was to be or not; see wrongRetention.
func (v *verifier) isPurged(id store.ID) bool {
	_, exists := v.tasks[id]
	_, isDeleted := v.deletedRows[id]
	d := v.deletions[id]
	return !exists && !isDeleted && (d != nil && d.mayBePurged() || v.hasRemoved(id, removedFiles))
}

// abandonTime is how long a process may take with a claim of deleted tasks, of which it has several at once.
const abandonTime = 10 * time.Second

// wasAbandoned reports whether a process claimed the deleted task and may not have been able to continue: a worker had a
// fault then, or the server was away or ended its sessions. Others continue when the claim ends.
func (v *verifier) wasAbandoned(row deletedRow) bool {
	return v.hadFault(row.claimed, row.claimed.Add(abandonTime), func(f *fault) bool {
		return f.isOfServer() || f.is(endSessions, cancelQueries) || f.worker != noWorker && !isRemote(f.worker)
	})
}

// wrongDeletions lists tasks that are not in the state in which this program left them: deleted, restored or purged.
func (v *verifier) wrongDeletions() {
	wrong := func(id store.ID, text string) { v.add("task %s %s", id, text) }
	for id, d := range v.deletions {
		_, exists := v.tasks[id]
		row, isDeleted := v.deletedRows[id]
		switch {
		case v.isExpired(id): // before this program deleted it, or after it was restored
		case exists && isDeleted:
			wrong(id, "exists and is deleted")
		case exists && !d.deleted.IsZero() && d.restoring.IsZero():
			wrong(id, "exists although it was deleted")
		case isDeleted && d.mayBePurged() && !d.deleted.IsZero() && !v.wasAbandoned(row):
			wrong(id, "was not purged")
		case isDeleted && !row.keepPublished && !v.wasAbandoned(row) && !v.hasRemoved(id, removedPublished):
			wrong(id, "was deleted, and what it had published was not removed")
		case !exists && !isDeleted && !v.hasRemoved(id, removedFiles):
			wrong(id, "was purged, and its files were not removed")
		}
		if isDeleted && row.isPurged {
			wrong(id, "was purged, and its request id is kept")
		}
	}
	for id, row := range v.deletedRows {
		if v.deletions[id] == nil && !row.isExpired {
			wrong(id, "was deleted, but not by this program")
		}
	}
	for _, row := range v.history {
		if v.isPurged(row.task) {
			wrong(row.task, fmt.Sprintf("was purged, and has attempt %d at %s in its history", row.attempt, row.stage))
		}
	}
}

// revocationTime is how long a process without a fault may take to learn of a deletion.
const revocationTime = 5 * time.Second

// executionsAfterDeletion lists executions of tasks that were deleted then, except shortly after the deletion, and those of
// processes that could not learn of it: they had a fault, or the server was away.
func (v *verifier) executionsAfterDeletion() {
	for _, e := range v.executions {
		d := v.deletions[e.task]
		if d == nil || d.deleted.IsZero() || !d.restoring.IsZero() && e.from.After(d.restoring) {
			continue
		}
		until := d.deleted.Add(revocationTime)
		if !d.restoring.IsZero() && d.restoring.Before(e.to) {
			continue // it may go on when the task is restored
		}
		var how string
		switch {
		case e.from.After(until):
			how = "started"
		case e.to.After(until):
			how = "was not interrupted"
		default:
			continue
		}
		isExcused := v.hadFault(d.deleted.Add(-serverRecoveryTime), e.to, func(f *fault) bool {
			return f.isOfServer() || f.is(killCoordinator) || f.isOf(v.workerOf(e))
		})
		if !isExcused {
			v.add("%s by %s %s after the task was deleted", e, workerName(v.workerOf(e)), how)
		}
	}
}

// wasRevoked reports whether the task was deleted during an execution, which ended soon after that.
func (v *verifier) wasRevoked(e execution) bool {
	d := v.deletions[e.task]
	return d != nil && e.from.Before(d.deleted) && e.to.After(d.asked)
}
