package report

import (
	"math"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
)

// tickLabel writes a number with its unit without useless digits.
func tickLabel(v float64, unit string) string {
	switch {
	case v == 0:
		return "0"
	case unit == "ms" && v >= 1000:
		v, unit = v/1000, "s"
	case unit == "ms" && v < 1:
		v, unit = v*1000, "µs"
	case unit == "tasks/s" && v >= 1e3:
		return strconv.FormatFloat(v/1000, 'f', -1, 64) + "k"
	case unit == "tasks/s":
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strings.TrimSpace(strconv.FormatFloat(v, 'g', 6, 64) + " " + unit)
}

// logTicks returns the ticks of a logarithmic axis: powers of ten, and also 2 and 5 if there
// are less than two decades.
func logTicks(unit string) plot.TickerFunc {
	return func(low, high float64) (ticks []plot.Tick) {
		steps := []float64{1}
		if math.Log10(high/low) < 2 {
			steps = []float64{1, 2, 5}
		}
		for e := math.Floor(math.Log10(low)); e <= math.Log10(high); e++ {
			for _, s := range steps {
				if v := s * math.Pow(10, e); v >= low*0.999 && v <= high*1.001 {
					ticks = append(ticks, plot.Tick{Value: v, Label: tickLabel(v, unit)})
				}
			}
		}
		return ticks
	}
}

// linearTicks returns the ticks of an axis from 0: some four at round numbers.
func linearTicks(unit string) plot.TickerFunc {
	return func(low, high float64) (ticks []plot.Tick) {
		step := math.Pow(10, math.Floor(math.Log10(high/2)))
		for _, s := range []float64{5, 2} {
			if high/(step*s) >= 3 {
				step *= s
				break
			}
		}
		for i := math.Ceil(low / step); i*step <= high; i++ {
			ticks = append(ticks, plot.Tick{Value: i * step, Label: tickLabel(i*step, unit)})
		}
		return ticks
	}
}

// percentileTicks returns the ticks of an axis on which x stands for the share 1-10^-x.
func percentileTicks(_, high float64) []plot.Tick {
	ticks := []plot.Tick{{Value: 0, Label: "0 %"}, {Value: math.Log10(2), Label: "50 %"}}
	for nines, label := range []string{"90 %", "99 %", "99.9 %", "99.99 %"} {
		if x := float64(nines + 1); x <= high {
			ticks = append(ticks, plot.Tick{Value: x, Label: label})
		}
	}
	return ticks
}

// newGrid returns vertical lines at the ticks, and optionally horizontal ones.
func newGrid(horizontal bool) *plotter.Grid {
	g := &plotter.Grid{Vertical: stroke(faint, 0.75)}
	if horizontal {
		g.Horizontal = g.Vertical
	}
	return g
}

// setLogarithmic sets an axis to a range of values, with a margin for two ticks at least.
func setLogarithmic(a *plot.Axis, unit string, low, high float64) {
	a.Scale = plot.LogScale{}
	a.Tick.Marker = logTicks(unit)
	margin := 1.15
	if high/low < 10 {
		margin = 1.5
	}
	a.Min, a.Max = low/margin, high*margin
}
