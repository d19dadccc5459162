package store_test

import (
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

// stopParts stops the parts of a stage that is not completed.
func (m *model) stopParts(t *modelTask, stage int) {
	for i, p := range t.stages[stage].parts {
		if p.isOpen() {
			m.stopUnit(t, stage, i+1, cancelled)
		}
	}
}

// resumeParts makes a retried stage divided again whose parts are not all completed. Running parts stay.
func (m *model) resumeParts(t *modelTask, stage int) {
	s := &t.stages[stage]
	if s.openParts() == 0 {
		return
	}
	s.status = divided
	for _, p := range s.parts {
		if p.status != done && p.status != inprogress && (p.status != pending || p.attempts > 0 || p.wait != noWait) {
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

// modelPart is a step: a stage, or a part of it.
type modelPart struct {
	task        *modelTask
	stage, part int
	*modelStage
}

func (p modelPart) position() engine.Position {
	return engine.Position{Rank: -int32(p.task.priority), Turn: p.turn, Task: p.task.id}
}

// completePart returns whether the report was applied.
func (m *model) completePart(r engine.Report, t *modelTask) {
	m.endUnit(t, r.Stage, r.Part, "completed", done)
	t.unit(r.Stage, r.Part).result = cmp.Or(string(r.Result), "null")
	if s := &t.stages[r.Stage]; s.openParts() == 0 && s.status == divided {
		s.status = pending
	}
}

func (m *model) divide(r engine.Report, t *modelTask) {
	m.end(t, r.Stage, "divided", divided)
	s := &t.stages[r.Stage]
	if r.Counted {
		s.attempts++
	}
	s.parts = slices.Concat(s.parts, make([]*modelStage, max(len(r.Parts)-len(s.parts), 0)))[:len(r.Parts)]
	for i := range s.parts {
		if !slices.Contains(r.Kept, i+1) {
			s.parts[i] = &modelStage{status: pending}
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
