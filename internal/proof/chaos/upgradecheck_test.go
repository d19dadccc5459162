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
	return r, &upgrade{from: after(800 * ms), migrated: after(900 * ms), to: after(10 * time.Second), minWaits: 1}
}

// works adds a failed attempt at the last stage by the last newcomer.
func (r *dataBuilder) works(at time.Duration) {
	token := r.executes(len(r.logs)-1, "publish", 2, at, 10*ms, endedFailed)
	r.addHistory(token, "publish", 2, store.ID{70, workers - 1}, at+11*ms, "failed")
}

// isScheduled schedules the task.
func (r *dataBuilder) isScheduled(at time.Duration) {
	r.submissions = map[string]store.Submission{"task-1": {NotBefore: after(at)}}
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
			r.isScheduled(2500 * ms)
		}, "was ready 2.5s before"},
		"a migration that failed": {func(_ *dataBuilder, u *upgrade) { u.failures = []string{"it failed"} }, "it failed"},
		"faults all the time": {func(r *dataBuilder, _ *upgrade) {
			r.addFault(freezeServer, noWorker, 0, time.Minute)
		}, "only 0 waits during the upgrade were undisturbed, want 1"},
		"too few waits without faults": {func(_ *dataBuilder, u *upgrade) { u.minWaits = 1000 }, "undisturbed, want 1000"},
		"a long wait during which the server was restarted": {func(r *dataBuilder, _ *upgrade) {
			r.works(30 * time.Second)
			r.addFault(restartFast, noWorker, 4*time.Second, 5*time.Second)
		}, "was ready 27.989s before attempt 2 at it started (worker 5), 16.989s of them without a cause"},
		"a long wait during which listeners were ended": {func(r *dataBuilder, _ *upgrade) {
			r.works(30 * time.Second)
			r.addFault(endListeners, noWorker, 10*time.Second, 10*time.Second)
		}, "24.989s of them without a cause"},
		"a long wait during which triggers were disabled": {func(r *dataBuilder, _ *upgrade) {
			r.works(30 * time.Second)
			r.addFault(disableTriggers, noWorker, 10*time.Second, 12*time.Second)
		}, "25.989s of them without a cause"},
		"a long wait that began while triggers were disabled": {func(r *dataBuilder, _ *upgrade) {
			r.works(30 * time.Second)
			r.addFault(disableTriggers, noWorker, 2*time.Second, 4*time.Second)
		}, "11s of them without a cause"},
		"a long wait with overlapping faults": {func(r *dataBuilder, _ *upgrade) {
			r.works(30 * time.Second)
			r.addFault(endSessions, noWorker, 4*time.Second, 5*time.Second)
			r.addFault(killServer, noWorker, 6*time.Second, 10*time.Second)
			r.addFault(endListeners, noWorker, 12*time.Second, 12*time.Second)
		}, "11.989s of them without a cause"},
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
			r.isScheduled(4500 * ms)
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

// queue is a run in which worker 2 divides tasks without a pause, two at once, and starts one every 300 ms. The task
// waits from 2.1 s to 8 s.
func queue(change func(started *execution, of *store.Submission)) (*verifier, stageWait) {
	r := correctRun()
	v := newVerifier(r.runData)
	v.submissions = make(map[string]store.Submission)
	for at := 1800 * ms; at < 8*time.Second; at += 300 * ms {
		e := execution{incarnation: 1, from: after(at), to: after(at + 500*ms)}
		e.start = logEntry{Task: store.ID{0, 1}, Stage: dividedStage, Token: store.ID{88, byte(len(v.executions))}, Source: at.String()}
		of := store.Submission{}
		change(&e, &of)
		v.submissions[e.start.Source] = of
		v.executions = append(v.executions, e)
	}
	return v, stageWait{attemptRow: attemptRow{task: theTask, stage: dividedStage}, ready: after(2100 * ms), start: after(8 * time.Second)}
}

func TestCheckUpgrade_LeavesOutQueuesOfDivisions(t *testing.T) {
	t.Parallel()
	later := store.ID{2}
	for name, c := range map[string]struct {
		change  func(*execution, *store.Submission)
		longest time.Duration
	}{
		"of earlier tasks":                   {func(*execution, *store.Submission) {}, 300 * ms},
		"of later tasks":                     {func(e *execution, _ *store.Submission) { e.start.Task = later }, 5900 * ms},
		"of later tasks of higher priority":  {func(e *execution, s *store.Submission) { e.start.Task, s.Priority = later, 1 }, 300 * ms},
		"of earlier tasks of lower priority": {func(_ *execution, s *store.Submission) { s.Priority = -1 }, 5900 * ms},
		"in a process with a free slot":      {func(e *execution, _ *store.Submission) { e.to = e.from.Add(200 * ms) }, 5900 * ms},
		"of parts":                           {func(e *execution, _ *store.Submission) { e.start.Part = 1 }, 5900 * ms},
		"of the task itself":                 {func(e *execution, _ *store.Submission) { e.start.Task = theTask }, 5900 * ms},
		"of another user, which has one turn": {func(e *execution, s *store.Submission) {
			e.start.Task, s.UserID = later, "max"
		}, 5900 * ms},
		"of several users by turns": {func(e *execution, s *store.Submission) {
			if e.from.UnixMilli()/300%3 > 0 {
				e.start.Task, s.UserID = later, "max"
			}
		}, 600 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, w := queue(c.change)
			longest := time.Duration(0)
			for _, step := range v.stepsOf(w, v.queuedDivisions()) {
				longest = max(longest, step.duration())
			}
			if longest != c.longest {
				t.Errorf("the longest step took %v, want %v", longest, c.longest)
			}
			w.part = 1
			if steps := v.stepsOf(w, v.queuedDivisions()); len(steps) != 1 || steps[0] != w {
				t.Errorf("the wait of a part became %v", steps)
			}
		})
	}
}

func TestCheckUpgrade_LeavesOutDivisionsThatWereClaimedBefore(t *testing.T) {
	t.Parallel()
	v, w := queue(func(e *execution, _ *store.Submission) { e.start.Task = store.ID{2} })
	for _, e := range v.executions {
		v.rows[e.start.Token] = attemptRow{started: after(2 * time.Second)}
	}
	if steps := v.stepsOf(w, v.queuedDivisions()); len(steps) != 21 {
		t.Errorf("%d steps, want one for each of 20 divisions, and the last", len(steps))
	}
}
