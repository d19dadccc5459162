package main

import (
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

func correctRun() *dataBuilder {
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

func (r *dataBuilder) addHistory(
	token store.ID, stage string, attempt int, by store.ID, at time.Duration, outcome string,
) {
	r.history = append(r.history, attemptRow{
		task: theTask, token: token, stage: stage, attempt: attempt, worker: by, finished: after(at), outcome: outcome,
	})
}

func (r *dataBuilder) reports(incarnation int, kind stages.Kind, stage string, attempt int, at time.Duration) {
	e := &r.logs[incarnation].entries
	*e = append(*e, logEntry{
		At: after(at).UnixMicro(), What: eventEntry, How: string(kind), Task: theTask, Stage: stage, Attempt: attempt,
	})
}

// addFault adds a fault.
func (r *dataBuilder) addFault(k faultKind, worker int, from, to time.Duration) {
	r.faults = append(r.faults, fault{kind: k, worker: worker, from: after(from), to: after(to)})
}

func (r *dataBuilder) findings() *findings {
	f := new(findings)
	r.check(f)
	return f
}
