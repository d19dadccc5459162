package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/cuelight/cuelight/store"
)

// removal is one time that a process removed files of a task.
type removal struct {
	files       string // removedPublished or removedFiles
	at          time.Time
	isExpired   bool // the process knew that retention had deleted the task
	incarnation int
}

// isExpired reports whether retention deleted the task.
func (v *verifier) isExpired(id store.ID) bool {
	return v.deletedRows[id].isExpired ||
		slices.ContainsFunc(v.removals[id], func(r removal) bool { return r.isExpired })
}

func (v *verifier) hasRemoved(id store.ID, files string) bool {
	return slices.ContainsFunc(v.removals[id], func(r removal) bool { return r.files == files })
}

// endOf returns when a task was finished at the earliest, by the logs: its last stage was completed, or an attempt was the last.
// Its history may have been deleted. Processes that were frozen may have ended an attempt later than others.
func (v *verifier) endOf(id store.ID) (end time.Time, ok bool) {
	for _, e := range v.byTask[id] {
		isLast := e.stage == nodes[len(nodes)-1].Name && e.end.How == endedCompleted
		isDead := e.end.How == endedPermanent || e.attempt >= maxAttempts && e.end.How != endedCompleted && e.end.How != endedDivided
		at := e.to
		if e.end.How == "" { // it may have expired before its process ended
			at = e.from
		}
		if (isLast || isDead) && (!ok || at.Before(end)) {
			end, ok = at, true
		}
	}
	return end, ok
}

// wrongRetention lists what retention deleted too early or by halves, and files of tasks that were removed although nobody
// had deleted the task, or only retention.
func (v *verifier) wrongRetention() {
	wrong := func(id store.ID, text string) { v.add("task %s %s", id, text) }
	for id, row := range v.deletedRows {
		if row.isExpired && !v.wasAbandoned(row) {
			wrong(id, "was deleted by retention, and not purged")
		}
	}
	for id, removals := range v.removals {
		if _, exists := v.tasks[id]; exists && v.isExpired(id) {
			wrong(id, "exists although retention deleted it")
		}
		for _, r := range removals {
			by := workerName(v.logs[r.incarnation].worker)
			switch end, isFinished := v.endOf(id); {
			case r.files == removedPublished && !v.mayUnpublish(id, r):
				wrong(id, fmt.Sprintf("was unpublished by %s, and nobody had deleted it", by))
			case r.files == removedFiles && !r.isExpired && (v.deletions[id] == nil || !v.deletions[id].mayBePurged()):
				wrong(id, fmt.Sprintf("was unpublished when %s purged it, and nobody else had deleted it", by))
			case r.files == removedFiles && r.isExpired && isFinished && r.at.Sub(end) < v.keep:
				wrong(id, fmt.Sprintf("was purged by %s %v after its end, and is kept for %v", by, r.at.Sub(end).Round(ms), v.keep))
			}
		}
	}
}

// mayUnpublish reports whether this program had deleted the task, and had not restored it.
func (v *verifier) mayUnpublish(id store.ID, r removal) bool {
	d := v.deletions[id]
	return !r.isExpired && d != nil && r.at.After(d.asked) && (d.restored.IsZero() || r.at.Before(d.restored))
}

// wrongSubmitters lists tasks that do not have the user and the context of their submission.
func (v *verifier) wrongSubmitters() {
	for id, task := range v.tasks {
		if s, ok := v.submissions[task.request]; ok && (task.user != s.UserID || task.context != string(s.UserContext)) {
			v.add("task %s has the user %q and the context %q, and was submitted with %q and %q",
				id, task.user, task.context, s.UserID, s.UserContext)
		}
	}
}
