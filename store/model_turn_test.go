package store_test

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// modelTurned is what a turn is expected to answer.
type modelTurned struct {
	claims        []modelClaim
	stale, locked []store.ID // tokens, one per report
	left, yielded []bool
	next          []int
}

type modelClaim struct {
	task  *modelTask
	stage int
}

// modelRow is what one statement completes of one task: the tokens shown for
// its stages, and what they returned.
type modelRow struct {
	task   store.ID
	tokens []store.ID
	result []string
}

// turn makes the model's turn: what is due; then the reports, those of completed
// stages last; then, stage by stage, what is ready. Somebody else has the row of
// foreign locked, if there is one. Claimed stages have no token yet.
func (m *model) turn(in engine.ExchangeRequest, foreign *modelTask) modelTurned {
	n := len(m.stages)
	out := modelTurned{left: make([]bool, n), yielded: make([]bool, n), next: slices.Repeat([]int{-1}, n)}
	applied := make(map[store.ID]bool)
	for stage := range n {
		if in.PromoteDue != nil && in.PromoteDue[stage] {
			m.mature(stage, foreign)
		}
	}
	completions, ended, opens := m.sort(in.Reports)
	for stage, reports := range ended {
		for _, r := range reports {
			m.endReported(r, stage, foreign, applied)
			if !r.Dead && r.RetryIn == 0 {
				opens[stage], out.left[stage], out.yielded[stage] = true, true, true
			}
		}
	}
	free := slices.Clone(in.FreeSlots)
	for i, rows := range completions {
		slots := slices.Clone(free)
		if i > 0 {
			clear(slots)
		}
		m.complete(rows, in, slots, foreign, applied, &out)
	}
	for _, c := range out.claims {
		free[c.stage]--
	}
	for stage := range n {
		m.look(stage, in, foreign, free[stage], opens[stage], &out)
	}
	for _, r := range in.Reports {
		switch t := m.task(r.Task); {
		case applied[r.Token]:
		case t != nil && t == foreign && t.stages[r.Stage].token == r.Token:
			out.locked = append(out.locked, r.Token)
		default:
			out.stale = append(out.stale, r.Token)
		}
	}
	return out
}

// sort groups the reports. One statement completes several stages of a task,
// but not one stage twice. It also says which stages tasks may become ready for.
func (m *model) sort(reports []engine.Report) (completions [][]*modelRow, ended [][]engine.Report, opens []bool) {
	n := len(m.stages)
	ended, opens = make([][]engine.Report, n), make([]bool, n)
	seen := make(map[store.ID]bool)
	for _, r := range reports {
		if seen[r.Token] {
			continue
		}
		seen[r.Token] = true
		if r.Outcome != engine.Completed {
			ended[r.Stage] = append(ended[r.Stage], r)
			continue
		}
		var row *modelRow
		for i := 0; row == nil; i++ {
			if i == len(completions) {
				completions = append(completions, nil)
			}
			row = placeFor(&completions[i], r, n)
		}
		row.tokens[r.Stage], row.result[r.Stage] = r.Token, cmp.Or(string(r.Result), "null")
		for _, next := range m.feeds[r.Stage] {
			opens[next] = true
		}
	}
	return completions, ended, opens
}

// placeFor is the row of the report's task, unless that has the stage already.
func placeFor(rows *[]*modelRow, r engine.Report, n int) *modelRow {
	for _, row := range *rows {
		if row.task == r.Task && row.tokens[r.Stage].IsZero() {
			return row
		}
		if row.task == r.Task {
			return nil
		}
	}
	row := &modelRow{r.Task, make([]store.ID, n), make([]string, n)}
	*rows = append(*rows, row)
	return row
}

// complete decides for all rows on what they were before, and changes them then. A
// stage goes on with the tasks that would have the free slots if they and all that
// are ready stood in one line, as far as this turn claims what is ready; else with
// those that come before all that are ready.
func (m *model) complete(rows []*modelRow, in engine.ExchangeRequest, free []int, foreign *modelTask, applied map[store.ID]bool, out *modelTurned) {
	var change []func()
	open := make([][]*modelTask, len(m.stages))
	for _, row := range rows {
		t := m.task(row.task)
		if t == nil || t == foreign {
			continue
		}
		these := make([]bool, len(m.stages))
		for i, token := range row.tokens {
			these[i] = !token.IsZero() && t.stages[i].token == token
		}
		if !slices.Contains(these, true) {
			continue // whoever lost all his claims goes on with nothing
		}
		for i := range m.stages {
			if these[i] {
				applied[row.tokens[i]] = true
				change = append(change, func() {
					m.end(t, i, "completed", done)
					t.stages[i].result = row.result[i]
				})
			} else if m.opens(t, i, these) && m.worker(in.Worker).alive() {
				open[i] = append(open[i], t)
			}
		}
	}
	for i, tasks := range open {
		slices.SortFunc(tasks, inOrder)
		queue := m.queue(i, in.OnlyTasks)
		for rank, t := range tasks {
			slots := free[i]
			if len(queue) > 0 && inOrder(queue[0], t) < 0 {
				slots -= len(queue)
				if !in.ClaimFrom[i] {
					slots = 0
				}
			}
			if rank >= slots {
				out.left[i], out.yielded[i] = true, true
				continue
			}
			out.claims = append(out.claims, modelClaim{t, i})
			change = append(change, func() { t.claim(i, in.Worker) })
		}
	}
	for _, c := range change {
		c()
	}
}

// opens says that a task becomes ready for a stage when these are completed.
func (m *model) opens(t *modelTask, stage int, these []bool) bool {
	return t.stages[stage].toDo() && t.stages[stage].wait == noWait && m.met(t, stage, these) && !m.met(t, stage, nil)
}

func inOrder(a, b *modelTask) int {
	return cmp.Or(int(b.priority)-int(a.priority), bytes.Compare(a.id[:], b.id[:]))
}

func (m *model) endReported(r engine.Report, stage int, foreign *modelTask, applied map[store.ID]bool) {
	t := m.task(r.Task)
	if t == nil || t == foreign || r.Token.IsZero() || t.stages[stage].token != r.Token {
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

func (m *model) look(stage int, in engine.ExchangeRequest, foreign *modelTask, free int, opens bool, out *modelTurned) {
	if !in.ClaimFrom[stage] {
		return
	}
	var after engine.Position
	if in.After != nil && !opens {
		after = in.After[stage]
	}
	for _, t := range m.queue(stage, in.OnlyTasks) {
		if !after.Task.IsZero() && (t.priority != after.Priority || bytes.Compare(t.id[:], after.Task[:]) <= 0) {
			continue
		}
		if free == 0 || !m.worker(in.Worker).alive() {
			break
		}
		if t != foreign {
			out.claims = append(out.claims, modelClaim{t, stage})
			t.claim(stage, in.Worker)
			free--
		}
	}
	if !after.Task.IsZero() {
		return
	}
	out.left[stage] = len(m.queue(stage, in.OnlyTasks)) > 0
	out.next[stage] = m.next(stage)
}
