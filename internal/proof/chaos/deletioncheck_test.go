package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// isDeleted makes the task one that was deleted two seconds after the first fault, and is a deleted task at the end.
func (r *dataBuilder) isDeleted(o store.DeleteOptions) *deletion {
	d := &deletion{options: o, asked: after(2 * time.Second), deleted: after(2100 * ms)}
	r.deletions = map[store.ID]*deletion{theTask: d}
	r.deletedRows = map[store.ID]deletedRow{theTask: {id: theTask, keepPublished: o.KeepPublished}}
	delete(r.tasks, theTask)
	return d
}

// isPurged makes the task one that was deleted, and purged with its files.
func (r *dataBuilder) isPurged() *deletion {
	d := r.isDeleted(store.DeleteOptions{Purge: true})
	r.deletedRows, r.history = nil, nil
	r.removes(removedFiles)
	return d
}

// isClaimedToPurge makes the task one that was to be purged, and that a process claimed just before it ended.
func (r *dataBuilder) isClaimedToPurge() {
	r.isDeleted(store.DeleteOptions{Purge: true})
	r.deletedRows[theTask] = deletedRow{id: theTask, claimed: after(59 * time.Second)}
}

func (r *dataBuilder) removes(files string) {
	r.logs[0].entries = append(r.logs[0].entries, logEntry{
		At: after(2500 * ms).UnixMicro(), What: removalEntry, How: files, Task: theTask,
	})
}

// restores makes a deleted task a completed one again.
func (r *dataBuilder) restores() {
	d := r.isDeleted(store.DeleteOptions{})
	d.restoring, d.restored = after(3*time.Second), after(3100*ms)
	r.deletedRows = nil
	r.tasks[theTask] = taskRow{id: theTask, request: "task-1", isCompleted: true}
}

func TestCheck_FindsErrorsOfDeletions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*dataBuilder)
		text   string
	}{
		"a restored task that does not exist": {func(r *dataBuilder) {
			r.restores()
			delete(r.tasks, theTask)
		}, "does not exist"},
		"a restored task that is not finished": {func(r *dataBuilder) {
			r.restores()
			r.tasks[theTask] = taskRow{id: theTask, request: "task-1", isUnfinished: true}
		}, "is not finished"},
		"a deleted task without a row": {func(r *dataBuilder) {
			r.isDeleted(store.DeleteOptions{})
			r.deletedRows = nil
		}, "does not exist"},
		"a deleted task that exists": {func(r *dataBuilder) {
			r.isDeleted(store.DeleteOptions{})
			r.tasks[theTask], r.deletedRows = taskRow{id: theTask, request: "task-1", isCompleted: true}, nil
		}, "exists although it was deleted"},
		"a deleted task that exists, too": {func(r *dataBuilder) {
			r.restores()
			r.deletedRows = map[store.ID]deletedRow{theTask: {id: theTask}}
		}, "exists and is deleted"},
		"a task that was to be purged": {func(r *dataBuilder) {
			r.isDeleted(store.DeleteOptions{Purge: true, KeepPublished: true})
		}, "was not purged"},
		"a deleted task that was to be purged later": {func(r *dataBuilder) {
			r.isDeleted(store.DeleteOptions{KeepPublished: true}).purging = after(3 * time.Second)
		}, "was not purged"},
		"a task that was to be purged by a process that ended in good order": {func(r *dataBuilder) {
			r.isClaimedToPurge()
		}, "was not purged"},
		"a task that was to be purged by a process that was killed much later": {func(r *dataBuilder) {
			r.isClaimedToPurge()
			r.addFault(killWorker, 1, 75*time.Second, 76*time.Second)
		}, "was not purged"},
		"a task that was to be purged by a remote worker": {func(r *dataBuilder) {
			r.isClaimedToPurge()
			r.addFault(killWorker, workers, 60*time.Second, 61*time.Second)
		}, "was not purged"},
		"a purged task whose request id is kept": {func(r *dataBuilder) {
			r.isPurged()
			r.deletedRows = map[store.ID]deletedRow{theTask: {id: theTask, isPurged: true}}
		}, "its request id is kept"},
		"a purged task with files": {func(r *dataBuilder) {
			r.isPurged()
			r.logs[0].entries = r.logs[0].entries[:len(r.logs[0].entries)-1]
		}, "its files were not removed"},
		"a purged task with a history": {func(r *dataBuilder) {
			history := r.history
			r.isPurged()
			r.history = history
		}, "has attempt 1 at publish in its history"},
		"a deleted task with published files": {func(r *dataBuilder) {
			r.isDeleted(store.DeleteOptions{})
		}, "what it had published was not removed"},
		"a task that nobody deleted": {func(r *dataBuilder) {
			r.deletedRows = map[store.ID]deletedRow{{8}: {id: store.ID{8}}}
		}, "but not by this program"},
		"an execution after the deletion": {func(r *dataBuilder) {
			r.isPurged()
			r.executes(1, "publish", 2, 8*time.Second, 10*ms, endedInterrupted)
		}, "started after the task was deleted"},
		"an execution that goes on after the deletion": {func(r *dataBuilder) {
			r.isPurged()
			r.executes(1, "publish", 2, 2*time.Second, 8*time.Second, endedInterrupted)
		}, "was not interrupted after the task was deleted"},
		"overlapping executions long after a deletion": {func(r *dataBuilder) {
			r.restores()
			token := r.executes(1, "ingest", 1, 500*ms, time.Second, endedInterrupted)
			r.addHistory(token, "ingest", 1, worker2, 600*ms, "expired")
			r.reports(1, stages.ClaimRevoked, "ingest", 1, 1600*ms)
		}, "by worker 2 had ended"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := correctRun()
			c.change(r)
			v := r.findings()
			found := slices.Concat(v.lostTasks, v.violations)
			if !slices.ContainsFunc(found, func(s string) bool { return strings.Contains(s, c.text) }) {
				t.Errorf("no finding has %q: %q", c.text, found)
			}
		})
	}
}

func TestCheck_AcceptsDeletions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  func(*dataBuilder)
		deleted int
	}{
		"a deleted task": {func(r *dataBuilder) {
			r.isDeleted(store.DeleteOptions{})
			r.removes(removedPublished)
		}, 1},
		"a deleted task whose published files stay": {func(r *dataBuilder) { r.isDeleted(store.DeleteOptions{KeepPublished: true}) }, 1},
		"a purged task":   {func(r *dataBuilder) { r.isPurged() }, 1},
		"a restored task": {func(r *dataBuilder) { r.restores() }, 0},
		"a task that a killed process purges": {func(r *dataBuilder) {
			r.isClaimedToPurge()
			r.addFault(killWorker, 1, 60*time.Second, 61*time.Second)
		}, 1},
		"a task that is purged while the server is away": {func(r *dataBuilder) {
			r.isClaimedToPurge()
			r.addFault(restartServer, noWorker, 55*time.Second, 61*time.Second)
		}, 1},
		"a frozen worker that goes on": {func(r *dataBuilder) {
			r.isPurged()
			r.executes(1, "publish", 2, 2*time.Second, 18*time.Second, endedInterrupted)
			r.addFault(freezeWorker, 1, 2050*ms, 19*time.Second)
		}, 1},
		"an execution that the deletion interrupted, and the next one": {func(r *dataBuilder) {
			r.restores()
			r.deletions[theTask].asked, r.deletions[theTask].deleted = after(550*ms), after(560*ms)
			token := r.executes(1, "ingest", 1, 500*ms, time.Second, endedInterrupted)
			r.addHistory(token, "ingest", 1, worker2, 600*ms, "cancelled")
			r.reports(1, stages.ClaimRevoked, "ingest", 1, 1600*ms)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := correctRun()
			c.change(r)
			v := r.findings()
			if len(v.lostTasks)+len(v.duplicates)+len(v.violations) != 0 || v.Deleted != c.deleted || v.Completed != 1-c.deleted {
				t.Errorf("%q %q %q, %d deleted, %d completed", v.lostTasks, v.duplicates, v.violations, v.Deleted, v.Completed)
			}
		})
	}
}
