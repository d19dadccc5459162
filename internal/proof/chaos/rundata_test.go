package main

import (
	"slices"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// dataBuilder builds the data of a run with one task. Worker 1 has completed it correctly, each
// stage in 10 ms, one second after the first fault.
type dataBuilder struct {
	*runData
	tokens byte
}

var (
	theTask    = store.ID{1}
	worker1    = store.ID{2} // the id that the first incarnation registered
	worker2    = store.ID{3} // the id of the second
	faultsFrom = time.UnixMicro(1e12)
)

func correctRun() *dataBuilder { return correctRunOf(false) }

// correctRunOf is correctRun, in which the first join may have asked for part 2 again.
func correctRunOf(again bool) *dataBuilder {
	r := &dataBuilder{runData: &runData{
		firstFault:   faultsFrom,
		acknowledged: map[string]store.ID{"task-1": theTask},
		rolledBack:   []string{"rolled-back-1"},
		tasks:        map[store.ID]taskRow{theTask: {id: theTask, request: "task-1", isCompleted: true}},
		logs: []workerLog{
			{worker: 0, ended: after(time.Minute), entries: []logEntry{registered(worker1)}},
			{worker: 1, ended: after(time.Minute), entries: []logEntry{registered(worker2)}},
		},
	}}
	for i, n := range nodes {
		at := time.Second + time.Duration(i)*20*ms
		if n.Divides {
			r.completesInParts(at, again)
			continue
		}
		token := r.executes(0, n.Name, 1, at, 10*ms, endedCompleted)
		r.addHistory(token, n.Name, 1, worker1, at+11*ms, "completed")
		r.reports(0, stages.StageCompleted, n.Name, 1, at+12*ms)
	}
	return r
}

func after(d time.Duration) time.Time { return faultsFrom.Add(d) }

func registered(as store.ID) logEntry {
	return logEntry{At: after(0).UnixMicro(), What: eventEntry, How: string(stages.WorkerStarted), Worker: as}
}

func missedWake(at time.Duration) logEntry {
	return logEntry{
		At: after(at).UnixMicro(), What: eventEntry, How: string(stages.WakeMissed), Stage: "ingest", Count: 3,
	}
}

// executes adds an execution to a log; without an end it does not end.
func (r *dataBuilder) executes(
	incarnation int, stage string, attempt int, at, duration time.Duration, end string,
) store.ID {
	r.tokens++
	token := store.ID{9, r.tokens}
	e := &r.logs[incarnation].entries
	*e = append(*e, logEntry{
		At: after(at).UnixMicro(), What: startEntry, Task: theTask, Source: "task-1",
		Stage: stage, Attempt: attempt, Token: token,
	})
	if end != "" {
		*e = append(*e, logEntry{
			At: after(at + duration).UnixMicro(), What: endEntry, Task: theTask, Stage: stage, Token: token, How: end,
		})
	}
	return token
}

// completesInParts divides a stage, does its parts, and joins them, perhaps after part 2 was done again.
func (r *dataBuilder) completesInParts(at time.Duration, again bool) {
	n := partsOf("task-1")
	r.divides(at, 1).Count = n
	results := make([]store.ID, n)
	for part := range n {
		results[part] = r.completesPart(part+1, at+5*ms)
	}
	attempt := 1
	if again {
		end := r.divides(at+9*ms, attempt)
		end.Count, end.Joined = n, slices.Clone(results)
		for part := range n {
			if part != 1 {
				end.Kept = append(end.Kept, part+1)
			}
		}
		r.logs[0].entries[len(r.logs[0].entries)-3].IsJoin = true
		results[1] = r.completesPart(2, at+13*ms)
		attempt++
		at += 8 * ms
	}
	entries := &r.logs[0].entries
	token := r.executes(0, dividedStage, attempt, at+10*ms, ms, endedCompleted)
	(*entries)[len(*entries)-2].IsJoin, (*entries)[len(*entries)-1].Joined = true, results
	r.addHistory(token, dividedStage, attempt, worker1, at+11*ms, "completed")
	r.reports(0, stages.StageCompleted, dividedStage, attempt, at+11*ms)
}

// divides divides a stage, and returns the end of its execution, the last entry but one.
func (r *dataBuilder) divides(at time.Duration, attempt int) *logEntry {
	token := r.executes(0, dividedStage, attempt, at, 2*ms, endedDivided)
	r.addHistory(token, dividedStage, attempt, worker1, at+3*ms, "divided")
	r.reports(0, stages.StageDivided, dividedStage, attempt, at+4*ms)
	return &r.logs[0].entries[len(r.logs[0].entries)-2]
}

// completesPart does a part, and returns its token.
func (r *dataBuilder) completesPart(part int, at time.Duration) store.ID {
	entries := &r.logs[0].entries
	n := len(*entries)
	token := r.executes(0, dividedStage, 1, at, 2*ms, endedCompleted)
	r.addHistory(token, dividedStage, 1, worker1, at+3*ms, "completed")
	r.reports(0, stages.PartCompleted, dividedStage, 1, at+3*ms)
	r.history[len(r.history)-1].part = part
	for i := range (*entries)[n:] {
		(*entries)[n+i].Part = part
	}
	return token
}

// entry returns the first entry of the first log that is chosen.
func (r *dataBuilder) entry(isChosen func(logEntry) bool) *logEntry {
	return &r.logs[0].entries[slices.IndexFunc(r.logs[0].entries, isChosen)]
}

func (r *dataBuilder) addHistory(
	token store.ID, stage string, attempt int, by store.ID, at time.Duration, outcome string,
) {
	r.history = append(r.history, attemptRow{
		stageKey: stageKey{theTask, stage, 0}, token: token, attempt: attempt, worker: by, finished: after(at), outcome: outcome,
	})
}

func (r *dataBuilder) reports(incarnation int, kind stages.Kind, stage string, attempt int, at time.Duration) {
	e := &r.logs[incarnation].entries
	*e = append(*e, logEntry{
		At: after(at).UnixMicro(), What: eventEntry, How: string(kind), Task: theTask, Stage: stage, Attempt: attempt,
	})
}

// expiresRemotely makes the second incarnation that of the first remote worker, and expires a claim of it.
func (r *dataBuilder) expiresRemotely() {
	r.logs[1].worker = workers
	token := r.executes(1, "ingest", 1, 500*ms, 90*ms, endedInterrupted)
	r.addHistory(token, "ingest", 1, worker2, 600*ms, "expired")
	r.reports(1, stages.ClaimRevoked, "ingest", 1, 700*ms)
}

// beginsOldClaim makes the second worker begin an expired attempt while the first does the next one.
func (r *dataBuilder) beginsOldClaim(end string) {
	next := r.executes(0, "ingest", 2, 500*ms, 100*ms, endedFailed)
	r.addHistory(next, "ingest", 2, worker1, 600*ms, "failed")
	r.reports(0, stages.AttemptFailed, "ingest", 2, 610*ms)
	old := r.executes(1, "ingest", 1, 550*ms, 10*ms, end)
	r.addHistory(old, "ingest", 1, worker2, 400*ms, "expired")
	r.reports(1, stages.ClaimRevoked, "ingest", 1, 580*ms)
}

// addFault adds a fault.
func (r *dataBuilder) addFault(k faultKind, worker int, from, to time.Duration) {
	r.faults = append(r.faults, &fault{step: step{kind: k, worker: worker}, from: after(from), to: after(to)})
}

func (r *dataBuilder) findings() *findings {
	f := new(findings)
	r.check(f)
	return f
}
