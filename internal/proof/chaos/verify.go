package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// stageKey is a stage of a task, or a part of one.
type stageKey struct {
	task  store.ID
	stage string
	part  int // counted from 1; 0: the stage itself
}

// String names it in violations.
func (k stageKey) String() string {
	return fmt.Sprintf("stage %s of task %s", stageName(k.stage, k.part), k.task)
}

// stageName names a stage, or a part of one.
func stageName(stage string, part int) string {
	if part > 0 {
		return fmt.Sprintf("%s part %d", stage, part)
	}
	return stage
}

// execution is one time that a process worked on a claim, by its log.
type execution struct {
	stageKey
	attempt     int
	token       store.ID
	source      string
	isJoin      bool
	incarnation int // index of its log
	from, to    time.Time
	end         logEntry // without How if the process ended before it
}

// String names the execution in violations.
func (e execution) String() string {
	return fmt.Sprintf("attempt %d at %s of %s (token %s)", e.attempt, stageName(e.stage, e.part), e.source, e.token)
}

// verifier has the data of a run, indexed. Its methods that check a rule add one text per violation.
type verifier struct {
	*runData
	executions   []execution // by time
	byToken      map[store.ID][]execution
	byStage      map[stageKey][]execution
	byTask       map[store.ID][]execution
	rows         map[store.ID]attemptRow   // by token
	completed    map[stageKey][]attemptRow // by time
	divisions    map[store.ID][]division   // of a task's stage that divides, by time
	incarnations map[store.ID]int          // by the worker id that they registered
	removals     map[store.ID][]removal
	found        []string // by the rules so far
}

// add adds a finding of a rule.
func (v *verifier) add(format string, args ...any) {
	v.found = append(v.found, fmt.Sprintf(format, args...))
}

// collect returns the findings of some rules.
func (v *verifier) collect(rules ...func()) []string {
	v.found = nil
	for _, rule := range rules {
		rule()
	}
	slices.Sort(v.found)
	return slices.Compact(v.found)
}

func newVerifier(d *runData) *verifier {
	v := &verifier{
		runData: d, byToken: make(map[store.ID][]execution), byStage: make(map[stageKey][]execution),
		byTask: make(map[store.ID][]execution),
		rows:   make(map[store.ID]attemptRow), completed: make(map[stageKey][]attemptRow),
		divisions: make(map[store.ID][]division), incarnations: make(map[store.ID]int),
		removals: make(map[store.ID][]removal),
	}
	for _, row := range d.history {
		v.rows[row.token] = row
		if row.outcome == string(engine.Completed) {
			v.completed[row.stageKey] = append(v.completed[row.stageKey], row)
		}
	}
	for i, log := range d.logs {
		v.addExecutions(i, log)
	}
	slices.SortStableFunc(v.executions, func(a, b execution) int { return a.from.Compare(b.from) })
	for _, e := range v.executions {
		v.byToken[e.token] = append(v.byToken[e.token], e)
		v.byStage[e.stageKey] = append(v.byStage[e.stageKey], e)
		v.byTask[e.task] = append(v.byTask[e.task], e)
	}
	v.findDivisions()
	return v
}

// addExecutions reads a log. An execution without an end lasted as long as the process.
func (v *verifier) addExecutions(incarnation int, log workerLog) {
	ends := make(map[store.ID]logEntry)
	for _, entry := range log.entries {
		switch {
		case entry.What == endEntry:
			ends[entry.Token] = entry
		case entry.What == removalEntry:
			v.removals[entry.Task] = append(v.removals[entry.Task], removal{entry.How, entry.time(), entry.Expired, incarnation})
		case entry.How == string(stages.WorkerStarted):
			v.incarnations[entry.Worker] = incarnation
		}
	}
	for _, entry := range log.entries {
		if entry.What != startEntry {
			continue
		}
		e := execution{
			stageKey: stageKey{entry.Task, entry.Stage, entry.Part}, attempt: entry.Attempt, token: entry.Token,
			source: entry.Source, isJoin: entry.IsJoin, incarnation: incarnation, from: entry.time(), to: log.ended,
		}
		if end, ok := ends[entry.Token]; ok {
			e.to, e.end = end.time(), end
		}
		v.executions = append(v.executions, e)
	}
}

// workerOf returns the number of the worker, counted from 0.
func (v *verifier) workerOf(e execution) int { return v.logs[e.incarnation].worker }

// lostTasks lists acknowledged tasks that do not exist or are not finished.
func (v *verifier) lostTasks() {
	for request, id := range v.acknowledged {
		switch task, ok := v.tasks[id]; {
		case !ok && v.isExpired(id):
			if _, isFinished := v.endOf(id); !isFinished {
				v.add("%s: retention deleted task %s, which was not finished", request, id)
			}
		case !ok && v.wasRemoved(id):
		case !ok:
			v.add("%s: task %s does not exist", request, id)
		case task.request != request:
			v.add("%s: task %s has request id %s", request, id, task.request)
		case task.isUnfinished || !task.isCompleted && !task.isDead:
			v.add("%s: task %s is not finished", request, id)
		}
	}
}

// duplicates lists stages that were completed twice, tokens with several executions, and executions
// of tasks whose submission was rolled back.
func (v *verifier) duplicates() {
	v.repeatedCompletions()
	for token, executions := range v.byToken {
		if n := len(executions); n > 1 {
			v.add("token %s has %d executions: %s", token, n, executions[0])
		}
	}
	for _, e := range v.executions {
		if slices.Contains(v.rolledBack, e.source) {
			v.add("%s ran, but its submission was rolled back", e)
		}
	}
}

// claimsWithoutHistory lists executed claims that the history does not have, except for those that a
// crash of the server undid.
func (v *verifier) claimsWithoutHistory() {
	for _, e := range v.executions {
		if _, ok := v.rows[e.token]; !ok && !v.mayBeUndone(e) && !v.isPurged(e.task) {
			v.add("%s by %s is not in the history", e, workerName(v.workerOf(e)))
		}
	}
}

// executedOutcomes are those of attempts that a process has ended.
var executedOutcomes = []string{string(engine.Completed), string(engine.Divided), string(engine.Failed)}

// historyWithoutExecution lists attempts that are completed, divided or failed in the history, and were
// not executed with that end by the process that it names.
func (v *verifier) historyWithoutExecution() {
	for _, row := range v.history {
		if !slices.Contains(executedOutcomes, row.outcome) {
			continue
		}
		executions := v.byToken[row.token]
		incarnation, isKnown := v.incarnations[row.worker]
		subject := fmt.Sprintf("%s %s", row.stageKey, row.outcome)
		switch {
		case !isKnown:
			v.add("%s by worker %s, but no process has that id", subject, row.worker)
		case len(executions) == 0:
			v.add("%s with token %s, which was not executed", subject, row.token)
		case executions[0].incarnation != incarnation:
			v.add("%s was executed by another process than the history says", executions[0])
		case !executions[0].endedAs(row.outcome):
			v.add("%s ended %q, but the history says %s",
				executions[0], executions[0].end.How, row.outcome)
		}
	}
}

// endedAs reports whether the execution ended as an outcome says, completed, divided or failed.
func (e execution) endedAs(outcome string) bool {
	switch e.end.How {
	case "", endedInterrupted:
		return false
	case endedCompleted, endedDivided:
		return e.end.How == outcome
	}
	return outcome == string(engine.Failed)
}

// clockError is how much two processes' readings of the same moment may differ.
const clockError = 2 * time.Millisecond

// overlappingExecutions lists executions of a stage that overlap, except where a crash undid the claim of the first one, its
// process could not know that it was lost, its task was deleted, or the second one is of a claim from before a freeze.
func (v *verifier) overlappingExecutions() {
	for _, executions := range v.byStage {
		for i, first := range executions {
			for _, second := range executions[i+1:] {
				_, isInHistory := v.rows[first.token]
				if !second.from.Before(first.to) || !isInHistory || v.wasRevoked(first) || v.couldNotKnow(first, second.from) ||
					second.attempt < first.attempt && second.end.How == endedInterrupted && v.beganAfterFreeze(second) {
					continue
				}
				v.add("%s by %s started %v before %s by %s had ended", second,
					workerName(v.workerOf(second)), first.to.Sub(second.from), first, workerName(v.workerOf(first)))
			}
		}
	}
}

// couldNotKnow reports whether the process of an execution was frozen before then, or was cut off while the server
// ended its session.
func (v *verifier) couldNotKnow(e execution, then time.Time) bool {
	return v.hadFault(e.from, then, func(f *fault) bool {
		return f.worker == v.workerOf(e) && (f.is(freezeWorker) || f.is(blackHole, holdTraffic) &&
			v.hadFault(f.from, then, func(other *fault) bool { return other.is(restartServer, killServer, endListeners, endSessions) }))
	})
}

// staleClaimTime is how long a process that was frozen may take to find out that its claims are lost.
const staleClaimTime = time.Second

func (v *verifier) beganAfterFreeze(e execution) bool {
	return v.hadFault(e.from.Add(-staleClaimTime), e.from, func(f *fault) bool {
		return f.is(freezeWorker) && f.worker == v.workerOf(e)
	})
}

// asyncCommitTime is how old a claim may be that a crash of the server undoes: three times
// wal_writer_delay, and some more for a busy machine.
const asyncCommitTime = 2 * time.Second

// mayBeUndone reports whether a crash of the server may have undone the claim, or a failover to a standby that had not
// received it. A process that was frozen or cut off may execute it later.
func (v *verifier) mayBeUndone(e execution) bool {
	return slices.ContainsFunc(v.faults, func(crash *fault) bool {
		earliest, latest := crash.from.Add(-asyncCommitTime), crash.to.Add(asyncCommitTime)
		return crash.is(killServer, failoverKill, failoverReadOnly) && !e.from.Before(earliest) &&
			(!e.from.After(latest) || v.hadFault(earliest, e.from, func(f *fault) bool { return f.isOf(v.workerOf(e)) }))
	})
}

// deadTasksWithoutCause lists dead tasks without a permanent error or a last attempt.
func (v *verifier) deadTasksWithoutCause() {
	hasCause := make(map[store.ID]bool)
	for _, row := range v.history {
		isPermanent := row.outcome == string(engine.Failed) && row.class == endedPermanent
		isLast := row.attempt >= maxAttempts && row.outcome != string(engine.Completed) && row.outcome != string(engine.Divided)
		if isPermanent || isLast {
			hasCause[row.task] = true
		}
	}
	for _, task := range v.tasks {
		if task.isDead && !hasCause[task.id] {
			v.add("task %s is dead without a cause", task.id)
		}
	}
}

// repeatedConnectionEvents lists changes of a connection that a process reported twice. An outage is reported again when
// its cause has changed.
func (v *verifier) repeatedConnectionEvents() {
	const unavailable, available = string(stages.DatabaseUnavailable), string(stages.DatabaseAvailable)
	for _, log := range v.logs {
		last := map[bool]logEntry{true: {How: available}} // of the database, and of the listener
		for _, entry := range log.entries {
			isOfDatabase := entry.How == unavailable || entry.How == available
			if entry.What != eventEntry || !isOfDatabase && entry.How != listenerConnected && entry.How != listenerDisconnected {
				continue
			}
			before := last[isOfDatabase]
			// The log has the beginning of a cause only.
			isNewCause := entry.Why != before.Why || entry.time().Sub(before.time()) >= stages.OutageCauseInterval
			if entry.How == before.How && !(entry.How == unavailable && isNewCause) {
				v.add("%s reported %s twice without a change in between: %s", workerName(log.worker), entry.How, entry.Why)
			}
			last[isOfDatabase] = entry
		}
	}
}

// countMissedWakes counts the claims that only a sweep found. Before the first fault there must be none,
// since notifications wake the workers for every stage that is ready.
func (v *verifier) countMissedWakes() (total int) {
	for _, log := range v.logs {
		for _, entry := range log.entries {
			if entry.How != string(stages.WakeMissed) {
				continue
			}
			total += entry.Count
			if entry.time().Before(v.firstFault) {
				v.add("%s was not woken for %d claims of %s before the first fault",
					workerName(log.worker), entry.Count, entry.Stage)
			}
		}
	}
	return total
}
