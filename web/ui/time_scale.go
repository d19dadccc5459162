package ui

import (
	"fmt"
	"slices"
	"time"
)

// timeScale maps times to positions. It omits long periods without activity.
type timeScale struct {
	segments []segment
	gaps     []gap
	total    time.Duration // of all segments
}

// segment is a period with activity.
type segment struct {
	from, to time.Time
	x, width float64
}

func newTimeScale(lanes []ganttLane, from time.Time) timeScale {
	var busy []segment
	var worked time.Duration
	for _, lane := range lanes {
		for _, b := range lane.Bars {
			busy = append(busy, segment{from: b.from, to: b.to})
			worked += b.to.Sub(b.from)
		}
	}
	slices.SortFunc(busy, func(a, b segment) int { return a.from.Compare(b.from) })
	s := timeScale{segments: []segment{{from: from, to: from}}}
	for _, p := range busy {
		if last := &s.segments[len(s.segments)-1]; p.from.Sub(last.to) <= max(worked, time.Second) {
			last.to = laterOf(last.to, p.to)
		} else {
			s.segments = append(s.segments, p)
		}
	}
	for _, p := range s.segments {
		s.total += p.to.Sub(p.from)
	}
	s.place()
	return s
}

// place sets the positions of the segments, with a gap between two.
func (s *timeScale) place() {
	width := max(100-gapWidth*float64(len(s.segments)-1), 10)
	x := 0.0
	for i := range s.segments {
		p := &s.segments[i]
		if i > 0 {
			end := s.segments[i-1].to
			text := formatDuration(p.from.Sub(end)) + " without activity"
			s.gaps = append(s.gaps, gap{X: percent(x + gapWidth/2), Text: text, from: end})
			x += gapWidth
		}
		p.x, p.width = x, width
		if s.total > 0 {
			p.width = width * float64(p.to.Sub(p.from)) / float64(s.total)
		}
		x += p.width
	}
}

func (s timeScale) end() time.Time { return s.segments[len(s.segments)-1].to }

// position returns where a time is, in percent.
func (s timeScale) position(t time.Time) float64 {
	for _, p := range s.segments {
		if !t.After(p.to) {
			if t.Before(p.from) || p.to.Equal(p.from) {
				return p.x
			}
			return p.x + p.width*float64(t.Sub(p.from))/float64(p.to.Sub(p.from))
		}
	}
	last := s.segments[len(s.segments)-1]
	return last.x + last.width
}

const (
	millisecond = time.Millisecond
	day         = 24 * time.Hour
)

var tickSteps = []time.Duration{
	millisecond, 2 * millisecond, 5 * millisecond, 10 * millisecond, 20 * millisecond, 50 * millisecond, 100 * millisecond,
	200 * millisecond, 500 * millisecond, time.Second, 2 * time.Second, 5 * time.Second,
	10 * time.Second, 20 * time.Second,
	30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour, 12 * time.Hour, day, 2 * day, 7 * day,
}

// ticks returns round times since the start of each segment, about five in all.
func (s timeScale) ticks() (ticks []tick) {
	const maxTicks = 60 // for a very long time
	step := tickSteps[len(tickSteps)-1]
	if i := slices.IndexFunc(tickSteps, func(d time.Duration) bool { return s.total <= 6*d }); i >= 0 {
		step = tickSteps[i]
	}
	for i, p := range s.segments {
		if i > 0 && p.width < 12 {
			continue
		}
		for d := time.Duration(0); d <= p.to.Sub(p.from) && len(ticks) <= maxTicks; d += step {
			x, text, anchor := s.position(p.from.Add(d)), "+"+tickText(d), "middle"
			if d == 0 {
				text, anchor = "submitted", "start"
				if i > 0 {
					text = p.from.UTC().Format("2 Jan 15:04 UTC")
				}
			}
			if x > 96 {
				anchor = "end"
			}
			ticks = append(ticks, tick{percent(x), text, anchor})
		}
	}
	return ticks
}

// tickText formats a multiple of a step.
func tickText(d time.Duration) string {
	switch {
	case d%day == 0:
		return fmt.Sprintf("%d d", d/day)
	case d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d%time.Minute == 0 && d < time.Hour:
		return fmt.Sprintf("%d m", d/time.Minute)
	case d > time.Minute:
		return formatDuration(d)
	case d >= time.Second:
		return fmt.Sprintf("%g s", d.Seconds())
	}
	return fmt.Sprintf("%d ms", d/millisecond)
}
