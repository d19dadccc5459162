package ui

import (
	"fmt"
	"slices"
	"time"
)

// scale says where a time is, with long times in which nothing happened left out.
type timeScale struct {
	segments []segment
	gaps     []gap
}

type segment struct {
	from, to time.Time
	x, width float64
}

func newTimeScale(lanes []ganttLane, from time.Time) timeScale {
	var busy []segment
	for _, lane := range lanes {
		for _, b := range lane.Bars {
			busy = append(busy, segment{from: b.from, to: b.to})
		}
	}
	slices.SortFunc(busy, func(a, b segment) int { return a.from.Compare(b.from) })
	merged := []segment{{from: from, to: from}}
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
		last.to = laterOf(last.to, p.to)
	}
	var total time.Duration
	for _, p := range merged {
		total += p.to.Sub(p.from)
	}
	room := max(100-gapWidth*float64(len(merged)-1), 10)
	s := timeScale{segments: merged}
	x := 0.0
	for i := range merged {
		p := &merged[i]
		if i > 0 {
			s.gaps = append(s.gaps, gap{X: percent(x + gapWidth/2), Text: formatDuration(p.from.Sub(merged[i-1].to)) + " without activity", from: merged[i-1].to})
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

func (s timeScale) end() time.Time { return s.segments[len(s.segments)-1].to }

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

var tickSteps = []time.Duration{
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second,
	10 * time.Second, 20 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute,
	20 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
	48 * time.Hour, 168 * time.Hour,
}

// ticks are round times since the beginning of each piece, some five in all.
func (s timeScale) ticks() []tick {
	var total time.Duration
	for _, p := range s.segments {
		total += p.to.Sub(p.from)
	}
	step := tickSteps[len(tickSteps)-1]
	for _, d := range tickSteps {
		if total <= 6*d {
			step = d
			break
		}
	}
	var out []tick
	for i, p := range s.segments {
		if i > 0 && p.width < 12 {
			continue
		}
		for d := time.Duration(0); d <= p.to.Sub(p.from); d += step {
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
			out = append(out, tick{percent(x), text, anchor})
			if len(out) > 60 {
				return out
			}
		}
	}
	return out
}

// round is a duration that is a step, or several.
func tickText(d time.Duration) string {
	switch {
	case d%(24*time.Hour) == 0:
		return fmt.Sprintf("%d d", d/(24*time.Hour))
	case d%time.Hour == 0:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d%time.Minute == 0 && d < time.Hour:
		return fmt.Sprintf("%d m", d/time.Minute)
	case d > time.Minute:
		return formatDuration(d)
	case d >= time.Second:
		return fmt.Sprintf("%g s", d.Seconds())
	}
	return fmt.Sprintf("%d ms", d/time.Millisecond)
}
