package ui

import (
	"fmt"
	"slices"
	"time"

	"github.com/cuelight/cuelight/store"
)

// gantt is the chart of a task's waits and attempts, with a lane per stage, and below a
// stage in several parts a lane for each host of them. X and Width are percents of its
// width.
type gantt struct {
	Lanes  []ganttLane
	Ticks  []tick
	Gaps   []gap
	Height int
	Label  string
	Text   []string // the same as text
}

type ganttLane struct {
	Stage        string
	Host         string // of the parts of the stage
	Y, Separator int
	Bars         []bar
}

// bar is a period of a stage. Its Kind is wait (ready), rest (waiting to retry), running,
// or the outcome of an attempt.
type bar struct {
	Kind, X, Width, Title string

	from, to time.Time
}

type tick struct{ X, Text, Anchor string }

// gap is a long period without activity that the chart omits.
type gap struct {
	X, Text string

	from time.Time
}

const (
	laneHeight = 28
	axisHeight = 22
	gapWidth   = 4.0 // percent
)

// drawGantt draws a task as it is now.
func (l pipelineLayout) drawGantt(t store.Task, history []store.Attempt, c current, now time.Time) gantt {
	var g gantt
	for i, name := range l.stages {
		lane := ganttLane{Stage: name, Bars: l.bars(t, i, history, c, now)}
		g.Lanes = append(g.Lanes, addParts(lane, partBars(name, history, c, now))...)
	}
	for i := range g.Lanes {
		g.Lanes[i].Separator = axisHeight + i*laneHeight
		g.Lanes[i].Y = g.Lanes[i].Separator + 6
	}
	g.Height = axisHeight + laneHeight*len(g.Lanes)
	s := newTimeScale(g.Lanes, t.CreatedAt)
	for _, lane := range g.Lanes {
		for j := range lane.Bars {
			b := &lane.Bars[j]
			from, to := s.position(b.from), s.position(b.to)
			b.X, b.Width = percent(from), percent(max(to-from, 0.25))
		}
	}
	g.Ticks, g.Gaps = s.ticks(), s.gaps
	g.Text = g.asText()
	g.Label = "Waits and attempts from " + absolute(t.CreatedAt) + " to " + absolute(s.end())
	return g
}

// asText returns the titles of all bars and gaps in order of time.
func (g gantt) asText() (lines []string) {
	type event struct {
		at   time.Time
		text string
	}
	var events []event
	for _, l := range g.Lanes {
		for _, b := range l.Bars {
			events = append(events, event{b.from, b.Title})
		}
	}
	for _, gap := range g.Gaps {
		events = append(events, event{gap.from, gap.Text})
	}
	slices.SortStableFunc(events, func(a, b event) int { return a.at.Compare(b.at) })
	for _, e := range events {
		lines = append(lines, e.text)
	}
	return lines
}

func percent(x float64) string { return fmt.Sprintf("%.2f%%", x) }

// ganttBars collects the bars of a stage.
type ganttBars struct {
	stage string
	bars  []bar
}

func (g *ganttBars) add(kind string, from, to time.Time, what string) {
	if !from.IsZero() && to.After(from) {
		title := g.stage + ": " + what + " for " + formatDuration(to.Sub(from))
		g.bars = append(g.bars, bar{Kind: kind, from: from, to: to, Title: title})
	}
}

// addWait adds the time before an attempt, or before now: the delay of a retry after the
// last attempt, if any, and the time that the stage was ready.
func (g *ganttBars) addWait(until time.Time, last *store.Attempt, ready time.Time, what string) {
	if last == nil {
		g.add("wait", ready, until, what)
		return
	}
	due := last.FinishedAt
	switch at := last.RetryAt; {
	case at != nil && at.After(until):
		due = until
	case at != nil && at.After(due):
		due = *at
	}
	g.add("rest", last.FinishedAt, due, "waited to retry")
	g.add("wait", due, until, what)
}

// bars returns the bars of a stage.
func (l pipelineLayout) bars(t store.Task, stage int, history []store.Attempt, c current, now time.Time) []bar {
	g := ganttBars{stage: l.stages[stage]}
	var last *store.Attempt // if it leads to another one by itself
	for _, a := range history {
		if a.Stage != g.stage || a.Part > 0 {
			continue // the parts have lanes of their own
		}
		g.addWait(a.StartedAt, last, l.readyTime(t, stage, history, a.StartedAt, g.bars), "was ready")
		g.bars = append(g.bars, bar{
			Kind: a.Outcome, from: a.StartedAt, to: a.FinishedAt,
			Title: fmt.Sprintf("%s, attempt %d: %s after %s on %s", a.Stage, a.Attempt, a.Outcome,
				formatDuration(a.FinishedAt.Sub(a.StartedAt)), workerText(a.WorkerName, a.Host)),
		})
		// The time of a retry of a dead or cancelled stage is not known.
		if last = nil; a.RetryAt != nil || a.Outcome == "released" {
			last = &a
		}
	}
	s := t.Stages[stage]
	switch s.Status {
	case store.StatusCompleted, store.StatusDead, store.StatusCancelled, store.StatusDivided:
		return g.bars
	}
	if !l.isReady(t, stage) {
		return g.bars
	}
	ready := l.readyTime(t, stage, history, now, g.bars)
	if s.Status != store.StatusInProgress || s.LockedAt == nil {
		g.addWait(now, last, ready, "has been ready")
		return g.bars
	}
	g.addWait(*s.LockedAt, last, ready, "was ready")
	r, ok := c.running(s.Token)
	title := fmt.Sprintf("%s, attempt %d: in progress for %s", s.Name, s.Attempts, formatDuration(now.Sub(*s.LockedAt)))
	if text := progressText(r); ok && text != "" {
		title += ", " + text
	}
	return append(g.bars, bar{Kind: "running", from: *s.LockedAt, to: laterOf(now, *s.LockedAt), Title: title})
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// maxExchange is the maximum duration of a transaction that claims.
const maxExchange = 10 * time.Second

// readyTime returns when a stage became ready: when the last stage that it needs was
// completed before a time. It returns the zero time if the stage has a later bar. A stage
// that is claimed in the transaction that completes what it needs has the start of that
// transaction as its start, shortly before the completion.
func (l pipelineLayout) readyTime(
	t store.Task, stage int, history []store.Attempt, before time.Time, bars []bar) time.Time {
	ready := t.CreatedAt
	for _, need := range l.needs[stage] {
		for _, a := range history {
			if a.Stage == l.stages[need] && a.Part == 0 && a.Outcome == "completed" && a.FinishedAt.Sub(before) < maxExchange {
				ready = laterOf(ready, a.FinishedAt)
			}
		}
	}
	if len(bars) > 0 && !bars[len(bars)-1].to.Before(ready) {
		return time.Time{}
	}
	return ready
}
