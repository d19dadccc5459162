package store_test

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// modelExchangeResult is the expected result of an exchange.
type modelExchangeResult struct {
	claims        []modelPart
	stale, locked []store.ID // tokens, one per report
	moreReady     []bool
	nextDue       int
}

// exchange does in the model what an exchange does: it promotes due steps, applies the reports, and claims ready steps.
// Another transaction has locked the row of lockedTask, if not nil. The claims have no tokens yet.
func (m *model) exchange(in engine.ExchangeRequest, lockedTask *modelTask, readTurns func()) modelExchangeResult {
	out := modelExchangeResult{moreReady: make([]bool, m.queues), nextDue: -1}
	if in.PromoteDue {
		m.promoteDue()
	}
	applied := m.applyReports(in.Reports, lockedTask)
	readTurns()
	for queue := range m.queues {
		if !in.ClaimFrom[queue] {
			continue
		}
		free := in.FreeSlots[queue]
		for _, s := range m.queue(queue, in.OnlyTasks) {
			switch {
			case in.After != nil && s.position().Compare(in.After[queue]) <= 0:
			case free > 0 && m.worker(in.Worker).alive() && (s.part > 0 || s.task != lockedTask):
				out.claims = append(out.claims, s)
				free--
			default:
				out.moreReady[queue] = true
			}
		}
		out.nextDue = m.nextDue()
	}
	for _, s := range out.claims {
		s.claim(in.Worker)
	}
	for _, r := range in.Reports {
		switch t := m.task(r.Task); {
		case applied[r.Token]:
		case t != nil && t == lockedTask && t.holds(r.Stage, r.Part, r.Token):
			out.locked = append(out.locked, r.Token)
		case t != nil && t.history[r.Token].outcome == string(r.Outcome): // recorded before
		default:
			out.stale = append(out.stale, r.Token)
		}
	}
	return out
}

// applyReports applies those of completed parts, of failures, of divisions, and of completed stages. Of two with the same token
// the first counts.
func (m *model) applyReports(reports []engine.Report, lockedTask *modelTask) map[store.ID]bool {
	applied, seen := make(map[store.ID]bool), make(map[store.ID]bool)
	var first []engine.Report
	for _, r := range reports {
		if !seen[r.Token] {
			first = append(first, r)
		}
		seen[r.Token] = true
	}
	slices.SortStableFunc(first, func(a, b engine.Report) int {
		return cmp.Or(cmp.Compare(reportStep(a), reportStep(b)), bytes.Compare(a.Task[:], b.Task[:]))
	})
	var died []func()
	for i, r := range first {
		t := m.task(r.Task)
		if t != nil && t != lockedTask && t.holds(r.Stage, r.Part, r.Token) {
			applied[r.Token] = true
			switch reportStep(r) {
			case 0:
				m.completePart(r, t)
			case 1:
				m.endReported(r, t)
				if r.Dead {
					died = append(died, func() { m.makeDead(t, r.Stage) })
				}
			case 2:
				m.divide(r, t)
			case 3:
				m.end(t, r.Stage, "completed", done)
				t.stages[r.Stage].result = cmp.Or(string(r.Result), "null")
			}
		}
		if i+1 == len(first) || reportStep(first[i+1]) > 1 {
			for _, die := range died {
				die()
			}
			died = nil
		}
	}
	return applied
}

// reportStep is the place of a report in the order in which an exchange applies them.
func reportStep(r engine.Report) int {
	switch {
	case r.Outcome == engine.Divided:
		return 2
	case r.Outcome != engine.Completed:
		return 1
	case r.Part > 0:
		return 0
	}
	return 3
}

func (m *model) endReported(r engine.Report, t *modelTask) {
	switch {
	case r.Outcome == engine.Released:
		m.endUnit(t, r.Stage, r.Part, "released", pending)
	case r.Dead:
		m.endUnit(t, r.Stage, r.Part, "failed", dead)
	default:
		m.endUnit(t, r.Stage, r.Part, "failed", failing)
	}
	if r.RetryIn > 0 && !r.Dead {
		t.unit(r.Stage, r.Part).wait = waiting
	}
}
