package ui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/redact"
	"github.com/cuelight/cuelight/internal/report"
	"github.com/cuelight/cuelight/store"
)

// maxPartCells is how many cells the parts of a stage have at most. A cell of a stage with more parts stands for several.
const maxPartCells = 300

// partStrip is the parts of a stage: a cell for each part, or for each range of them.
type partStrip struct {
	Stage, Summary string
	Cells          []partCell
	Text           []string // the same as text
}

// partCell has an area that is filled as far as its parts are done.
type partCell struct {
	ID, State, Title string
	Fill             float64 // percent; negative for a cell whose state says it
}

// Rest is the area that is not filled.
func (c partCell) Rest() float64 { return 100 - c.Fill }

// partState is a part with what its attempts say.
type partState struct {
	store.PartState
	percent float64 // that is done
	detail  string
}

// words is "in progress, 34%, attempt 2, on media-1".
func (p partState) words() string {
	text := statusWords[p.Status]
	if p.detail != "" {
		text += ", " + p.detail
	}
	return text
}

// partStrips draws the parts of the stages that were divided into several.
func partStrips(t store.Task, history []store.Attempt, c current, now time.Time) (strips []partStrip) {
	type key struct {
		stage string
		part  int
	}
	last := make(map[key]store.Attempt)
	for _, a := range history {
		if a.Part > 0 {
			last[key{a.Stage, a.Part}] = a
		}
	}
	for _, s := range t.Stages {
		var own []partState
		for _, p := range c.parts {
			if p.Stage == s.Name {
				own = append(own, c.partState(p, last[key{p.Stage, p.Part}], t.Source, now))
			}
		}
		if len(own) > 1 {
			strips = append(strips, newPartStrip(s.Name, own, c, t.ID))
		}
	}
	return strips
}

// partState says of a part on which worker it is or was, and for how long.
func (c current) partState(p store.PartState, last store.Attempt, source string, now time.Time) partState {
	out := partState{PartState: p}
	var words []string
	switch p.Status {
	case store.StatusCompleted:
		out.percent = 100
		if last.Outcome == "completed" {
			words = append(words, fmt.Sprintf("attempt %d", last.Attempt),
				"after "+formatDuration(last.FinishedAt.Sub(last.StartedAt))+" on "+workerText(last.WorkerName, last.Host))
		}
	case store.StatusInProgress:
		if r, ok := c.running(p.Token); ok {
			out.percent = min(max(r.Percent, 0), 100)
			words = append(words, progressText(r))
		}
		words = append(words, fmt.Sprintf("attempt %d", p.Attempts))
		if p.LockedAt != nil {
			words = append(words, "for "+formatDuration(now.Sub(*p.LockedAt))+c.onWorker(p.LockedBy))
		}
	case store.StatusFailed, store.StatusDead:
		words = append(words, "after "+count(p.Attempts, "attempt"))
		if last.WorkerName != "" || last.Host != "" {
			words = append(words, "last on "+workerText(last.WorkerName, last.Host))
		}
		words = append(words, firstLine(redact.Text(last.Error, source)))
	}
	words = slices.DeleteFunc(words, func(w string) bool { return w == "" })
	out.detail = strings.Join(words, ", ")
	return out
}

// onWorker names a running worker.
func (c current) onWorker(id store.ID) string {
	for _, w := range c.Workers {
		if w.ID == id {
			return " on " + workerText(w.Name, w.Host)
		}
	}
	return ""
}

// newPartStrip draws the parts of one stage.
func newPartStrip(stage string, parts []partState, c current, task store.ID) partStrip {
	strip := partStrip{Stage: stage, Summary: partsSummary(parts, c, task)}
	size := (len(parts) + maxPartCells - 1) / maxPartCells
	for some := range slices.Chunk(parts, size) {
		strip.Cells = append(strip.Cells, newPartCell(some))
	}
	for len(parts) > 0 {
		n := 1
		for n < len(parts) && isPlain(parts[0].Status) && parts[n].Status == parts[0].Status {
			n++
		}
		line := partNames(parts[:n]) + ": " + parts[0].words()
		if n > 1 {
			line = partNames(parts[:n]) + ": " + statusWords[parts[0].Status]
		}
		strip.Text, parts = append(strip.Text, line), parts[n:]
	}
	return strip
}

// isPlain reports whether neighbouring parts with this status can be described together.
func isPlain(s store.Status) bool {
	return s == store.StatusPending || s == store.StatusCompleted || s == store.StatusCancelled
}

// partsSummary is "34%, 41/121 parts, 2 running on 2 hosts, 12:34 left".
func partsSummary(parts []partState, c current, task store.ID) string {
	if p, ok := report.FindParts(c.progress, task, parts[0].Stage); ok {
		text := fmt.Sprintf("%.0f%%, %s, %s", p.Percent, p.Counts(), p.Others())
		if p.Speed > 0 {
			text += fmt.Sprintf(", %.2f×", p.Speed)
		}
		if p.ETA > 0 {
			text += ", " + formatClock(p.ETA) + " left"
		}
		return text
	}
	return count(countStatus(parts, store.StatusCompleted), "part") + " completed"
}

func countStatus(parts []partState, s store.Status) (n int) {
	for _, p := range parts {
		if p.Status == s {
			n++
		}
	}
	return n
}

func partNames(parts []partState) string {
	first, last := parts[0].Part, parts[len(parts)-1].Part
	if first == last {
		return fmt.Sprintf("part %d", first)
	}
	return fmt.Sprintf("parts %d to %d", first, last)
}

// partOrder are the statuses of parts, the one that matters most first.
var partOrder = []store.Status{
	store.StatusDead, store.StatusFailed, store.StatusInProgress, store.StatusCancelled, store.StatusPending, store.StatusCompleted,
}

// newPartCell returns the cell of a part, or of several.
func newPartCell(parts []partState) partCell {
	c := partCell{ID: fmt.Sprintf("p-%s-%d", parts[0].Stage, parts[0].Part), Fill: -1}
	done := 0.0
	for _, p := range parts {
		done += p.percent / float64(len(parts))
	}
	var counts []string
	for _, s := range partOrder {
		if n := countStatus(parts, s); n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, statusWords[s]))
			if c.State == "" {
				c.State = string(s)
			}
		}
	}
	c.Title = partNames(parts) + ": " + parts[0].words()
	if len(parts) > 1 {
		c.Title = partNames(parts) + ": " + strings.Join(counts, ", ")
	}
	switch {
	case c.State == string(store.StatusInProgress):
		c.Fill = done
	case done > 0 && (c.State == string(store.StatusPending) || c.State == string(store.StatusCancelled)):
		c.Fill = done // some of several are completed
	}
	return c
}

// addPartStrips adds the strips. Their cells are a list, so that an update has only those that changed.
func addPartStrips(r *fragmentRenderer, strips []partStrip) {
	r.add("parts-summary", "", "parts-summary", strips)
	for _, s := range strips {
		if len(strips) > 1 {
			r.add("p-"+s.Stage, "parts", "parts-of", s)
		}
		for _, c := range s.Cells {
			r.add(c.ID, "parts", "part", c)
		}
	}
	r.add("parts-text", "", "parts-text", strips)
}

// foldedParts says of the completed attempts at the parts of a stage which workers made them.
type foldedParts struct {
	Stage, Command string
	N              int
	Workers        []string
}

func foldParts(task store.ID, stage string, completed []int, history []store.Attempt) foldedParts {
	f := foldedParts{Stage: stage, N: len(completed), Command: shellCommand("show", "--parts", task.String())}
	parts, took := make(map[string]int), make(map[string]time.Duration)
	var workers []string
	for _, i := range completed {
		a := history[i]
		name := workerText(a.WorkerName, a.Host)
		if parts[name] == 0 {
			workers = append(workers, name)
		}
		parts[name]++
		took[name] += a.FinishedAt.Sub(a.StartedAt)
	}
	for _, name := range workers {
		mean := took[name] / time.Duration(parts[name])
		f.Workers = append(f.Workers, fmt.Sprintf("%s on %s, %s each on average", count(parts[name], "part"), name, formatDuration(mean)))
	}
	return f
}
