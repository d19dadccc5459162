package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// expires makes the task one that retention deleted, and that is purged.
func (r *dataBuilder) expires() {
	r.keep = 10 * time.Second
	delete(r.tasks, theTask)
	r.history = nil
	r.removes(removedFiles)
	e := r.lastEntry()
	e.At, e.Expired = after(20*time.Second).UnixMicro(), true
}

func (r *dataBuilder) lastEntry() *logEntry { return &r.logs[0].entries[len(r.logs[0].entries)-1] }

// isPublishing is chosen with entry, for the end of the last stage.
func isPublishing(e logEntry) bool { return e.What == endEntry && e.Stage == "publish" }

func TestCheck_FindsErrorsOfRetention(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*dataBuilder)
		text   string
	}{
		"a task that was not finished": {func(r *dataBuilder) {
			r.expires()
			r.entry(isPublishing).How = endedFailed
		}, "retention deleted task 01000000-0000-0000-0000-000000000000, which was not finished"},
		"a lost task": {func(r *dataBuilder) {
			r.expires()
			r.logs[0].entries = r.logs[0].entries[:len(r.logs[0].entries)-1]
		}, "does not exist"},
		"a task that was deleted too early": {func(r *dataBuilder) {
			r.expires()
			r.keep = 19 * time.Second
		}, "was purged by worker 1 18.91s after its end, and is kept for 19s"},
		"a task that exists": {func(r *dataBuilder) {
			r.expires()
			r.tasks[theTask] = taskRow{id: theTask, request: "task-1", isCompleted: true}
		}, "exists although retention deleted it"},
		"a task that is not purged": {func(r *dataBuilder) {
			r.expires()
			r.deletedRows = map[store.ID]deletedRow{theTask: {id: theTask, isExpired: true}}
		}, "was deleted by retention, and not purged"},
		"a purged task with a history": {func(r *dataBuilder) {
			history := r.history
			r.expires()
			r.history = history
		}, "has attempt 1 at publish in its history"},
		"a task that a process purged without knowing why": {func(r *dataBuilder) {
			r.expires()
			r.lastEntry().Expired = false
		}, "was unpublished when worker 1 purged it"},
		"an expired task that was unpublished": {func(r *dataBuilder) {
			r.expires()
			r.removes(removedPublished)
			r.lastEntry().Expired = true
		}, "was unpublished by worker 1"},
		"a task that was unpublished": {func(r *dataBuilder) { r.removes(removedPublished) }, "was unpublished by worker 1"},
		"a restored task that was unpublished": {func(r *dataBuilder) {
			r.restores()
			r.removes(removedPublished)
			r.lastEntry().At = after(4 * time.Second).UnixMicro()
		}, "was unpublished by worker 1"},
		"a task without its user": {func(r *dataBuilder) {
			r.submissions = map[string]store.Submission{"task-1": {UserID: "max"}}
		}, `has the user "" and the context "", and was submitted with "max"`},
		"a task without its context": {func(r *dataBuilder) {
			r.submissions = map[string]store.Submission{"task-1": {UserContext: []byte(`{"a": 1}`)}}
		}, "was submitted with"},
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

func TestCheck_AcceptsRetention(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*dataBuilder){
		"of a completed task": func(*dataBuilder) {},
		"of a dead task":      func(r *dataBuilder) { r.entry(isPublishing).How = endedPermanent },
		"of a task without attempts left": func(r *dataBuilder) {
			r.entry(isPublishing).How = endedFailed
			r.entry(func(e logEntry) bool { return e.What == startEntry && e.Stage == "publish" }).Attempt = maxAttempts
		},
		"of a task that a frozen process completed, too": func(r *dataBuilder) {
			r.executes(1, "publish", 1, 900*ms, 15*time.Second, endedCompleted)
			r.reports(1, stages.ClaimRevoked, "publish", 1, 16*time.Second)
			r.addFault(freezeWorker, 1, 910*ms, 15*time.Second)
		},
		"of a task that is deleted afterwards": func(r *dataBuilder) {
			d := &deletion{asked: after(30 * time.Second), deleted: after(31 * time.Second), restoring: after(40 * time.Second)}
			r.deletions = map[store.ID]*deletion{theTask: d}
		},
		"of a restored task": func(r *dataBuilder) {
			removal := *r.lastEntry()
			r.restores()
			delete(r.tasks, theTask)
			r.logs[0].entries = append(r.logs[0].entries, logEntry{
				At: after(2500 * ms).UnixMicro(), What: removalEntry, How: removedPublished, Task: theTask,
			}, removal)
		},
		"by a process that was killed": func(r *dataBuilder) {
			r.deletedRows = map[store.ID]deletedRow{theTask: {id: theTask, isExpired: true, claimed: after(59 * time.Second)}}
			r.history = correctRun().history
			r.addFault(killWorker, 1, 60*time.Second, 61*time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := correctRun()
			r.expires()
			change(r)
			v := r.findings()
			if len(v.lostTasks)+len(v.duplicates)+len(v.violations) != 0 || v.Expired != 1 || v.Deleted+v.Completed != 0 {
				t.Errorf("%q %q %q, %d expired, %d deleted", v.lostTasks, v.duplicates, v.violations, v.Expired, v.Deleted)
			}
		})
	}
}
