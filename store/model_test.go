package store_test

import (
	"bytes"
	"slices"
	"time"

	"github.com/cuelight/cuelight/store"
)

// model is a pipeline as it should be: what the documentation of the store says,
// once more, in plain Go. It knows nothing of SQL, and learns from the database
// only what that draws, ids and tokens. Whoever uses it makes the same call to
// both and compares.
type model struct {
	stages  []string
	needs   [][]int // by stage
	feeds   [][]int
	above   [][]bool // above[i][j]: i is j, or needs it, directly or not
	max     int      // attempts per stage
	tasks   []*modelTask
	workers []*modelWorker
}

type modelTask struct {
	scheduled bool // cancelled while it waited for the time it was submitted for, which is to come
	wasReady  bool // it could be claimed before: its time came, a claim was given back, or it is done again
	id        store.ID
	name      string
	priority  int16
	request   string
	by        store.ID // what replaced it
	stages    []modelStage
	history   map[store.ID]modelTry // by token
}

type modelStage struct {
	status   store.Status
	attempts int
	token    store.ID // of the claim; zero while it is not known yet
	worker   store.ID
	young    bool // claimed just now, so that its worker is not given up yet
	wait     modelWait
	result   string // of the latest completed attempt
}

// modelWait is whether a stage waits for a time: not, for one that has come, or
// for one that has not.
type modelWait int

const (
	noWait modelWait = iota
	waitOver
	waiting
)

// modelTry is a line of the history.
type modelTry struct {
	stage   string
	attempt int
	outcome string
	worker  store.ID
}

type modelWorker struct {
	id            store.ID
	name          string
	stopped, lost bool
	silent        bool // for longer than its lease
}

func (w *modelWorker) alive() bool { return !w.stopped && !w.lost }

func newModel(g store.Graph, maxAttempts int) *model {
	m := &model{stages: g.Stages(), max: maxAttempts}
	n := len(m.stages)
	m.needs, m.feeds, m.above = make([][]int, n), make([][]int, n), make([][]bool, n)
	for i := range n {
		m.above[i] = make([]bool, n)
		m.above[i][i] = true
		m.feeds[i] = g.Feeds(i)
		for _, next := range m.feeds[i] {
			m.needs[next] = append(m.needs[next], i)
		}
	}
	for range n {
		for i := range n {
			for _, need := range m.needs[i] {
				for j, is := range m.above[need] {
					m.above[i][j] = m.above[i][j] || is
				}
			}
		}
	}
	return m
}

func (m *model) add(id store.ID, name string, sub store.Submission) *modelTask {
	t := &modelTask{id: id, name: name, priority: sub.Priority, request: sub.RequestID, history: make(map[store.ID]modelTry)}
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

// met says that nothing a stage needs is missing, or will be once these are done.
func (m *model) met(t *modelTask, stage int, these []bool) bool {
	for _, need := range m.needs[stage] {
		if t.stages[need].status != done && (these == nil || !these[need]) {
			return false
		}
	}
	return true
}

func (s *modelStage) toDo() bool { return s.status == pending || s.status == failing }

func (m *model) ready(t *modelTask, stage int) bool {
	s := &t.stages[stage]
	return s.toDo() && s.wait == noWait && m.met(t, stage, nil)
}

// queue is what can be claimed of a stage, in the order in which it is.
func (m *model) queue(stage int, only []store.ID) []*modelTask {
	var all []*modelTask
	for _, t := range m.tasks {
		if m.ready(t, stage) && (only == nil || slices.Contains(only, t.id)) {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, inOrder)
	return all
}

// claim leaves the token open: the database draws it.
func (t *modelTask) claim(stage int, worker store.ID) {
	s := &t.stages[stage]
	s.status, s.worker, s.token, s.young = inprogress, worker, store.ID{}, true
	s.attempts++
}

// end writes a claim down and leaves its stage with the given status.
func (m *model) end(t *modelTask, stage int, outcome string, status store.Status) {
	s := &t.stages[stage]
	t.history[s.token] = modelTry{m.stages[stage], s.attempts, outcome, s.worker}
	s.status, s.token, s.worker = status, store.ID{}, store.ID{}
	if outcome == "released" {
		s.attempts--
	}
}

// mature makes ready what waited for a time that has come.
func (m *model) mature(stage int, but *modelTask) {
	for _, t := range m.tasks {
		if t != but && t.stages[stage].wait == waitOver {
			t.stages[stage].wait = noWait
			t.wasReady = t.wasReady || t.stages[stage].attempts == 0
		}
	}
}

// next is the sign of Next: negative where nothing waits, 0 where a time has
// come.
func (m *model) next(stage int) int {
	next := -1
	for _, t := range m.tasks {
		switch t.stages[stage].wait {
		case waitOver:
			return 0
		case waiting:
			next = 1
		}
	}
	return next
}

// rest takes a stage that is not to go on out of its worker's hands.
func (m *model) rest(t *modelTask, stage int, status store.Status) {
	s := &t.stages[stage]
	if s.status == inprogress {
		m.end(t, stage, "cancelled", status)
	}
	s.status, s.wait = status, noWait
}

// untried says that a stage waits for the time that the task was submitted for.
func (m *model) untried(t *modelTask, stage int) bool {
	s := &t.stages[stage]
	return len(m.needs[stage]) == 0 && s.attempts == 0 && s.wait != noWait && !t.wasReady
}

func (m *model) cancel(t *modelTask) {
	// The time that the task was submitted for is kept, for a retry.
	kept, later := false, false
	for i, s := range t.stages {
		if m.untried(t, i) && s.status == pending {
			kept, later = true, later || s.wait == waiting
		}
	}
	if kept {
		t.scheduled = later
	}
	for i := range t.stages {
		if s := t.stages[i].status; s != done && s != dead {
			m.rest(t, i, cancelled)
		}
	}
}

// retry returns false, and changes nothing, for a task that was replaced.
func (m *model) retry(t *modelTask, from int) bool {
	var again []int
	for i := range t.stages {
		s := t.stages[i].status
		if from < 0 && (s == dead || s == failing || s == cancelled) || from >= 0 && m.above[i][from] {
			again = append(again, i)
		}
	}
	if !t.by.IsZero() && len(again) > 0 {
		return false
	}
	still := true // it is scheduled, as before or once more
	for i := range t.stages {
		still = still && (len(m.needs[i]) > 0 || m.keepsSchedule(t, i, from) || m.untried(t, i) && !slices.Contains(again, i))
	}
	for _, i := range again {
		waits := m.keepsSchedule(t, i, from)
		m.rest(t, i, pending)
		t.stages[i].attempts = 0
		if waits {
			t.stages[i].wait = waiting
		}
	}
	t.scheduled, t.wasReady = false, !still
	return true
}

// keepsSchedule says that a stage that is done again waits for the time kept.
func (m *model) keepsSchedule(t *modelTask, stage, from int) bool {
	return from < 0 && t.scheduled && len(m.needs[stage]) == 0 && t.stages[stage].status == cancelled
}

// modelSwept is what a sweep is expected to say.
type modelSwept struct {
	lost    []store.ID
	expired int
	left    []bool
	next    []int
}

func (m *model) sweep(sweeper store.ID, judges bool) modelSwept {
	var out modelSwept
	for _, w := range m.workers {
		if judges && w.id != sweeper && w.alive() && w.silent && !m.holdsYoung(w.id) {
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
			case s.attempts >= m.max:
				m.end(t, i, "expired", dead)
			default:
				m.end(t, i, "expired", failing)
			}
			out.expired++
		}
		m.mature(i, nil)
		out.left = append(out.left, len(m.queue(i, nil)) > 0)
		out.next = append(out.next, m.next(i))
	}
	return out
}

func (m *model) holdsYoung(worker store.ID) bool {
	for _, t := range m.tasks {
		for i := range t.stages {
			if s := &t.stages[i]; s.status == inprogress && s.worker == worker && s.young {
				return true
			}
		}
	}
	return false
}

// open says that somebody may still work on a task, now or later.
func (m *model) open(t *modelTask) bool {
	for i := range t.stages {
		s := &t.stages[i]
		if s.status == inprogress || s.toDo() && m.met(t, i, nil) {
			return true
		}
	}
	return false
}
