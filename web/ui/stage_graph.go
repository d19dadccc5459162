package ui

import (
	"fmt"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
)

// statusWords are the statuses of tasks and stages as pages show them.
var statusWords = map[store.Status]string{
	store.StatusPending: "pending", store.StatusInProgress: "in progress", store.StatusCompleted: "completed",
	store.StatusFailed: "failed", store.StatusDead: "dead", store.StatusCancelled: "cancelled",
	store.StatusScheduled: "scheduled",          // only of a whole task
	store.StatusDivided:   "divided into parts", // only of a stage
}

// stageStatuses are the statuses that a stage can have.
var stageStatuses = []store.Status{
	store.StatusPending, store.StatusInProgress, store.StatusDivided, store.StatusCompleted,
	store.StatusFailed, store.StatusDead, store.StatusCancelled,
}

// graphColumn is a column of a task's stage graph, with the wires to the next column.
type graphColumn struct {
	Cells []graphCell
	Wires []graphWire
}

// graphCell is a chip, or a wire that passes through the column.
type graphCell struct {
	Chip        *chip
	IsCompleted bool
}

// graphWire is lit if its stage is completed.
type graphWire struct {
	Path        string
	IsCompleted bool
}

// chip is a stage of a task.
type chip struct {
	Stage, State, Word string     // State is a class and the name of an icon
	Detail             string     // such as the progress
	When               *time.Time // of the next attempt
	Percent            float64    // negative for no bar
	Label              string     // all of it as text
	more               string     // for the label
}

// graph draws the stages of a task.
func (l pipelineLayout) graph(t store.Task, c current) []graphColumn {
	out := make([]graphColumn, len(l.columns))
	isLit := func(stage int) bool { return t.Stages[stage].Status == store.StatusCompleted }
	for i, column := range l.columns {
		for _, lane := range column.lanes {
			if lane.stage < 0 {
				out[i].Cells = append(out[i].Cells, graphCell{IsCompleted: isLit(lane.from)})
				continue
			}
			chip := l.chip(t, lane.stage, c)
			out[i].Cells = append(out[i].Cells, graphCell{Chip: &chip})
		}
		for _, w := range column.wires {
			out[i].Wires = append(out[i].Wires, graphWire{w.path(), isLit(w.stage)})
		}
	}
	return out
}

func (l pipelineLayout) chip(t store.Task, stage int, cur current) chip {
	s := t.Stages[stage]
	c := chip{Stage: s.Name, State: string(s.Status), Word: statusWords[s.Status], Percent: -1}
	switch s.Status {
	case store.StatusInProgress:
		if r, ok := cur.running(s.Token); ok {
			if c.Percent = min(r.Percent, 100); r.Percent >= 0 {
				c.Word = fmt.Sprintf("%.0f%%", c.Percent)
				r.Percent = -1
			}
			c.Detail = progressText(r)
		}
	case store.StatusDivided:
		c.setParts(t, s, cur)
	case store.StatusPending:
		switch {
		case !l.isReady(t, stage):
			c.State = "later"
		case s.RunAt != nil && t.Status == store.StatusScheduled:
			c.State, c.Word, c.When = "scheduled", "scheduled", s.RunAt
		case s.RunAt != nil:
			c.Detail, c.When = "starts", s.RunAt
		case cur.isStagePaused(s.Name):
			c.State, c.Word = "paused", "paused"
		default:
			c.Word = "ready"
		}
	case store.StatusFailed:
		c.Detail, c.When = fmt.Sprintf("attempt %d", s.Attempts+1), s.RunAt
	case store.StatusDead:
		switch {
		case s.Attempts > 0:
			c.Detail = "after " + count(s.Attempts, "attempt")
		case s.Parts != nil && *s.Parts > 1: // a part is dead
			c.Detail = fmt.Sprintf("%d/%d parts", *s.Parts-*s.OpenParts, *s.Parts)
		}
	case store.StatusCompleted:
		if s.Attempts > 1 {
			c.Detail = fmt.Sprintf("attempt %d", s.Attempts)
		}
	}
	c.Label = c.label(statusWords[s.Status])
	return c
}

// setParts shows how far a divided stage is. A stage with a single part is shown as one that is not divided.
func (c *chip) setParts(t store.Task, s store.StageState, cur current) {
	c.State = string(store.StatusInProgress)
	p, ok := report.FindParts(cur.progress, t.ID, s.Name)
	switch {
	case !ok:
		return
	case p.Running > 0:
		c.Word = statusWords[store.StatusInProgress]
	case cur.isStagePaused(s.Name):
		c.State, c.Word = "paused", "paused"
	case p.Retrying > 0:
		c.State, c.Word, c.When = string(store.StatusFailed), statusWords[store.StatusFailed], p.RetryAt
	default:
		c.State, c.Word = string(store.StatusPending), "ready"
	}
	r := p.Activity()
	if p.Parts > 1 || p.Running > 0 {
		c.Percent = p.Percent
	}
	if c.Percent >= 0 && p.Running > 0 {
		c.Word = fmt.Sprintf("%.0f%%", c.Percent)
	}
	r.Percent = -1
	c.Detail = progressText(r)
	if p.Parts > 1 {
		r.Speed = 0 // a phone has no room for it
		c.Detail = strings.TrimSuffix(fmt.Sprintf("%d/%d · %s", p.Completed, p.Parts, progressText(r)), " · ")
		c.more = p.Counts() + ", " + p.Others()
	}
}

func (c chip) label(status string) string {
	label := c.Stage + ": " + status
	if c.Word != status {
		label += ", " + c.Word
	}
	if c.Detail != "" {
		label += ", " + c.Detail
	}
	if c.more != "" {
		label += ", " + c.more
	}
	return label
}

// isReady reports whether all stages that a stage needs are completed.
func (l pipelineLayout) isReady(t store.Task, stage int) bool {
	for _, need := range l.needs[stage] {
		if t.Stages[need].Status != store.StatusCompleted {
			return false
		}
	}
	return true
}

// progressText describes the progress of a running attempt.
func progressText(r store.Running) string {
	var words []string
	if r.Percent >= 0 {
		words = append(words, fmt.Sprintf("%.0f%%", min(r.Percent, 100)))
	}
	if r.Speed > 0 {
		words = append(words, fmt.Sprintf("%.2f×", r.Speed))
	}
	if r.ETA > 0 {
		words = append(words, formatClock(r.ETA)+" left")
	}
	if note := printable(r.Activity()); len(words) < 2 && note != "" {
		words = append(words, note)
	}
	return strings.Join(words, " · ")
}
