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
	Words  []string // all of it, for those who see no picture
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
type gap struct {
	X, Text string

	from time.Time
}

const (
	laneHeight = 28
	axisHeight = 22
	gapWidth   = 4.0 // percent
)

// drawGantt draws a task as it was at now.
func (l pipelineLayout) drawGantt(t store.Task, history []store.Attempt, running map[store.ID]store.Running, now time.Time) gantt {
	g := gantt{Height: axisHeight + laneHeight*len(l.stages)}
	for i, name := range l.stages {
		y := axisHeight + i*laneHeight
		g.Lanes = append(g.Lanes, ganttLane{
			Stage: name, Y: y + 6, TextY: y + 18, Separator: y, Bars: l.bars(t, i, history, running, now),
		})
	}
	s := newTimeScale(g.Lanes, t.CreatedAt)
	for i := range g.Lanes {
		for j := range g.Lanes[i].Bars {
			b := &g.Lanes[i].Bars[j]
			from, to := s.position(b.from), s.position(b.to)
			b.X, b.Width = percent(from), percent(max(to-from, 0.25))
		}
	}
	g.Ticks, g.Gaps = s.ticks(), s.gaps
	g.Words = g.asText()
	g.Label = "Waits and attempts from " + absolute(t.CreatedAt) + " to " + absolute(s.end())
	return g
}

// words tell of all bars, and of what is left out, in the order of time.
func (g gantt) asText() (words []string) {
	type said struct {
		at   time.Time
		text string
	}
	var all []said
	for _, l := range g.Lanes {
		for _, b := range l.Bars {
			all = append(all, said{b.from, b.Title})
		}
	}
	for _, gap := range g.Gaps {
		all = append(all, said{gap.from, gap.Text})
	}
	slices.SortStableFunc(all, func(a, b said) int { return a.at.Compare(b.at) })
	for _, s := range all {
		words = append(words, s.text)
	}
	return words
}

func percent(x float64) string { return fmt.Sprintf("%.2f%%", x) }

// ganttBars collects the bars of a stage.
type ganttBars struct {
	stage string
	bars  []bar
}

func (g *ganttBars) add(kind string, from, to time.Time, what string) {
	if !from.IsZero() && to.After(from) {
		g.bars = append(g.bars, bar{Kind: kind, from: from, to: to, Title: g.stage + ": " + what + " " + formatDuration(to.Sub(from))})
	}
}

// until is what there was between an attempt, if any, and the next, or now: the
// pause before a retry, and then the wait for somebody to take it.
func (g *ganttBars) addWait(next time.Time, last *store.Attempt, ready time.Time, waited string) {
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
	g.add("rest", last.FinishedAt, since, "waited to retry for")
	g.add("wait", since, next, waited)
}

// leads says whether an attempt is followed by another without anybody's doing. When
// one that was dead or cancelled was taken up again is not known.
func hasFollowUp(a store.Attempt) bool { return a.RetryAt != nil || a.Outcome == "released" }

// bars are those of one stage.
func (l pipelineLayout) bars(t store.Task, stage int, history []store.Attempt, running map[store.ID]store.Running, now time.Time) []bar {
	g := ganttBars{stage: l.stages[stage]}
	var last *store.Attempt // if there is to be another
	for _, a := range history {
		if a.Stage != g.stage {
			continue
		}
		g.addWait(a.StartedAt, last, l.readySince(t, stage, history, a.StartedAt, g.bars), "was ready for")
		g.bars = append(g.bars, bar{
			Kind: a.Outcome, from: a.StartedAt, to: a.FinishedAt,
			Title: fmt.Sprintf("%s, attempt %d: %s after %s on %s", a.Stage, a.Attempt, a.Outcome, formatDuration(a.FinishedAt.Sub(a.StartedAt)), printable(a.Host)),
		})
		if last = nil; hasFollowUp(a) {
			last = &a
		}
	}
	s := t.Stages[stage]
	if s.Status == store.StatusCompleted || s.Status == store.StatusDead || s.Status == store.StatusCancelled || !l.isReady(t, stage) {
		return g.bars
	}
	ready := l.readySince(t, stage, history, now, g.bars)
	if s.Status != store.StatusInProgress || s.LockedAt == nil {
		g.addWait(now, last, ready, "has been ready for")
		return g.bars
	}
	g.addWait(*s.LockedAt, last, ready, "was ready for")
	title := fmt.Sprintf("%s, attempt %d: in progress for %s %s", s.Name, s.Attempts, formatDuration(now.Sub(*s.LockedAt)), progressText(running[s.Token]))
	return append(g.bars, bar{Kind: "running", from: *s.LockedAt, to: laterOf(now, *s.LockedAt), Title: title})
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// turnAtMost is how long a transaction may take that claims.
const maxExchange = 10 * time.Second

// readyAt is since when a stage could be worked on, before a time: since the last
// of what it needs was completed. It is unknown where the stage was worked on since.
// A stage that was claimed with what it needs says that it began when that
// transaction did, which is a moment before that was completed.
func (l pipelineLayout) readySince(t store.Task, stage int, history []store.Attempt, before time.Time, had []bar) time.Time {
	ready := t.CreatedAt
	for _, need := range l.needs[stage] {
		for _, a := range history {
			if a.Stage == l.stages[need] && a.Outcome == "completed" && a.FinishedAt.Sub(before) < maxExchange {
				ready = laterOf(ready, a.FinishedAt)
			}
		}
	}
	if len(had) > 0 && !had[len(had)-1].to.Before(ready) {
		return time.Time{}
	}
	return ready
}
