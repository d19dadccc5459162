package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

func TestCheck_FindsNothingInACorrectRun(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		v := correctRunOf(again).findings()
		if len(v.lostTasks)+len(v.duplicates)+len(v.violations)+len(v.recoveries) != 0 || v.Completed != 1 || v.Dead != 0 {
			t.Errorf("divided again %t: %+v", again, v)
		}
	}
}

func TestCheck_FindsErrorsOfAStageThatWasDividedAgain(t *testing.T) {
	t.Parallel()
	isDividingJoin := func(e logEntry) bool { return e.Joined != nil && e.How == endedDivided }
	for name, c := range map[string]struct {
		change func(*dataBuilder)
		text   string
	}{
		"a kept part that was done again": {func(r *dataBuilder) {
			e := r.entry(isDividingJoin)
			e.Kept = append(e.Kept, 2)
		}, "part 2 of task"},
		"a part that was not done again": {func(r *dataBuilder) { r.entry(isDividingJoin).Kept = nil }, "transcode part 1 was completed"},
		"a part that was done again before the division": {func(r *dataBuilder) {
			i := slices.IndexFunc(r.history, func(row attemptRow) bool { return row.token == r.entry(isDividingJoin).Token })
			r.history[i].finished = after(1060 * ms)
		}, "part 2 of task 01000000-0000-0000-0000-000000000000 was completed 2 times"},
		"a first join with the result of another attempt": {func(r *dataBuilder) {
			r.entry(isDividingJoin).Joined[1] = store.ID{9, 99}
		}, "read the results"},
		"a second join with the results of the first": {func(r *dataBuilder) {
			first, last := r.entry(isDividingJoin), r.entry(func(e logEntry) bool { return e.Joined != nil && e.How == endedCompleted })
			last.Joined = first.Joined
		}, "read the results"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := correctRunOf(true)
			c.change(r)
			v := r.findings()
			found := slices.Concat(v.duplicates, v.violations)
			if !slices.ContainsFunc(found, func(s string) bool { return strings.Contains(s, c.text) }) {
				t.Errorf("no finding has %q: %v", c.text, found)
			}
		})
	}
}

func TestCheck_FindsEachError(t *testing.T) {
	t.Parallel()
	const lost, duplicated, violation = "lost", "duplicated", "violation"
	for name, c := range map[string]struct {
		change func(*dataBuilder)
		kind   string
		text   string
	}{
		"a task that does not exist": {func(r *dataBuilder) { delete(r.tasks, theTask) }, lost, "does not exist"},
		"another task under its id": {func(r *dataBuilder) {
			r.tasks[theTask] = taskRow{id: theTask, request: "task-2", isCompleted: true}
		}, lost, "has request id task-2"},
		"an unfinished task": {func(r *dataBuilder) {
			r.tasks[theTask] = taskRow{id: theTask, request: "task-1", isUnfinished: true}
		}, lost, "is not finished"},
		"a stage completed twice": {func(r *dataBuilder) {
			token := r.executes(1, "publish", 2, 2*time.Second, 10*ms, endedCompleted)
			r.addHistory(token, "publish", 2, worker2, 2*time.Second+11*ms, "completed")
			r.reports(1, stages.StageCompleted, "publish", 2, 2*time.Second+12*ms)
		}, duplicated, "was completed 2 times"},
		"a token with two executions": {func(r *dataBuilder) {
			token := r.executes(1, "ingest", 1, 2*time.Second, 10*ms, endedCompleted)
			r.logs[1].entries[len(r.logs[1].entries)-2].Token = r.history[0].token
			r.logs[1].entries[len(r.logs[1].entries)-1].Token = r.history[0].token
			_ = token
		}, duplicated, "has 2 executions"},
		"a stage that a remote worker completed again": {func(r *dataBuilder) {
			r.logs[1].worker = workers
			token := r.executes(1, "transcode", 2, 2*time.Second, 10*ms, endedCompleted)
			r.addHistory(token, "transcode", 2, worker2, 2*time.Second+11*ms, "completed")
			r.reports(1, stages.StageCompleted, "transcode", 2, 2*time.Second+12*ms)
		}, duplicated, "stage transcode of task"},
		"a claim that two remote workers executed": {func(r *dataBuilder) {
			r.logs[0].worker, r.logs[1].worker = workers, workers+1
			r.logs[1].entries = append(r.logs[1].entries, r.logs[0].entries[1:3]...)
		}, duplicated, "has 2 executions"},
		"an expired claim of a remote worker without a fault": {func(r *dataBuilder) {
			r.expiresRemotely()
		}, violation, "nothing was wrong with remote worker 1"},
		"an expired claim of a remote worker whose coordinator was killed": {func(r *dataBuilder) {
			r.expiresRemotely()
			r.addFault(killCoordinator, noWorker, 400*ms, 5*time.Second)
		}, violation, "nothing was wrong with remote worker 1"},
		"an expired claim of a remote worker long after it was frozen": {func(r *dataBuilder) {
			r.expiresRemotely()
			r.addFault(freezeWorker, workers, -30*time.Second, -20*time.Second)
		}, violation, "nothing was wrong with remote worker 1"},
		"an expired claim of a remote worker before its kill": {func(r *dataBuilder) {
			r.expiresRemotely()
			r.logs[1].killed, r.logs[1].ended = after(2*time.Second), after(2*time.Second)
		}, violation, "nothing was wrong with remote worker 1"},
		"a task whose submission was rolled back": {func(r *dataBuilder) {
			r.logs[0].entries[1].Source = "rolled-back-1"
		}, duplicated, "submission was rolled back"},
		"a claim that is not in the history": {func(r *dataBuilder) {
			r.executes(1, "ingest", 1, 900*ms, 10*ms, endedFailed)
		}, violation, "is not in the history"},
		"a claim that is missing long before the crash": {func(r *dataBuilder) {
			r.executes(1, "ingest", 1, 900*ms, 10*ms, endedFailed)
			r.addFault(killServer, -1, 10*time.Second, 12*time.Second)
		}, violation, "is not in the history"},
		"a completion without an execution": {func(r *dataBuilder) {
			r.logs[0].entries = r.logs[0].entries[:1]
		}, violation, "which was not executed"},
		"a completion by another worker": {func(r *dataBuilder) {
			r.history[0].worker = worker2
		}, violation, "by another process"},
		"a completion by an unknown worker": {func(r *dataBuilder) {
			r.history[0].worker = store.ID{77}
		}, violation, "no process has that id"},
		"a completion of a failed execution": {func(r *dataBuilder) {
			r.logs[0].entries[2].How = endedFailed
		}, violation, `ended "failed"`},
		"a stage that started before the needed stage was completed": {func(r *dataBuilder) {
			for i := range r.history {
				if r.history[i].stage == "metadata" {
					r.history[i].finished = after(5 * time.Second)
				}
			}
		}, violation, "started before metadata was completed"},
		"a stage that started before the needed execution ended": {func(r *dataBuilder) {
			r.logs[0].entries[2].At = after(5 * time.Second).UnixMicro()
		}, violation, "started before the execution of ingest had ended"},
		"overlapping executions": {func(r *dataBuilder) {
			token := r.executes(1, "ingest", 1, 500*ms, time.Second, endedFailed)
			r.addHistory(token, "ingest", 1, worker2, 600*ms, "expired")
			r.reports(1, stages.ClaimRevoked, "ingest", 1, 1600*ms)
		}, violation, "by worker 2 had ended"},
		"overlapping executions behind a black hole": {func(r *dataBuilder) {
			token := r.executes(1, "ingest", 1, 500*ms, time.Second, endedFailed)
			r.addHistory(token, "ingest", 1, worker2, 600*ms, "expired")
			r.reports(1, stages.ClaimRevoked, "ingest", 1, 1600*ms)
			r.addFault(blackHole, 1, 400*ms, 2*time.Second)
		}, violation, "by worker 2 had ended"},
		"an old claim that a frozen worker did not interrupt": {func(r *dataBuilder) {
			r.beginsOldClaim(endedFailed)
			r.addFault(freezeWorker, 1, -50*time.Second, 540*ms)
		}, violation, "by worker 1 had ended"},
		"an expired claim of a remote worker after a reset of its connections": {func(r *dataBuilder) {
			r.expiresRemotely()
			r.addFault(resetConnections, workers, 400*ms, 400*ms)
		}, violation, "nothing was wrong with remote worker 1"},
		"an old claim that a worker began long after it was frozen": {func(r *dataBuilder) {
			r.beginsOldClaim(endedInterrupted)
			r.addFault(freezeWorker, 1, -50*time.Second, -2*time.Second)
		}, violation, "by worker 1 had ended"},
		"an end reported twice": {func(r *dataBuilder) {
			r.reports(0, stages.ClaimRevoked, "ingest", 1, 3*time.Second)
		}, violation, "its end was reported 2 times"},
		"an end not reported": {func(r *dataBuilder) {
			token := r.executes(1, "ingest", 1, 500*ms, 10*ms, endedFailed)
			r.addHistory(token, "ingest", 1, worker2, 600*ms, "failed")
		}, violation, "its end was reported 0 times"},
		"a completion reported without one": {func(r *dataBuilder) {
			token := r.executes(1, "ingest", 1, 500*ms, 10*ms, endedInterrupted)
			r.addHistory(token, "ingest", 1, worker2, 600*ms, "expired")
			r.reports(1, stages.StageCompleted, "ingest", 1, 700*ms)
		}, violation, "was completed or divided 0 times, and reported so 1 times"},
		"a part completed twice": {func(r *dataBuilder) {
			token := r.executes(1, dividedStage, 2, 2*time.Second, 10*ms, endedCompleted)
			r.addHistory(token, dividedStage, 2, worker2, 2*time.Second+11*ms, "completed")
			r.history[len(r.history)-1].part = 2
		}, duplicated, "stage transcode part 2 of task"},
		"a part that started before its stage was divided": {func(r *dataBuilder) {
			r.entry(func(e logEntry) bool { return e.Part == 2 && e.What == startEntry }).At = after(time.Second).UnixMicro()
		}, violation, "started before transcode was divided"},
		"a join that started before a part was completed": {func(r *dataBuilder) {
			i := slices.IndexFunc(r.history, func(row attemptRow) bool { return row.part == 2 })
			r.history[i].finished = after(5 * time.Second)
		}, violation, "started before transcode part 2 was completed"},
		"a join that started before the execution of a part had ended": {func(r *dataBuilder) {
			r.entry(func(e logEntry) bool { return e.Part == 2 && e.What == endEntry }).At = after(5 * time.Second).UnixMicro()
		}, violation, "started before the execution of transcode part 2 had ended"},
		"a join without the result of a part": {func(r *dataBuilder) {
			e := r.entry(func(e logEntry) bool { return e.Joined != nil })
			e.Joined = e.Joined[:1]
		}, violation, "read the results"},
		"a join with the result of another attempt": {func(r *dataBuilder) {
			r.entry(func(e logEntry) bool { return e.Joined != nil }).Joined[1] = store.ID{9, 99}
		}, violation, "read the results"},
		"a stage that was completed without a join": {func(r *dataBuilder) {
			r.entry(func(e logEntry) bool { return e.Joined != nil }).Joined = nil
		}, violation, "read the results"},
		"a division that was not executed": {func(r *dataBuilder) {
			r.entry(func(e logEntry) bool { return e.How == endedDivided }).How = endedCompleted
		}, violation, `ended "completed", but the history says divided`},
		"a division that was not reported": {func(r *dataBuilder) {
			r.entry(func(e logEntry) bool { return e.How == string(stages.StageDivided) && e.What == eventEntry }).How = "other"
		}, violation, "was completed or divided 2 times, and reported so 1 times"},
		"overlapping executions of a part": {func(r *dataBuilder) {
			token := r.executes(1, dividedStage, 1, time.Second+26*ms, 10*ms, endedFailed)
			r.addHistory(token, dividedStage, 1, worker2, 1100*ms, "expired")
			r.reports(1, stages.ClaimRevoked, dividedStage, 1, 1600*ms)
			r.history[len(r.history)-1].part = 2
			for i := range 3 {
				r.logs[1].entries[len(r.logs[1].entries)-1-i].Part = 2
			}
		}, violation, "at transcode part 2 of task-1"},
		"a dead task without a cause": {func(r *dataBuilder) {
			r.tasks[theTask] = taskRow{id: theTask, request: "task-1", isDead: true}
		}, violation, "dead without a cause"},
		"a change reported twice": {func(r *dataBuilder) {
			for range 2 {
				r.logs[0].entries = append(r.logs[0].entries, logEntry{What: eventEntry, How: string(stages.DatabaseUnavailable)})
			}
		}, violation, "reported database_unavailable twice"},
		"a missed wake before the first fault": {func(r *dataBuilder) {
			r.logs[0].entries = append(r.logs[0].entries,
				missedWake(-time.Second))
		}, violation, "was not woken for 3 claims"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := correctRun()
			c.change(r)
			v := r.findings()
			found := map[string][]string{lost: v.lostTasks, duplicated: v.duplicates, violation: v.violations}
			if !slices.ContainsFunc(found[c.kind], func(s string) bool { return strings.Contains(s, c.text) }) {
				t.Errorf("no finding has %q: %v", c.text, found)
			}
		})
	}
}

func TestCheck_AcceptsEffectsOfFaults(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*dataBuilder){
		"a claim that a crash undid": func(r *dataBuilder) {
			r.executes(1, "ingest", 1, 900*ms, 10*ms, endedInterrupted)
			r.reports(1, stages.ClaimRevoked, "ingest", 1, 950*ms)
			r.addFault(killServer, -1, 905*ms, 910*ms)
		},
		"an outage that is reported again with another cause": func(r *dataBuilder) {
			for _, why := range []string{"connection refused", "the password is wrong"} {
				r.logs[0].entries = append(r.logs[0].entries,
					logEntry{What: eventEntry, How: string(stages.DatabaseUnavailable), Why: why})
			}
		},
		"an outage that is reported again after a while, with a cause that begins alike": func(r *dataBuilder) {
			for _, at := range []time.Duration{time.Second, time.Second + stages.OutageCauseInterval} {
				r.logs[0].entries = append(r.logs[0].entries, logEntry{
					At: after(at).UnixMicro(), What: eventEntry, How: string(stages.DatabaseUnavailable), Why: "failed to connect …",
				})
			}
		},
		"a join that was lost before it started": func(r *dataBuilder) {
			r.reports(0, stages.ClaimRevoked, dividedStage, 1, 3*time.Second)
		},
		"an undone claim that a frozen worker executed later": func(r *dataBuilder) {
			r.executes(1, "ingest", 1, 900*ms, 10*ms, endedInterrupted)
			r.reports(1, stages.ClaimRevoked, "ingest", 1, 950*ms)
			r.addFault(killServer, -1, -50*time.Second, -49*time.Second)
			r.addFault(freezeWorker, 1, -50*time.Second, 850*ms)
		},
		"an execution whose worker was frozen": func(r *dataBuilder) {
			token := r.executes(1, "ingest", 1, 500*ms, 40*time.Second, endedCompleted)
			r.addHistory(token, "ingest", 1, worker2, 600*ms, "expired")
			r.reports(1, stages.ClaimRevoked, "ingest", 1, 41*time.Second)
			r.addFault(freezeWorker, 1, 550*ms, 40*time.Second)
		},
		"an old claim that a frozen worker began": func(r *dataBuilder) {
			r.beginsOldClaim(endedInterrupted)
			r.addFault(freezeWorker, 1, -50*time.Second, 540*ms)
		},
		"an execution behind a black hole whose session was ended": func(r *dataBuilder) {
			token := r.executes(1, "ingest", 1, 500*ms, time.Second, endedFailed)
			r.addHistory(token, "ingest", 1, worker2, 600*ms, "expired")
			r.reports(1, stages.ClaimRevoked, "ingest", 1, 1600*ms)
			r.addFault(blackHole, 1, 400*ms, 2*time.Second)
			r.addFault(endListeners, -1, 520*ms, 521*ms)
		},
		"a missed wake after the first fault": func(r *dataBuilder) {
			r.logs[0].entries = append(r.logs[0].entries,
				missedWake(time.Second))
		},
		"an expired claim of a remote worker that was frozen": func(r *dataBuilder) {
			r.expiresRemotely()
			r.addFault(freezeWorker, workers, 400*ms, 550*ms)
		},
		"an expired claim of a remote worker after an outage of the server": func(r *dataBuilder) {
			r.expiresRemotely()
			r.addFault(restartServer, noWorker, -10*time.Second, -9*time.Second)
		},
		"an expired claim of a killed remote worker": func(r *dataBuilder) {
			token := r.executes(1, "ingest", 1, 450*ms, 0, "")
			r.addHistory(token, "ingest", 1, worker2, 900*ms, "expired")
			r.logs[1].worker, r.logs[1].killed, r.logs[1].ended = workers, after(500*ms), after(500*ms)
		},
		"a prefetched claim that was lost": func(r *dataBuilder) {
			r.reports(1, stages.ClaimRevoked, "ingest", 1, 500*ms)
		},
		"a released claim that was not started": func(r *dataBuilder) {
			r.reports(1, stages.ClaimReleased, "ingest", 1, 500*ms)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := correctRun()
			change(r)
			if v := r.findings(); len(v.lostTasks)+len(v.duplicates)+len(v.violations) != 0 {
				t.Errorf("%v %v %v", v.lostTasks, v.duplicates, v.violations)
			}
		})
	}
}
