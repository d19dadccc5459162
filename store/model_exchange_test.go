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
	claims                []modelClaim
	stale, locked         []store.ID // tokens, one per report
	moreReady, newlyReady []bool
	nextDue               []int
}

type modelClaim struct {
	task        *modelTask
	stage, part int
}

// completionRow is what one statement completes of one task: the tokens and results of
// its stages.
type completionRow struct {
	task   store.ID
	tokens []store.ID
	result []string
}

// exchange does in the model what an exchange does: it promotes due tasks, applies the
// reports, those of completed stages last, and claims ready tasks by stage. Another
// transaction has locked the row of lockedTask, if not nil. The claims have no
// tokens yet.
func (m *model) exchange(in engine.ExchangeRequest, lockedTask *modelTask) modelExchangeResult {
	n := len(m.stages)
	out := modelExchangeResult{
		moreReady: make([]bool, m.queues), newlyReady: make([]bool, m.queues), nextDue: slices.Repeat([]int{-1}, m.queues),
	}
	applied := make(map[store.ID]bool)
	for stage := range n {
		if in.PromoteDue != nil && in.PromoteDue[stage] {
			m.promoteDue(stage, lockedTask)
		}
	}
	for queue := n; queue < m.queues; queue++ {
		if in.PromoteDue != nil && in.PromoteDue[queue] {
			m.promoteDueParts(m.dividedStage(queue), lockedTask)
		}
	}
	completions, ended, mayBecomeReady := m.groupReports(in.Reports)
	for stage, reports := range ended {
		for _, r := range reports {
			m.endReported(r, stage, lockedTask, applied)
			if !r.Dead && r.RetryIn == 0 {
				mayBecomeReady[stage], out.moreReady[stage], out.newlyReady[stage] = true, true, true
			}
		}
		m.applyPartReports(in.Reports, stage, lockedTask, applied, &out)
	}
	free := slices.Clone(in.FreeSlots)
	for i, rows := range completions {
		slots := slices.Clone(free)
		if i > 0 {
			clear(slots)
		}
		m.complete(rows, in, slots, lockedTask, applied, &out)
	}
	for _, c := range out.claims {
		free[c.stage]--
	}
	for stage := range n {
		m.claimReady(stage, in, lockedTask, free[stage], mayBecomeReady[stage], &out)
	}
	for queue := n; queue < m.queues; queue++ {
		m.claimReadyParts(queue, in, &out)
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

// groupReports groups the reports. One statement completes several stages of a task, but
// not one stage twice. It also returns the stages in which tasks may become ready.
func (m *model) groupReports(reports []engine.Report) (completions [][]*completionRow, ended [][]engine.Report, mayBecomeReady []bool) {
	n := len(m.stages)
	ended, mayBecomeReady = make([][]engine.Report, n), make([]bool, n)
	seen := make(map[store.ID]bool)
	for _, r := range reports {
		if seen[r.Token] {
			continue
		}
		seen[r.Token] = true
		if r.Part > 0 || r.Outcome == engine.Divided {
			continue // see applyPartReports
		}
		if r.Outcome != engine.Completed {
			ended[r.Stage] = append(ended[r.Stage], r)
			continue
		}
		var row *completionRow
		for i := 0; row == nil; i++ {
			if i == len(completions) {
				completions = append(completions, nil)
			}
			row = rowFor(&completions[i], r, n)
		}
		row.tokens[r.Stage], row.result[r.Stage] = r.Token, cmp.Or(string(r.Result), "null")
		for _, next := range m.feeds[r.Stage] {
			mayBecomeReady[next] = true
		}
	}
	return completions, ended, mayBecomeReady
}

// rowFor returns the row of the report's task, or nil if that has the stage already.
func rowFor(rows *[]*completionRow, r engine.Report, n int) *completionRow {
	for _, row := range *rows {
		if row.task == r.Task && row.tokens[r.Stage].IsZero() {
			return row
		}
		if row.task == r.Task {
			return nil
		}
	}
	row := &completionRow{r.Task, make([]store.ID, n), make([]string, n)}
	*rows = append(*rows, row)
	return row
}

// complete decides for all rows by their state before, and then changes them. If this
// exchange claims ready tasks of a stage, the completed tasks continue there that would
// get a free slot in one queue with the ready ones. Otherwise those continue that come
// before all ready ones.
func (m *model) complete(rows []*completionRow, in engine.ExchangeRequest, free []int, lockedTask *modelTask,
	applied map[store.ID]bool, out *modelExchangeResult) {
	var changes []func()
	continuing := make([][]*modelTask, len(m.stages))
	for _, row := range rows {
		t := m.task(row.task)
		if t == nil || t == lockedTask {
			continue
		}
		these := make([]bool, len(m.stages))
		for i, token := range row.tokens {
			these[i] = !token.IsZero() && t.stages[i].token == token
		}
		if !slices.Contains(these, true) {
			continue // a worker that lost all its claims continues nothing
		}
		for i := range m.stages {
			if these[i] {
				applied[row.tokens[i]] = true
				changes = append(changes, func() {
					m.end(t, i, "completed", done)
					t.stages[i].result = row.result[i]
				})
			} else if m.becomesReady(t, i, these) && m.worker(in.Worker).alive() {
				continuing[i] = append(continuing[i], t)
			}
		}
	}
	for i, tasks := range continuing {
		slices.SortFunc(tasks, compareByClaimOrder)
		queue := m.queue(i, in.OnlyTasks)
		for rank, t := range tasks {
			slots := free[i]
			if len(queue) > 0 && compareByClaimOrder(queue[0], t) < 0 {
				slots -= len(queue)
				if !in.ClaimFrom[i] {
					slots = 0
				}
			}
			if rank >= slots {
				out.moreReady[i], out.newlyReady[i] = true, true
				continue
			}
			out.claims = append(out.claims, modelClaim{t, i, 0})
			changes = append(changes, func() { t.stages[i].claim(in.Worker) })
		}
	}
	for _, c := range changes {
		c()
	}
}

// becomesReady reports whether a task becomes ready in a stage when these are completed.
func (m *model) becomesReady(t *modelTask, stage int, these []bool) bool {
	return t.stages[stage].isClaimable() && t.stages[stage].wait == noWait && m.needsCompleted(t, stage, these) &&
		!m.needsCompleted(t, stage, nil)
}

func compareByClaimOrder(a, b *modelTask) int {
	return cmp.Or(int(b.priority)-int(a.priority), bytes.Compare(a.id[:], b.id[:]))
}

func (m *model) endReported(r engine.Report, stage int, lockedTask *modelTask, applied map[store.ID]bool) {
	t := m.task(r.Task)
	if t == nil || t == lockedTask || r.Token.IsZero() || t.stages[stage].token != r.Token {
		return
	}
	applied[r.Token], t.wasReady = true, true
	switch {
	case r.Outcome == engine.Released:
		m.end(t, stage, "released", pending)
	case r.Dead:
		m.end(t, stage, "failed", dead)
	default:
		m.end(t, stage, "failed", failing)
	}
	if r.RetryIn > 0 && !r.Dead {
		t.stages[stage].wait = waiting
	}
}

func (m *model) claimReady(stage int, in engine.ExchangeRequest, lockedTask *modelTask, free int, mayBecomeReady bool,
	out *modelExchangeResult) {
	if !in.ClaimFrom[stage] {
		return
	}
	var after engine.Position
	if in.After != nil && !mayBecomeReady {
		after = in.After[stage]
	}
	for _, t := range m.queue(stage, in.OnlyTasks) {
		if !after.Task.IsZero() && (t.priority != after.Priority || bytes.Compare(t.id[:], after.Task[:]) <= 0) {
			continue
		}
		if free == 0 || !m.worker(in.Worker).alive() {
			break
		}
		if t != lockedTask {
			out.claims = append(out.claims, modelClaim{t, stage, 0})
			t.stages[stage].claim(in.Worker)
			free--
		}
	}
	if !after.Task.IsZero() {
		return
	}
	out.moreReady[stage] = len(m.queue(stage, in.OnlyTasks)) > 0
	out.nextDue[stage] = m.nextDue(stage)
}
