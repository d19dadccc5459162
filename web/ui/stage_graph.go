package ui

import (
	"fmt"
	"strings"
	"time"

	"github.com/cuelight/cuelight/store"
)

// chip is a stage of a task, as it is shown.
type chip struct {
	Stage, State, Word string     // State is a class and the name of an icon
	Detail             string     // how far it is
	When               *time.Time // of the next attempt
	Percent            float64    // below 0 for no bar
	Label              string     // all of it, in words
}

// cell is a chip or a wire that passes by; Wires are drawn behind a column.
type cell struct {
	Chip *chip
	Lit  bool
}

type graphColumn struct {
	Cells []cell
	Wires []graphWire
}

type graphWire struct {
	Path string
	Lit  bool
}

// statusWords are the statuses of tasks and stages as pages show them.
var statusWords = map[store.Status]string{
	store.StatusPending: "pending", store.StatusInProgress: "in progress", store.StatusCompleted: "completed",
	store.StatusFailed: "retrying", store.StatusDead: "dead", store.StatusCancelled: "cancelled",
	store.StatusScheduled: "scheduled", // only of a whole task
}

// stageStatuses are the statuses that a stage can have.
var stageStatuses = []store.Status{
	store.StatusPending, store.StatusInProgress, store.StatusCompleted,
	store.StatusFailed, store.StatusDead, store.StatusCancelled,
}

// graph draws the stages of a task.
func (l pipelineLayout) drawStages(t store.Task, running map[store.ID]store.Running, paused func(stage string) bool) []graphColumn {
	out := make([]graphColumn, len(l.columns))
	lit := func(stage int) bool { return t.Stages[stage].Status == store.StatusCompleted }
	for i, c := range l.columns {
		for _, lane := range c.lanes {
			if lane.stage < 0 {
				out[i].Cells = append(out[i].Cells, cell{Lit: lit(lane.from)})
				continue
			}
			chip := l.chip(t, lane.stage, running, paused)
			out[i].Cells = append(out[i].Cells, cell{Chip: &chip})
		}
		for _, w := range c.wires {
			out[i].Wires = append(out[i].Wires, graphWire{w.path(), lit(w.stage)})
		}
	}
	return out
}

func (l pipelineLayout) chip(t store.Task, i int, running map[store.ID]store.Running, paused func(stage string) bool) chip {
	s := t.Stages[i]
	c := chip{Stage: s.Name, State: string(s.Status), Word: statusWords[s.Status], Percent: -1}
	switch s.Status {
	case store.StatusInProgress:
		if r, ok := running[s.Token]; ok {
			if c.Percent = min(r.Percent, 100); r.Percent >= 0 {
				c.Word = fmt.Sprintf("%.0f%%", c.Percent)
				r.Percent = -1
			}
			c.Detail = progressText(r)
		}
	case store.StatusPending:
		switch {
		case !l.isReady(t, i):
			c.State = "later"
		case s.RunAt != nil && t.Status == store.StatusScheduled:
			c.State, c.Word, c.Detail, c.When = "scheduled", "scheduled", "", s.RunAt
		case s.RunAt != nil:
			c.Detail, c.When = "starts", s.RunAt
		case paused(s.Name):
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
	label := []string{c.Stage + ": " + statusWords[s.Status]}
	if c.Word != statusWords[s.Status] {
		label = append(label, c.Word)
	}
	if c.Detail != "" {
		label = append(label, c.Detail)
	}
	c.Label = strings.Join(label, ", ")
	return c
}

// open reports whether all that a stage needs is completed.
func (l pipelineLayout) isReady(t store.Task, i int) bool {
	for _, need := range l.needs[i] {
		if t.Stages[need].Status != store.StatusCompleted {
			return false
		}
	}
	return true
}

// progress is how far somebody says that it is.
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
	if note := noteText(r.Note); len(words) < 2 && note != "" {
		words = append(words, note)
	}
	return strings.Join(words, " · ")
}

// doing is a note without the number at its end, which counts steps so that who
// watches sees that it goes on.
func noteText(note string) string {
	text := strings.TrimRight(note, "0123456789")
	if !strings.HasSuffix(text, " ") {
		text = note
	}
	return printable(strings.TrimSpace(text))
}

// held are the claims that are being worked on, by their tokens.
func runningByToken(workers []store.Worker) map[store.ID]store.Running {
	out := make(map[store.ID]store.Running)
	for _, w := range workers {
		for _, r := range w.Running {
			out[r.Token] = r
		}
	}
	return out
}
