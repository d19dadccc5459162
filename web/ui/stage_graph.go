package ui

import (
	"fmt"
	"strings"
	"time"

	"github.com/cuelight/cuelight/store"
)

// statusWords are the statuses of tasks and stages as pages show them.
var statusWords = map[store.Status]string{
	store.StatusPending: "pending", store.StatusInProgress: "in progress", store.StatusCompleted: "completed",
	store.StatusFailed: "retrying", store.StatusDead: "dead", store.StatusCancelled: "cancelled",
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
		c.State = string(store.StatusInProgress)
		c.Percent, c.Detail = cur.partsProgress(t.ID, s)
		c.Word = fmt.Sprintf("%.0f%%", c.Percent)
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
		c.Detail = "after " + count(s.Attempts, "attempt")
	case store.StatusCompleted:
		if s.Attempts > 1 {
			c.Detail = fmt.Sprintf("attempt %d", s.Attempts)
		}
	}
	c.Label = c.label(statusWords[s.Status])
	return c
}

// partsProgress is the progress of a divided stage: of its completed parts, and of those that run.
func (c current) partsProgress(task store.ID, s store.StageState) (percent float64, detail string) {
	if s.Parts == nil || s.OpenParts == nil || *s.Parts == 0 {
		return 0, ""
	}
	completed := *s.Parts - *s.OpenParts
	sum := float64(100 * completed)
	for _, w := range c.Workers {
		for _, r := range w.Running {
			if r.Task == task && r.Stage == s.Name && r.Part > 0 {
				sum += min(max(r.Percent, 0), 100)
			}
		}
	}
	return min(sum/float64(*s.Parts), 100), fmt.Sprintf("%d of %s", completed, count(*s.Parts, "part"))
}

func (c chip) label(status string) string {
	label := c.Stage + ": " + status
	if c.Word != status {
		label += ", " + c.Word
	}
	if c.Detail != "" {
		label += ", " + c.Detail
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
