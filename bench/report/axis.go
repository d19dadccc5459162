package report

import (
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg/draw"
)

// tick is a number with its unit at an axis: no digits that say nothing.
func tick(v float64, unit string) string {
	switch {
	case v == 0:
		return "0"
	case unit == "ms" && v >= 1000:
		v, unit = v/1000, "s"
	case unit == "ms" && v < 1:
		v, unit = v*1000, "µs"
	case unit == "tasks/s":
		unit = ""
		if v >= 1e3 {
			v, unit = v/1000, "k"
		}
		return strconv.FormatFloat(v, 'f', -1, 64) + unit
	}
	return strings.TrimSpace(strconv.FormatFloat(v, 'g', 6, 64) + " " + unit)
}

// decades are the marks of a logarithmic axis: the powers of ten, and between
// them 2 and 5 where there are less than two decades.
func decades(unit string) plot.TickerFunc {
	return func(low, high float64) []plot.Tick {
		steps := []float64{1}
		if math.Log10(high/low) < 2 {
			steps = []float64{1, 2, 5}
		}
		var ticks []plot.Tick
		for e := math.Floor(math.Log10(low)); e <= math.Log10(high); e++ {
			for _, s := range steps {
				if v := s * math.Pow(10, e); v >= low*0.999 && v <= high*1.001 {
					ticks = append(ticks, plot.Tick{Value: v, Label: tick(v, unit)})
				}
			}
		}
		return ticks
	}
}

// even are those of a linear axis from 0: some four, at round numbers.
func even(unit string) plot.TickerFunc {
	return func(low, high float64) []plot.Tick {
		step := math.Pow(10, math.Floor(math.Log10(high/2)))
		for _, s := range []float64{5, 2} {
			if high/(step*s) >= 3 {
				step *= s
				break
			}
		}
		var ticks []plot.Tick
		for i := math.Ceil(low / step); i*step <= high; i++ {
			ticks = append(ticks, plot.Tick{Value: i * step, Label: tick(i*step, unit)})
		}
		return ticks
	}
}

// percent is an axis on which each nine takes as much room: of 1-10^-x.
func percent(_, high float64) []plot.Tick {
	ticks := []plot.Tick{{Value: 0, Label: "0 %"}, {Value: math.Log10(2), Label: "50 %"}}
	for nines, label := range []string{"90 %", "99 %", "99.9 %", "99.99 %"} {
		if at := float64(nines + 1); at <= high {
			ticks = append(ticks, plot.Tick{Value: at, Label: label})
		}
	}
	return ticks
}

// grid draws a faint line at each mark of an axis.
type grid struct{ x, y bool }

func (g grid) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	if g.x {
		for _, t := range p.X.Tick.Marker.Ticks(p.X.Min, p.X.Max) {
			c.StrokeLine2(stroke(faint, 0.75), x(t.Value), c.Min.Y, x(t.Value), c.Max.Y)
		}
	}
	if g.y {
		for _, t := range p.Y.Tick.Marker.Ticks(p.Y.Min, p.Y.Max) {
			c.StrokeLine2(stroke(faint, 0.75), c.Min.X, y(t.Value), c.Max.X, y(t.Value))
		}
	}
}

// logarithmic sets an axis to hold these values, with some room at the ends.
func logarithmic(a *plot.Axis, unit string, low, high float64) {
	a.Scale = plot.LogScale{}
	a.Tick.Marker = decades(unit)
	a.Min, a.Max = low/1.15, high*1.15
	if high/low < 10 { // room for two marks
		a.Min, a.Max = low/1.5, high*1.5
	}
}
