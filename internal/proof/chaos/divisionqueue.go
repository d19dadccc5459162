package main

import (
	"bytes"
	"slices"
	"time"

	"github.com/cuelight/cuelight/store"
)

// divisionSlots is how many tasks of a stage a process divides or joins at once.
const divisionSlots = 2

// queuedDivisions returns the executions that divide or join a stage and took the last slot for that of their process, by time.
// Others of the process had to wait for them.
func (v *verifier) queuedDivisions() (queued []execution) {
	running := make(map[int][]execution) // by incarnation
	for _, e := range v.executions {
		if e.start.Stage != dividedStage || e.start.Part > 0 {
			continue
		}
		all := slices.DeleteFunc(running[e.incarnation], func(other execution) bool { return !other.to.After(e.from) })
		running[e.incarnation] = append(all, e)
		if len(running[e.incarnation]) >= divisionSlots {
			queued = append(queued, e)
		}
	}
	return queued
}

// stepsOf divides a wait for one of the few divisions and joins that a process does at once. Each step ends when one in the
// queue was started that precedes it, or that its process had claimed before this one was ready.
func (v *verifier) stepsOf(w stageWait, queue []execution) (steps []stageWait) {
	if w.stage != dividedStage || w.part > 0 {
		return []stageWait{w}
	}
	ready := w.ready
	from, _ := slices.BinarySearchFunc(queue, ready, func(e execution, ready time.Time) int { return e.from.Compare(ready) })
	turns := turns{w.task, v.submissions[v.tasks[w.task].request], make(map[int]map[string]bool)}
	for _, e := range queue[from:] {
		if !e.from.Before(w.start) {
			break
		}
		row, ok := v.rows[e.start.Token]
		wasClaimed := ok && row.started.Before(ready)
		if e.start.Task != w.task && (wasClaimed || turns.precedes(e, v.submissions[e.start.Source])) {
			step := w
			step.start = e.from
			steps = append(steps, step)
			w.ready = e.from
		}
	}
	return append(steps, w)
}

// turns find out which executions may precede those of a task.
type turns struct {
	task store.ID
	store.Submission
	had map[int]map[string]bool // users that had a turn, by incarnation, since the user of the task had one
}

// precedes reports whether an execution may come before that of the task: it has a higher priority, or the same one and a
// lower id, or it is the turn of another user.
func (t turns) precedes(e execution, of store.Submission) bool {
	switch {
	case of.Priority != t.Priority:
		return of.Priority > t.Priority
	case bytes.Compare(e.start.Task[:], t.task[:]) < 0:
		if of.UserID == t.UserID {
			delete(t.had, e.incarnation)
		}
		return true
	case of.UserID == t.UserID || t.had[e.incarnation][of.UserID]:
		return false
	}
	if t.had[e.incarnation] == nil {
		t.had[e.incarnation] = make(map[string]bool)
	}
	t.had[e.incarnation][of.UserID] = true
	return true
}
