package store_test

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// The model of stages that divide. A part is a modelStage of its own.

// unit returns a stage, or a part of it, counted from 1.
func (t *modelTask) unit(stage, part int) *modelStage {
	if part > 0 {
		return t.stages[stage].parts[part-1]
	}
	return &t.stages[stage]
}

// units is the number of the stage and its parts.
func (s *modelStage) units() int { return 1 + len(s.parts) }

// holds reports whether a token is that of the claim of a stage or a part.
func (t *modelTask) holds(stage, part int, token store.ID) bool {
	return part < t.stages[stage].units() && t.unit(stage, part).token == token && !token.IsZero()
}

// openParts is the number of parts that are not completed.
func (s *modelStage) openParts() int {
	open := 0
	for _, p := range s.parts {
		if p.status != done {
			open++
		}
	}
	return open
}

func (s *modelStage) isOpen() bool { return s.isClaimable() || s.status == inprogress }

// dividedStage returns the stage of a queue of parts.
func (m *model) dividedStage(queue int) int {
	for stage, divides := range m.divides {
		if divides {
			if queue == len(m.stages) {
				return stage
			}
			queue--
		}
	}
	panic("no such queue")
}

func (m *model) partsQueue(stage int) int {
	queue := len(m.stages)
	for _, divides := range m.divides[:stage] {
		if divides {
			queue++
		}
	}
	return queue
}

func (m *model) dropParts(t *modelTask, stage int) {
	for i := range t.stages[stage].parts {
		m.stopUnit(t, stage, i+1, cancelled)
	}
	t.stages[stage].parts = nil
}

// resumeParts makes a retried stage divided again whose parts are not all completed.
func (m *model) resumeParts(t *modelTask, stage int) {
	s := &t.stages[stage]
	if s.openParts() == 0 {
		return
	}
	s.status = divided
	for _, p := range s.parts {
		if p.status == dead || p.status == cancelled {
			p.status, p.attempts = pending, 0
		}
	}
}

func (t *modelTask) retryFailedParts(stage int) {
	for _, p := range t.stages[stage].parts {
		if p.status == failing {
			p.status, p.attempts, p.wait = pending, 0, noWait
		}
	}
}

// makeDead makes the stage of a dead part dead, and cancels its other parts.
func (m *model) makeDead(t *modelTask, stage int) {
	t.stages[stage].status = dead
	for i, p := range t.stages[stage].parts {
		if p.isOpen() {
			m.stopUnit(t, stage, i+1, cancelled)
		}
	}
}

type modelPart struct {
	task *modelTask
	part int
	*modelStage
}

// readyParts returns the parts of a stage in the order in which they are claimed: by priority, by turns, and the
// newest task first.
func (m *model) readyParts(stage int, only []store.ID) (all []modelPart) {
	for _, t := range m.tasks {
		for i, p := range t.stages[stage].parts {
			if p.isClaimable() && p.wait == noWait && (only == nil || slices.Contains(only, t.id)) {
				all = append(all, modelPart{t, i + 1, p})
			}
		}
	}
	slices.SortFunc(all, func(a, b modelPart) int {
		return cmp.Or(int(b.task.priority)-int(a.task.priority), a.turn-b.turn, bytes.Compare(b.task.id[:], a.task.id[:]))
	})
	return all
}

// promoteDueParts makes the due parts ready, except those of one task.
func (m *model) promoteDueParts(stage int, except *modelTask) {
	for _, t := range m.tasks {
		for _, p := range t.stages[stage].parts {
			if t != except && p.wait == waitDue {
				p.wait = noWait
			}
		}
	}
}

// nextPartDue is nextDue for the parts of a stage.
func (m *model) nextPartDue(stage int) int {
	next := -1
	for _, t := range m.tasks {
		for _, p := range t.stages[stage].parts {
			switch p.wait {
			case waitDue:
				return 0
			case waiting:
				next = 1
			}
		}
	}
	return next
}

// applyPartReports divides stages, then completes parts, and then ends those that were not completed.
func (m *model) applyPartReports(
	reports []engine.Report, stage int, lockedTask *modelTask, applied map[store.ID]bool, out *modelExchangeResult,
) {
	var divisions, completions, failures []engine.Report
	seen := make(map[store.ID]bool)
	for _, r := range reports {
		if r.Stage != stage || seen[r.Token] || r.Part == 0 && r.Outcome != engine.Divided {
			continue
		}
		seen[r.Token] = true
		switch r.Outcome {
		case engine.Divided:
			divisions = append(divisions, r)
		case engine.Completed:
			completions = append(completions, r)
		default:
			failures = append(failures, r)
		}
	}
	markReady := func(queue int) { out.moreReady[queue], out.newlyReady[queue] = true, true }
	if len(divisions) > 0 {
		markReady(m.partsQueue(stage))
	}
	m.divide(divisions, stage, lockedTask, applied)
	for _, r := range completions {
		t := m.task(r.Task)
		if t == nil || t == lockedTask || !t.holds(stage, r.Part, r.Token) {
			continue
		}
		applied[r.Token] = true
		m.endUnit(t, stage, r.Part, "completed", done)
		t.unit(stage, r.Part).result = cmp.Or(string(r.Result), "null")
		if s := &t.stages[stage]; s.openParts() == 0 {
			s.status = pending
			markReady(stage)
		}
	}
	for _, r := range failures {
		if !r.Dead && r.RetryIn == 0 {
			markReady(m.partsQueue(stage))
		}
	}
	m.endParts(failures, stage, lockedTask, applied)
}

// divide decides the turns of all tasks by their state before.
func (m *model) divide(reports []engine.Report, stage int, lockedTask *modelTask, applied map[store.ID]bool) {
	before := make(map[int16]int) // the turn before that of the next ready part, by priority
	for _, p := range slices.Backward(m.readyParts(stage, nil)) {
		before[p.task.priority] = p.turn - 1
	}
	for _, r := range reports {
		t := m.task(r.Task)
		if t == nil || t == lockedTask || !t.holds(stage, 0, r.Token) {
			continue
		}
		applied[r.Token], t.wasReady = true, true
		m.end(t, stage, "divided", divided)
		s := &t.stages[stage]
		if r.Counted {
			s.attempts++
		}
		s.parts = slices.Concat(s.parts, make([]*modelStage, max(len(r.Parts)-len(s.parts), 0)))[:len(r.Parts)]
		turn := before[t.priority]
		for i := range s.parts {
			if !slices.Contains(r.Kept, i+1) {
				turn++
				s.parts[i] = &modelStage{status: pending, turn: turn}
			}
		}
	}
}

// randomDivisionAgain returns the report of a join that divides its stage again and keeps some parts, but not all.
func randomDivisionAgain(rng *rand.Rand, c engine.Claim) engine.Report {
	var kept []int
	n := 1 + rng.IntN(c.Parts+2)
	for part := 1; part <= min(n, c.Parts); part++ {
		if rng.IntN(2) == 0 {
			kept = append(kept, part)
		}
	}
	if len(kept) == n {
		kept = kept[1:]
	}
	r := divisionAgain(c, n, kept...)
	if c.Attempt < modelAttempts && rng.IntN(2) == 0 {
		r = because(r, "a part is lost")
	}
	return r
}

// endParts ends claims of parts that were not completed. A part that fails together with the one that makes the stage
// dead is cancelled.
func (m *model) endParts(reports []engine.Report, stage int, lockedTask *modelTask, applied map[store.ID]bool) {
	var died []*modelTask
	for _, r := range reports {
		t := m.task(r.Task)
		if t == nil || t == lockedTask || !t.holds(stage, r.Part, r.Token) {
			continue
		}
		applied[r.Token] = true
		switch {
		case r.Outcome == engine.Released:
			m.endUnit(t, stage, r.Part, "released", pending)
		case r.Dead:
			m.endUnit(t, stage, r.Part, "failed", dead)
			died = append(died, t)
		default:
			m.endUnit(t, stage, r.Part, "failed", failing)
		}
		if r.RetryIn > 0 && !r.Dead {
			t.unit(stage, r.Part).wait = waiting
		}
	}
	for _, t := range died {
		m.makeDead(t, stage)
	}
}

func (m *model) claimReadyParts(queue int, in engine.ExchangeRequest, out *modelExchangeResult) {
	if !in.ClaimFrom[queue] {
		return
	}
	stage := m.dividedStage(queue)
	if m.worker(in.Worker).alive() {
		ready := m.readyParts(stage, in.OnlyTasks)
		for _, p := range ready[:min(len(ready), in.FreeSlots[queue])] {
			out.claims = append(out.claims, modelClaim{p.task, stage, p.part})
			p.claim(in.Worker)
		}
	}
	out.moreReady[queue] = len(m.readyParts(stage, in.OnlyTasks)) > 0
	out.nextDue[queue] = m.nextPartDue(stage)
}

// sweepParts expires the claims of parts, and finds ready ones.
func (m *model) sweepParts(out *modelSweepResult) {
	for queue := len(m.stages); queue < m.queues; queue++ {
		stage := m.dividedStage(queue)
		for _, t := range m.tasks {
			out.expired += m.expireParts(t, stage)
		}
		m.promoteDueParts(stage, nil)
		out.moreReady = append(out.moreReady, len(m.readyParts(stage, nil)) > 0)
		out.nextDue = append(out.nextDue, m.nextPartDue(stage))
	}
}

func (m *model) expireParts(t *modelTask, stage int) (expired int) {
	isDead := false
	for i, p := range t.stages[stage].parts {
		if p.status != inprogress || m.worker(p.worker).alive() {
			continue
		}
		expired++
		switch {
		case !m.worker(p.worker).lost:
			m.endUnit(t, stage, i+1, "released", pending)
		case p.attempts >= m.maxAttempts:
			m.endUnit(t, stage, i+1, "expired", dead)
			isDead = true
		default:
			m.endUnit(t, stage, i+1, "expired", failing)
		}
	}
	if isDead {
		m.makeDead(t, stage)
	}
	return expired
}
