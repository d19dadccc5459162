package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/store"
)

// upgradedRun is a correct run in which both workers have an earlier version, and the newcomers wait for the migration. One of
// them works after it.
func upgradedRun() (*dataBuilder, *upgrade) {
	r := correctRun()
	r.tasks[theTask] = taskRow{id: theTask, request: "task-1", created: after(995 * ms), isCompleted: true}
	r.logs[0].isOld, r.logs[1].isOld = true, true
	for worker := workers - newcomers; worker < workers; worker++ {
		id := store.ID{70, byte(worker)}
		start := registered(id)
		start.At = after(950 * ms).UnixMicro()
		r.logs = append(r.logs, workerLog{worker: worker, ended: after(time.Minute), entries: []logEntry{
			{At: after(600 * ms).UnixMicro(), What: eventEntry, How: waitingForTables}, start,
		}})
	}
	r.works(2 * time.Second)
	return r, &upgrade{from: after(800 * ms), migrated: after(900 * ms), to: after(10 * time.Second)}
}

// works adds a failed attempt at the last stage by the last newcomer.
func (r *dataBuilder) works(at time.Duration) {
	token := r.executes(len(r.logs)-1, "publish", 2, at, 10*ms, endedFailed)
	r.addHistory(token, "publish", 2, store.ID{70, workers - 1}, at+11*ms, "failed")
}

func TestCheckUpgrade_MeasuresTheLongestWait(t *testing.T) {
	t.Parallel()
	r, u := upgradedRun()
	longest, measured, violations := newVerifier(r.runData).checkUpgrade(u)
	if longest.duration() != 909*ms || measured != len(r.history) || violations != nil {
		t.Errorf("longest %v of %d, %q", longest.duration(), measured, violations)
	}
}

func TestCheckUpgrade_FindsEachError(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*dataBuilder, *upgrade)
		text   string
	}{
		"a stage that waited": {func(r *dataBuilder, _ *upgrade) { r.works(5 * time.Second) }, "was ready 2.989s before attempt 2"},
		"a stage that waited while another task was locked": {func(r *dataBuilder, _ *upgrade) {
			r.works(5 * time.Second)
			r.faults = []fault{{kind: lockRows, worker: noWorker, from: after(0), to: after(time.Minute), tasks: []store.ID{{5}}}}
		}, "was ready"},
		"a stage that waited while another worker was frozen": {func(r *dataBuilder, _ *upgrade) {
			r.works(5 * time.Second)
			r.addFault(freezeWorker, 1, 0, 20*time.Second)
		}, "was ready"},
		"a scheduled stage that waited longer": {func(r *dataBuilder, _ *upgrade) {
			r.works(5 * time.Second)
			r.notBefore = map[string]time.Time{"task-1": after(2500 * ms)}
		}, "was ready 2.5s before"},
		"a migration that failed": {func(_ *dataBuilder, u *upgrade) { u.failures = []string{"it failed"} }, "it failed"},
		"faults all the time": {func(r *dataBuilder, _ *upgrade) {
			r.addFault(freezeServer, noWorker, 0, time.Minute)
		}, "faults explain every wait"},
		"no work by the earlier version afterwards": {func(r *dataBuilder, u *upgrade) {
			u.migrated = after(1900 * ms)
		}, "only one version worked (earlier false, this true)"},
		"no work by this version": {func(r *dataBuilder, _ *upgrade) {
			r.logs[len(r.logs)-1].isOld = true
		}, "only one version worked (earlier true, this false)"},
		"a newcomer that says nothing": {func(r *dataBuilder, _ *upgrade) {
			e := &r.logs[len(r.logs)-1].entries
			*e = (*e)[1:]
		}, "did not say that it waits"},
		"a newcomer that repeats itself": {func(r *dataBuilder, _ *upgrade) {
			e := &r.logs[len(r.logs)-1].entries
			*e = append(*e, (*e)[0])
		}, "said 2 times"},
		"a newcomer that does not wait": {func(r *dataBuilder, _ *upgrade) {
			r.logs[len(r.logs)-1].entries[1].At = after(700 * ms).UnixMicro()
		}, "of this version started before the migration"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, u := upgradedRun()
			c.change(r, u)
			_, _, found := newVerifier(r.runData).checkUpgrade(u)
			if !slices.ContainsFunc(found, func(s string) bool { return strings.Contains(s, c.text) }) {
				t.Errorf("no finding has %q: %q", c.text, found)
			}
		})
	}
}

func TestCheckUpgrade_AcceptsWaitsThatFaultsExplain(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*dataBuilder){
		"the task was locked": func(r *dataBuilder) {
			r.faults = []fault{{kind: lockRows, worker: noWorker, from: after(0), to: after(time.Minute), tasks: []store.ID{theTask}}}
		},
		"the worker was frozen":      func(r *dataBuilder) { r.addFault(freezeWorker, workers-1, 4*time.Second, 4900*ms) },
		"the triggers were disabled": func(r *dataBuilder) { r.addFault(disableTriggers, noWorker, 0, 3*time.Second) },
		"the server was away":        func(r *dataBuilder) { r.addFault(killServer, noWorker, -2*time.Second, -time.Second) },
		"the task was scheduled": func(r *dataBuilder) {
			r.notBefore = map[string]time.Time{"task-1": after(4500 * ms)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, u := upgradedRun()
			r.works(5 * time.Second)
			change(r)
			_, _, found := newVerifier(r.runData).checkUpgrade(u)
			if slices.ContainsFunc(found, func(s string) bool { return strings.Contains(s, "was ready") }) {
				t.Errorf("found %q", found)
			}
		})
	}
}

func TestCheckUpgrade_LeavesOutQueuesOfDivisions(t *testing.T) {
	t.Parallel()
	r, _ := upgradedRun()
	for at := 2 * time.Second; at < 5*time.Second; at += 300 * ms {
		r.executes(1, dividedStage, 1, at, 10*ms, endedFailed)
	}
	w := stageWait{attemptRow: attemptRow{stage: dividedStage}, ready: after(2100 * ms), start: after(4700 * ms)}
	v := newVerifier(r.runData)
	if got := v.withoutQueue(w); got.duration() != 300*ms {
		t.Errorf("a division in a queue waited %v", got.duration())
	}
	w.ready, w.start = after(4700*ms), after(9*time.Second)
	r.executes(1, dividedStage, 1, 9*time.Second, 10*ms, endedFailed)
	if got := newVerifier(r.runData).withoutQueue(w); got.duration() != 4300*ms {
		t.Errorf("a division without others waited %v", got.duration())
	}
	w.part = 1
	w.ready = after(2100 * ms)
	if got := v.withoutQueue(w); got != w {
		t.Errorf("the wait of a part became %v", got.duration())
	}
}
