package ui

import (
	"fmt"
	"slices"
	"time"

	"github.com/cuelight/cuelight/store"
)

// gantt is how a task spent its time: a lane per stage, with what it waited and
// what was worked on it. Places are percents of the width.
type gantt struct {
	Lanes  []ganttLane
	Ticks  []tick
	Gaps   []gap
	Height int
	Label  string
}

type ganttLane struct {
	Stage     string
	Y, TextY  int
	Bars      []bar
	Separator int
}

// bar is a stretch of time. Its Kind is wait, when the stage could have been worked
// on, rest, when that was not to be yet, running, or how an attempt ended.
type bar struct {
	Kind, X, Width, Title string

	from, to time.Time
}

type tick struct{ X, Text, Anchor string }

// gap is where a long time in which nothing happened is left out.
type gap struct{ X, Text string }

const (
	laneHeight = 28
	axisHeight = 22
	gapWidth   = 4.0 // percent
)

// drawGantt draws a task as it was at now.
func (l layout) drawGantt(t store.Task, history []store.Attempt, running map[store.ID]store.Running, now time.Time) gantt {
	g := gantt{Height: axisHeight + laneHeight*len(l.stages)}
	for i, name := range l.stages {
		y := axisHeight + i*laneHeight
		g.Lanes = append(g.Lanes, ganttLane{
			Stage: name, Y: y + 6, TextY: y + 18, Separator: y, Bars: l.bars(t, i, history, running, now),
		})
	}
	s := newScale(g.Lanes, t.CreatedAt)
	for i := range g.Lanes {
		for j := range g.Lanes[i].Bars {
			b := &g.Lanes[i].Bars[j]
			from, to := s.at(b.from), s.at(b.to)
			b.X, b.Width = percent(from), percent(max(to-from, 0.25))
		}
	}
	g.Ticks, g.Gaps = s.ticks(), s.gaps
	g.Label = "How the time was spent, from " + absolute(t.CreatedAt) + " to " + absolute(s.end())
	return g
}

func percent(x float64) string { return fmt.Sprintf("%.2f%%", x) }

// ganttBars collects the bars of a stage.
type ganttBars struct {
	stage string
	bars  []bar
}

func (g *ganttBars) add(kind string, from, to time.Time, what string) {
	if !from.IsZero() && to.After(from) {
		g.bars = append(g.bars, bar{Kind: kind, from: from, to: to, Title: g.stage + ": " + what + " " + span(to.Sub(from))})
	}
}

// until is what there was between an attempt, if any, and the next, or now: the
// pause before a retry, and then the wait for somebody to take it.
func (g *ganttBars) until(next time.Time, last *store.Attempt, ready time.Time, waited string) {
	if last == nil {
		g.add("wait", ready, next, waited)
		return
	}
	since := last.FinishedAt
	switch at := last.RetryAt; {
	case at != nil && at.After(next):
		since = next
	case at != nil && at.After(since):
		since = *at
	}
	g.add("rest", last.FinishedAt, since, "was not to be tried again for")
	g.add("wait", since, next, waited)
}

// leads says whether an attempt is followed by another without anybody's doing. When
// one that was dead or cancelled was taken up again is not known.
func leads(a store.Attempt) bool { return a.RetryAt != nil || a.Outcome == "released" }

// bars are those of one stage.
func (l layout) bars(t store.Task, stage int, history []store.Attempt, running map[store.ID]store.Running, now time.Time) []bar {
	g := ganttBars{stage: l.stages[stage]}
	var last *store.Attempt // if there is to be another
	for _, a := range history {
		if a.Stage != g.stage {
			continue
		}
		g.until(a.StartedAt, last, l.readyAt(t, stage, history, a.StartedAt, g.bars), "waited")
		g.bars = append(g.bars, bar{
			Kind: a.Outcome, from: a.StartedAt, to: a.FinishedAt,
			Title: fmt.Sprintf("%s, attempt %d: %s after %s on %s", a.Stage, a.Attempt, a.Outcome, span(a.FinishedAt.Sub(a.StartedAt)), printable(a.Host)),
		})
		if last = nil; leads(a) {
			last = &a
		}
	}
	s := t.Stages[stage]
	if s.Status == store.StatusCompleted || s.Status == store.StatusDead || s.Status == store.StatusCancelled || !l.open(t, stage) {
		return g.bars
	}
	ready := l.readyAt(t, stage, history, now, g.bars)
	if s.Status != store.StatusInProgress || s.LockedAt == nil {
		g.until(now, last, ready, "has been waiting for")
		return g.bars
	}
	g.until(*s.LockedAt, last, ready, "waited")
	title := fmt.Sprintf("%s, attempt %d: running for %s %s", s.Name, s.Attempts, span(now.Sub(*s.LockedAt)), progress(running[s.Token]))
	return append(g.bars, bar{Kind: "running", from: *s.LockedAt, to: later(now, *s.LockedAt), Title: title})
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// turnAtMost is how long a transaction may take that claims.
const turnAtMost = 10 * time.Second

// readyAt is since when a stage could be worked on, before a time: since the last
// of what it needs was completed. It is unknown where the stage was worked on since.
// A stage that was claimed with what it needs says that it began when that
// transaction did, which is a moment before that was completed.
func (l layout) readyAt(t store.Task, stage int, history []store.Attempt, before time.Time, had []bar) time.Time {
	ready := t.CreatedAt
	for _, need := range l.needs[stage] {
		for _, a := range history {
			if a.Stage == l.stages[need] && a.Outcome == "completed" && a.FinishedAt.Sub(before) < turnAtMost {
				ready = later(ready, a.FinishedAt)
			}
		}
	}
	if len(had) > 0 && !had[len(had)-1].to.Before(ready) {
		return time.Time{}
	}
	return ready
}

// scale says where a time is, with long times in which nothing happened left out.
type scale struct {
	pieces []piece
	gaps   []gap
}

type piece struct {
	from, to time.Time
	x, width float64
}

func newScale(lanes []ganttLane, from time.Time) scale {
	var busy []piece
	for _, lane := range lanes {
		for _, b := range lane.Bars {
			busy = append(busy, piece{from: b.from, to: b.to})
		}
	}
	slices.SortFunc(busy, func(a, b piece) int { return a.from.Compare(b.from) })
	merged := []piece{{from: from, to: from}}
	var worked time.Duration
	for _, p := range busy {
		worked += p.to.Sub(p.from)
	}
	for _, p := range busy {
		last := &merged[len(merged)-1]
		if p.from.Sub(last.to) > max(worked, time.Second) {
			merged = append(merged, p)
			continue
		}
		last.to = later(last.to, p.to)
	}
	var total time.Duration
	for _, p := range merged {
		total += p.to.Sub(p.from)
	}
	room := max(100-gapWidth*float64(len(merged)-1), 10)
	s := scale{pieces: merged}
	x := 0.0
	for i := range merged {
		p := &merged[i]
		if i > 0 {
			s.gaps = append(s.gaps, gap{X: percent(x + gapWidth/2), Text: span(p.from.Sub(merged[i-1].to)) + " left out"})
			x += gapWidth
		}
		p.x, p.width = x, room
		if total > 0 {
			p.width = room * float64(p.to.Sub(p.from)) / float64(total)
		}
		x += p.width
	}
	return s
}

func (s scale) end() time.Time { return s.pieces[len(s.pieces)-1].to }

func (s scale) at(t time.Time) float64 {
	for _, p := range s.pieces {
		if !t.After(p.to) {
			if t.Before(p.from) || p.to.Equal(p.from) {
				return p.x
			}
			return p.x + p.width*float64(t.Sub(p.from))/float64(p.to.Sub(p.from))
		}
	}
	last := s.pieces[len(s.pieces)-1]
	return last.x + last.width
}

var steps = []time.Duration{
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second,
	10 * time.Second, 20 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute,
	20 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
	48 * time.Hour, 168 * time.Hour,
}

// ticks are round times since the beginning of each piece, some five in all.
func (s scale) ticks() []tick {
	var total time.Duration
	for _, p := range s.pieces {
		total += p.to.Sub(p.from)
	}
	step := steps[len(steps)-1]
	for _, d := range steps {
		if total <= 6*d {
			step = d
			break
		}
	}
	var out []tick
	for i, p := range s.pieces {
		if i > 0 && p.width < 12 {
			continue
		}
		for d := time.Duration(0); d <= p.to.Sub(p.from); d += step {
			x, text, anchor := s.at(p.from.Add(d)), "+"+round(d), "middle"
			if d == 0 {
				text, anchor = "submitted", "start"
				if i > 0 {
					text = p.from.UTC().Format("2 Jan 15:04 UTC")
				}
			}
			if x > 96 {
				anchor = "end"
			}
			out = append(out, tick{percent(x), text, anchor})
			if len(out) > 60 {
				return out
			}
		}
	}
	return out
}

// round is a duration that is a step, or several.
func round(d time.Duration) string {
	switch {
	case d%(24*time.Hour) == 0:
		return fmt.Sprintf("%d d", d/(24*time.Hour))
	case d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d%time.Minute == 0 && d < time.Hour:
		return fmt.Sprintf("%d m", d/time.Minute)
	case d > time.Minute:
		return span(d)
	case d >= time.Second:
		return fmt.Sprintf("%g s", d.Seconds())
	}
	return fmt.Sprintf("%d ms", d/time.Millisecond)
}
