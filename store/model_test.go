package store_test

import (
	"bytes"
	"slices"
	"time"

	"github.com/cuelight/cuelight/store"
)

// model implements in plain Go what the documentation of the store promises. It does not
// know SQL, and takes from the database only the ids and tokens that it generates. The
// tests make the same calls to the model and the store, and compare the results.
type model struct {
	stages      []string
	needs       [][]int // by stage
	feeds       [][]int
	queues      int      // of stages, and then of the parts of the stages that divide
	divides     []bool   // by stage
	upstream    [][]bool // upstream[i][j]: i is j, or needs it, directly or not
	maxAttempts int      // attempts per stage
	tasks       []*modelTask
	workers     []*modelWorker
}

type modelTask struct {
	scheduled    bool // cancelled before the time it was submitted for, which is in the future
	wasReady     bool // ready before: the task was due, a claim was released, or it was retried
	id           store.ID
	name         string
	priority     int16
	request      string
	overriddenBy store.ID // zero for none
	stages       []modelStage
	history      map[store.ID]modelAttempt // by token
}

type modelStage struct {
	status          store.Status
	attempts        int
	token           store.ID // of the claim; zero while the test does not know it
	worker          store.ID
	recentlyClaimed bool // claimed just now, so that its worker does not expire
	wait            modelWait
	result          string        // of the latest completed attempt
	parts           []*modelStage // of a divided stage
	turn            int           // of a part
}

// modelWait is whether a stage waits for a time, and whether it is due.
type modelWait int

const (
	noWait modelWait = iota
	waitDue
	waiting
)

// modelAttempt is an attempt in the history.
type modelAttempt struct {
	stage   string
	part    int // 0: of the stage itself
	attempt int
	outcome string
	worker  store.ID
}

type modelWorker struct {
	id               store.ID
	name             string
	stopped, lost    bool
	missedHeartbeats bool // for longer than its lease
}

func (w *modelWorker) alive() bool { return !w.stopped && !w.lost }

func newModel(g store.Graph, maxAttempts int) *model {
	m := &model{stages: g.Stages(), maxAttempts: maxAttempts, queues: g.Queues()}
	n := len(m.stages)
	m.needs, m.feeds, m.upstream = make([][]int, n), make([][]int, n), make([][]bool, n)
	for i := range n {
		m.upstream[i] = make([]bool, n)
		m.upstream[i][i] = true
		m.feeds[i] = g.Feeds(i)
		m.divides = append(m.divides, g.Divides(i))
		for _, next := range m.feeds[i] {
			m.needs[next] = append(m.needs[next], i)
		}
	}
	for range n {
		for i := range n {
			for _, need := range m.needs[i] {
				for j, needed := range m.upstream[need] {
					m.upstream[i][j] = m.upstream[i][j] || needed
				}
			}
		}
	}
	return m
}

func (m *model) add(id store.ID, name string, sub store.Submission) *modelTask {
	t := &modelTask{
		id: id, name: name, priority: sub.Priority, request: sub.RequestID, history: make(map[store.ID]modelAttempt),
	}
	t.stages = make([]modelStage, len(m.stages))
	for i := range t.stages {
		t.stages[i].status = pending
		if len(m.needs[i]) == 0 && sub.NotBefore.After(time.Now()) {
			t.stages[i].wait = waiting
		}
	}
	m.tasks = append(m.tasks, t)
	slices.SortFunc(m.tasks, func(a, b *modelTask) int { return bytes.Compare(a.id[:], b.id[:]) })
	return t
}

func (m *model) task(id store.ID) *modelTask {
	for _, t := range m.tasks {
		if t.id == id {
			return t
		}
	}
	return nil
}

func (m *model) worker(id store.ID) *modelWorker {
	for _, w := range m.workers {
		if w.id == id {
			return w
		}
	}
	return nil
}

// needsCompleted reports whether all stages that a stage needs are completed, or are in these.
func (m *model) needsCompleted(t *modelTask, stage int, these []bool) bool {
	for _, need := range m.needs[stage] {
		if t.stages[need].status != done && (these == nil || !these[need]) {
			return false
		}
	}
	return true
}

func (s *modelStage) isClaimable() bool { return s.status == pending || s.status == failing }

func (m *model) ready(t *modelTask, stage int) bool {
	s := &t.stages[stage]
	return s.isClaimable() && s.wait == noWait && m.needsCompleted(t, stage, nil)
}

// queue returns the ready tasks of a stage in the order in which they are claimed.
func (m *model) queue(stage int, only []store.ID) []*modelTask {
	var all []*modelTask
	for _, t := range m.tasks {
		if m.ready(t, stage) && (only == nil || slices.Contains(only, t.id)) {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, compareByClaimOrder)
	return all
}

// claim leaves the token zero: the database generates it.
func (s *modelStage) claim(worker store.ID) {
	s.status, s.worker, s.token, s.recentlyClaimed = inprogress, worker, store.ID{}, true
	s.attempts++
}

// end records the end of a claim, and sets the status of its stage.
func (m *model) end(t *modelTask, stage int, outcome string, status store.Status) {
	m.endUnit(t, stage, 0, outcome, status)
}

// endUnit is end for a stage, or for a part of it.
func (m *model) endUnit(t *modelTask, stage, part int, outcome string, status store.Status) {
	s := t.unit(stage, part)
	t.history[s.token] = modelAttempt{m.stages[stage], part, s.attempts, outcome, s.worker}
	s.status, s.token, s.worker = status, store.ID{}, store.ID{}
	if outcome == "released" || outcome == "divided" {
		s.attempts--
	}
}

// stopUnit is stop for a stage, or for a part of it.
func (m *model) stopUnit(t *modelTask, stage, part int, status store.Status) {
	s := t.unit(stage, part)
	if s.status == inprogress {
		m.endUnit(t, stage, part, "cancelled", status)
	}
	s.status, s.wait = status, noWait
}

// promoteDue makes the due tasks ready, except one.
func (m *model) promoteDue(stage int, except *modelTask) {
	for _, t := range m.tasks {
		if t != except && t.stages[stage].wait == waitDue {
			t.stages[stage].wait = noWait
			t.wasReady = t.wasReady || t.stages[stage].attempts == 0
		}
	}
}

// nextDue returns the sign of NextDue: negative if no task waits, 0 if one is due.
func (m *model) nextDue(stage int) int {
	next := -1
	for _, t := range m.tasks {
		switch t.stages[stage].wait {
		case waitDue:
			return 0
		case waiting:
			next = 1
		}
	}
	return next
}

// stop sets the status of a stage, and revokes its claim.
func (m *model) stop(t *modelTask, stage int, status store.Status) { m.stopUnit(t, stage, 0, status) }

// isScheduled reports whether a stage waits for the time that the task was submitted for.
func (m *model) isScheduled(t *modelTask, stage int) bool {
	s := &t.stages[stage]
	return len(m.needs[stage]) == 0 && s.attempts == 0 && s.wait != noWait && !t.wasReady
}

func (m *model) cancel(t *modelTask) {
	// The time that the task was submitted for is kept, for a retry.
	kept, later := false, false
	for i, s := range t.stages {
		if m.isScheduled(t, i) && s.status == pending {
			kept, later = true, later || s.wait == waiting
		}
	}
	if kept {
		t.scheduled = later
	}
	for i := range t.stages {
		if s := t.stages[i].status; s != done && s != dead {
			m.stop(t, i, cancelled)
			m.dropParts(t, i)
		}
	}
}

// retry returns false, and changes nothing, for a task that was overridden.
func (m *model) retry(t *modelTask, from int, fresh bool) bool {
	var retried []int
	for i := range t.stages {
		s := t.stages[i].status
		if from < 0 && (s == dead || s == failing || s == cancelled) || from >= 0 && m.upstream[i][from] {
			retried = append(retried, i)
		}
	}
	if !t.overriddenBy.IsZero() && len(retried) > 0 {
		return false
	}
	scheduled := true // the task is scheduled after the retry
	for i := range t.stages {
		scheduled = scheduled &&
			(len(m.needs[i]) > 0 || m.keepsSchedule(t, i, from) || m.isScheduled(t, i) && !slices.Contains(retried, i))
	}
	for _, i := range retried {
		waits := m.keepsSchedule(t, i, from)
		if fresh || t.stages[i].status == done || from >= 0 && from != i {
			m.dropParts(t, i)
		}
		m.stop(t, i, pending)
		m.resumeParts(t, i)
		t.stages[i].attempts = 0
		if waits {
			t.stages[i].wait = waiting
		}
	}
	for i := range t.stages {
		if from < 0 || from == i {
			t.retryFailedParts(i)
		}
	}
	t.scheduled, t.wasReady = false, !scheduled
	return true
}

// keepsSchedule reports whether a retried stage waits for the time that a cancel kept.
func (m *model) keepsSchedule(t *modelTask, stage, from int) bool {
	return from < 0 && t.scheduled && len(m.needs[stage]) == 0 && t.stages[stage].status == cancelled
}

// modelSweepResult is the expected result of a sweep.
type modelSweepResult struct {
	lost      []store.ID
	expired   int
	moreReady []bool
	nextDue   []int
}

func (m *model) sweep(sweeper store.ID, expires bool) modelSweepResult {
	var out modelSweepResult
	for _, w := range m.workers {
		if expires && w.id != sweeper && w.alive() && w.missedHeartbeats && !m.holdsRecentClaim(w.id) {
			w.lost = true
			out.lost = append(out.lost, w.id)
		}
	}
	for i := range m.stages {
		for _, t := range m.tasks {
			s := &t.stages[i]
			if s.status != inprogress {
				continue
			}
			switch w := m.worker(s.worker); {
			case w.alive():
				continue
			case !w.lost:
				m.end(t, i, "released", pending)
			case s.attempts >= m.maxAttempts:
				m.end(t, i, "expired", dead)
			default:
				m.end(t, i, "expired", failing)
			}
			out.expired++
		}
		m.promoteDue(i, nil)
		out.moreReady = append(out.moreReady, len(m.queue(i, nil)) > 0)
		out.nextDue = append(out.nextDue, m.nextDue(i))
	}
	m.sweepParts(&out)
	return out
}

func (m *model) holdsRecentClaim(worker store.ID) bool {
	for _, t := range m.tasks {
		for i := range t.stages {
			for part := range t.stages[i].units() {
				if s := t.unit(i, part); s.status == inprogress && s.worker == worker && s.recentlyClaimed {
					return true
				}
			}
		}
	}
	return false
}

// isUnfinished reports whether a stage of the task may still run, now or later.
func (m *model) isUnfinished(t *modelTask) bool {
	for i := range t.stages {
		s := &t.stages[i]
		if s.status == inprogress || s.status == divided || s.isClaimable() && m.needsCompleted(t, i, nil) {
			return true
		}
	}
	return false
}
