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
	scheduled    bool // the time that it was submitted for is in the future
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
	turn            int64         // of its step, which the test reads
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
	t.scheduled = sub.NotBefore.After(time.Now())
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

// queue returns the ready steps of a queue in the order in which they are claimed.
func (m *model) queue(queue int, only []store.ID) []modelPart {
	var all []modelPart
	m.eachUnit(func(t *modelTask, stage, part int, s *modelStage) {
		if only != nil && !slices.Contains(only, t.id) || queue != m.queueOf(stage, part) {
			return
		}
		if part == 0 && m.ready(t, stage) || part > 0 && s.isClaimable() && s.wait == noWait {
			all = append(all, modelPart{t, stage, part, s})
		}
	})
	slices.SortFunc(all, func(a, b modelPart) int { return a.position().Compare(b.position()) })
	return all
}

func (m *model) queueOf(stage, part int) int {
	if part > 0 {
		return m.partsQueue(stage)
	}
	return stage
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

// promoteDue makes the due steps ready.
func (m *model) promoteDue() {
	m.eachUnit(func(t *modelTask, _, _ int, s *modelStage) {
		if s.wait == waitDue {
			s.wait = noWait
		}
	})
}

// eachUnit calls do for all stages and parts of all tasks.
func (m *model) eachUnit(do func(t *modelTask, stage, part int, s *modelStage)) {
	for _, t := range m.tasks {
		for i := range t.stages {
			for part := range t.stages[i].units() {
				do(t, i, part, t.unit(i, part))
			}
		}
	}
}

// nextDue returns the sign of NextDue: negative if no step waits, 0 if one is due.
func (m *model) nextDue() int {
	next := -1
	m.eachUnit(func(t *modelTask, stage, part int, s *modelStage) {
		switch {
		case part == 0 && !m.needsCompleted(t, stage, nil):
		case s.wait == waitDue:
			next = 0
		case s.wait == waiting && next < 0:
			next = 1
		}
	})
	return next
}

// stop sets the status of a stage, and revokes its claim.
func (m *model) stop(t *modelTask, stage int, status store.Status) { m.stopUnit(t, stage, 0, status) }

func (m *model) cancel(t *modelTask) {
	for i := range t.stages {
		if s := t.stages[i].status; s != done && s != dead {
			m.stop(t, i, cancelled)
			m.stopParts(t, i)
		}
	}
}

// retry returns false, and changes nothing, for a task that was overridden.
func (m *model) retry(t *modelTask, from int, fresh bool) bool {
	var retried []int
	for i := range t.stages {
		s := t.stages[i].status
		if from < 0 && (s == dead || s == failing || s == cancelled || s == divided) || from >= 0 && m.upstream[i][from] {
			retried = append(retried, i)
		}
	}
	if !t.overriddenBy.IsZero() && len(retried) > 0 {
		return false
	}
	for _, i := range retried {
		if fresh || t.stages[i].status == done || from >= 0 && from != i {
			m.dropParts(t, i)
		}
		if s := &t.stages[i]; s.openParts() == 0 || s.status != divided {
			m.stop(t, i, pending)
		}
		m.resumeParts(t, i)
		t.stages[i].attempts = 0
	}
	t.scheduled = t.scheduled && from < 0
	for _, i := range retried {
		if s := &t.stages[i]; t.scheduled && len(m.needs[i]) == 0 && s.status == pending && s.parts == nil {
			s.wait = waiting
		}
	}
	return true
}

// modelSweepResult is the expected result of a sweep.
type modelSweepResult struct {
	lost      []store.ID
	expired   int
	moreReady []bool
	nextDue   int
}

func (m *model) sweep(sweeper store.ID, expires bool) modelSweepResult {
	out := modelSweepResult{moreReady: make([]bool, m.queues)}
	for _, w := range m.workers {
		if expires && w.id != sweeper && w.alive() && w.missedHeartbeats && !m.holdsRecentClaim(w.id) {
			w.lost = true
			out.lost = append(out.lost, w.id)
		}
	}
	var died []func()
	m.eachUnit(func(t *modelTask, stage, part int, s *modelStage) {
		if s.status != inprogress {
			return
		}
		switch w := m.worker(s.worker); {
		case w.alive():
			return
		case !w.lost:
			m.endUnit(t, stage, part, "released", pending)
		case s.attempts >= m.maxAttempts:
			m.endUnit(t, stage, part, "expired", dead)
			died = append(died, func() { m.makeDead(t, stage) })
		default:
			m.endUnit(t, stage, part, "expired", failing)
		}
		out.expired++
	})
	for _, die := range died {
		die()
	}
	m.promoteDue()
	for queue := range m.queues {
		out.moreReady[queue] = len(m.queue(queue, nil)) > 0
	}
	out.nextDue = m.nextDue()
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
