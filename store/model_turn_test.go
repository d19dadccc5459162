package store_test

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/cuelight/cuelight/store"
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
// its stages, what they returned, and where it may go on with a slot that was
// set aside.
type modelRow struct {
	task   store.ID
	tokens []store.ID
	result []string
	chain  []bool
}

// turn makes the model's turn: reports, in the order given; then, stage by
// stage, what is ready. Somebody else has the row of foreign locked, if there
// is one. What is claimed has no token yet.
func (m *model) turn(in store.Turn, foreign *modelTask) modelTurned {
	n := len(m.stages)
	out := modelTurned{left: make([]bool, n), next: slices.Repeat([]int{-1}, n)}
	free := slices.Clone(in.Free)
	applied := make(map[store.ID]bool)
	completions, ended := m.sort(in.Reports, free, out.left)
	for _, rows := range completions {
		m.complete(rows, in.Worker, foreign, applied, &out)
	}
	for stage, reports := range ended {
		for _, r := range reports {
			m.endReported(r, stage, foreign, applied)
		}
	}
	out.yielded = slices.Clone(out.left)
	for stage := range n {
		m.look(stage, in, foreign, free[stage], &out)
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
// but not one stage twice.
func (m *model) sort(reports []store.Report, free []int, left []bool) (completions [][]*modelRow, ended [][]store.Report) {
	n := len(m.stages)
	ended = make([][]store.Report, n)
	seen := make(map[store.ID]bool)
	for _, r := range reports {
		if seen[r.Token] {
			continue
		}
		seen[r.Token] = true
		if r.Outcome != store.Completed {
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
			switch {
			case row.chain[next]:
			case free[next] > 0:
				row.chain[next] = true
				free[next]--
			default:
				left[next] = true
			}
		}
	}
	return completions, ended
}

// placeFor is the row of the report's task, unless that has the stage already.
func placeFor(rows *[]*modelRow, r store.Report, n int) *modelRow {
	for _, row := range *rows {
		if row.task == r.Task && row.tokens[r.Stage].IsZero() {
			return row
		}
		if row.task == r.Task {
			return nil
		}
	}
	row := &modelRow{r.Task, make([]store.ID, n), make([]string, n), make([]bool, n)}
	*rows = append(*rows, row)
	return row
}

// complete decides for all rows on what they were before, and changes them then.
func (m *model) complete(rows []*modelRow, worker store.ID, foreign *modelTask, applied map[store.ID]bool, out *modelTurned) {
	var change []func()
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
			switch {
			case these[i]:
				applied[row.tokens[i]] = true
				change = append(change, func() {
					m.end(t, i, "completed", done)
					t.stages[i].result = row.result[i]
				})
			case len(m.needs[i]) == 0 || !row.chain[i] || !m.worker(worker).alive():
			case t.stages[i].toDo() && t.stages[i].wait == noWait && m.met(t, i, these):
				if first := m.queue(i, nil); len(first) > 0 && first[0].priority > t.priority {
					out.left[i] = true
					continue
				}
				out.claims = append(out.claims, modelClaim{t, i})
				change = append(change, func() { t.claim(i, worker) })
			}
		}
	}
	for _, c := range change {
		c()
	}
}

func (m *model) endReported(r store.Report, stage int, foreign *modelTask, applied map[store.ID]bool) {
	t := m.task(r.Task)
	if t == nil || t == foreign || r.Token.IsZero() || t.stages[stage].token != r.Token {
		return
	}
	applied[r.Token] = true
	switch {
	case r.Outcome == store.Released:
		m.end(t, stage, "released", pending)
	case r.Dead:
		m.end(t, stage, "failed", dead)
	default:
		m.end(t, stage, "failed", failing)
		if r.RetryIn > 0 {
			t.stages[stage].wait = waiting
		}
	}
}

func (m *model) look(stage int, in store.Turn, foreign *modelTask, free int, out *modelTurned) {
	if in.Mature != nil && in.Mature[stage] {
		m.mature(stage, foreign)
	}
	if !in.Look[stage] {
		return
	}
	var after store.Place
	if in.After != nil {
		after = in.After[stage]
	}
	for _, t := range m.queue(stage, in.Only) {
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
	out.left[stage] = out.left[stage] || len(m.queue(stage, in.Only)) > 0
	out.next[stage] = m.next(stage)
}
