package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/cuelight/cuelight/bench/result"
)

// plots draws all plots that have figures.
func plots(r *result.Result) (all []drawing) {
	for _, plot := range []func(*result.Result) (drawing, bool){
		plotLatency, plotThroughput, plotRates, plotGrowth, plotHops, plotPolling,
	} {
		if d, ok := plot(r); ok {
			all = append(all, d)
		}
	}
	return all
}

// newBar returns a bar of the median, without a thin line.
func newBar(f *result.Figure) bar {
	v := f.Median()
	return bar{name: label(f.System), paint: styleOf(f.System).paint, value: v, label: formatWithUnit(v, f.Unit)}
}

// newRangeBar returns a bar of the median with a thin line over the range of the rounds.
func newRangeBar(f *result.Figure) bar {
	b, s := newBar(f), f.Percentile(50)
	b.low, b.high = s.Min, s.Max
	return b
}

// plotLatency shows one task on an idle system.
func plotLatency(r *result.Result) (drawing, bool) {
	var b bars
	for _, f := range r.ForScenario("e2e") {
		if f.Case != "idle" || f.Median() <= 0 {
			continue
		}
		row := newBar(f)
		if isPercentileSupported(f, 99) {
			row.low, row.high = row.value, f.Percentile(99).Median
		}
		b.all = append(b.all, row)
	}
	if len(b.all) == 0 {
		return drawing{}, false
	}
	slices.SortStableFunc(b.all, func(x, y bar) int { return cmp.Compare(x.value, y.value) })
	if f, ok := find(r, "commits5", floor, "idle"); ok {
		b.line = f.Median()
		b.lineLabel = "five dependent commits: " + formatWithUnit(b.line, f.Unit)
	}
	return b.draw("latency", "One task through five stages, on an idle system",
		"From before the call that submits it until its last stage is completed: median, and a thin line to p99. "+
			"Shorter is better.", "ms", true), true
}

// plotThroughput shows how fast waiting tasks are drained.
func plotThroughput(r *result.Result) (drawing, bool) {
	var b bars
	for _, name := range systemsOf(r.ForScenario("drain")) {
		f, ok := find(r, "drain", name, "tasks=max")
		if !ok || f.Median() <= 0 {
			continue
		}
		row := newRangeBar(f)
		row.label += fmt.Sprintf(" (of %s)", caseNumber(f.Case))
		b.all = append(b.all, row)
	}
	if len(b.all) == 0 {
		return drawing{}, false
	}
	slices.SortStableFunc(b.all, func(x, y bar) int { return cmp.Compare(y.value, x.value) })
	return b.draw("throughput", "Waiting tasks drained, five stages each",
		"Tasks per second: median of the rounds, and a thin line over their range. Longer is better.",
		"tasks/s", true), true
}

// plotRates shows latency under load.
func plotRates(r *result.Result) (drawing, bool) {
	p50, p99 := rateSeries(r, 50), rateSeries(r, 99)
	if len(p50) == 0 {
		return drawing{}, false
	}
	x, y := pointRange(slices.Concat(p50, p99))
	panels := []panel{{heading: "p50", all: p50}, {heading: "p99", all: p99}}
	if len(p99) == 0 {
		panels = panels[:1]
	}
	for i := range panels {
		p := newPlot()
		setLogarithmic(&p.X, "tasks/s", x[0], x[1])
		setLogarithmic(&p.Y, "ms", y[0], y[1])
		p.X.Label.Text = "tasks offered per second"
		panels[i].plot = p
	}
	return drawPanels("rates", "Latency at offered rates",
		"From a task's planned arrival, in an open loop, until its last stage is completed. "+
			"× marks a rate that was not sustained.",
		190, p50, panels...), true
}

func rateSeries(r *result.Result, percentile float64) (all []series) {
	for _, name := range systemsOf(r.ForScenario("rate")) {
		style := styleOf(name)
		s := series{name: style.label, paint: style.paint, glyph: style.glyph}
		for _, step := range r.Steps("rate", name, "rate") {
			at := plotter.XY{X: step.Value, Y: step.Figure.Percentile(percentile).Median}
			if at.X <= 0 || at.Y <= 0 || !isPercentileSupported(step.Figure, percentile) {
				continue
			}
			s.points = append(s.points, at)
			if !isSustained(r, name, step.Case) {
				s.crossed = append(s.crossed, at)
			}
		}
		if len(s.points) > 0 {
			all = append(all, s)
		}
	}
	return all
}

// plotGrowth shows what changes throughput.
func plotGrowth(r *result.Result) (drawing, bool) {
	var b bars
	addGroup := func(heading string, name func(string) string, figures []*result.Figure) {
		if len(figures) < 2 {
			return
		}
		b.all = append(b.all, bar{name: heading})
		for _, f := range figures {
			row := newRangeBar(f)
			row.name = name(f.Case)
			b.all = append(b.all, row)
		}
	}
	steps := func(scenario, parameter string) (figures []*result.Figure) {
		for _, s := range r.Steps(scenario, cuelightSystem, parameter) {
			figures = append(figures, s.Figure)
		}
		return figures
	}
	addGroup("processes", caseNumber, steps("processes", "processes"))
	addGroup("finished tasks", caseNumber, steps("grown", "finished"))
	if len(b.all) == 0 {
		return drawing{}, false
	}
	return b.draw("growth", "Cuelight's throughput with more processes and finished tasks",
		"Tasks per second: median of the rounds, and a thin line over their range. Longer is better.",
		"tasks/s", false), true
}

// plotHops shows the distribution of the hops.
func plotHops(r *result.Result) (drawing, bool) {
	const limit = 50 // ms: slower systems would leave no room for the others
	var all []series
	subtitle, slow := "On an idle system. To another process: from its completion.", 0
	for _, f := range r.ForScenario("hop") {
		switch {
		case f.Case != "idle" && f.Case != "":
		case f.Median() > limit:
			slow++
		default:
			all = append(all, distribution(f, label(f.System)))
		}
	}
	if slow > 0 {
		subtitle += fmt.Sprintf(" Not shown, over %d ms: %d others.", limit, slow)
	}
	if f, ok := find(r, "hop_other", cuelightSystem, "idle"); ok {
		all = append(all, distribution(f, "Cuelight, to another process", 6, 3))
	}
	if f, ok := find(r, "notify", floor, "idle"); ok {
		all = append(all, distribution(f, "NOTIFY → LISTEN alone", 2, 2))
	}
	all = slices.DeleteFunc(all, func(s series) bool { return len(s.points) == 0 })
	if len(all) == 0 {
		return drawing{}, false
	}
	x, y := pointRange(all)
	p := newPlot()
	setLogarithmic(&p.X, "ms", x[0], x[1])
	p.Y.Tick.Marker = plot.TickerFunc(percentileTicks)
	p.Y.Min, p.Y.Max = 0, max(y[1], 2)
	p.Y.Label.Text = "share of the hops"
	p.X.Label.Text = "took at most"
	return drawPanels("wakeups", "From the end of a stage's work until the next stage starts",
		subtitle, 200, all, panel{plot: p, all: all}), true
}

// distribution returns the percentiles of a figure, as many points as are visible.
func distribution(f *result.Figure, name string, dashes ...vg.Length) series {
	s := series{name: name, paint: styleOf(f.System).paint, dashes: dashes}
	n := 0
	for _, round := range f.Rounds {
		n = max(n, len(round.Samples))
	}
	if n < 2 {
		return s
	}
	const points = 120
	top := math.Log10(float64(n))
	for i := range points + 1 {
		nines := top * float64(i) / points
		if v := f.Percentile(100 * (1 - math.Pow(10, -nines))).Median; v > 0 {
			s.points = append(s.points, plotter.XY{X: v, Y: nines})
		}
	}
	return s
}

// plotPolling shows what polling costs, on a linear axis.
func plotPolling(r *result.Result) (drawing, bool) {
	var b bars
	for _, name := range []string{"polling_5s", "polling_1s", "river_default", cuelightSystem} {
		if f, ok := find(r, "e2e", name, "idle"); ok {
			b.all = append(b.all, newBar(f))
		}
	}
	if len(b.all) < 2 || b.all[len(b.all)-1].name != label(cuelightSystem) {
		return drawing{}, false
	}
	return b.draw("polling", "Notifications and polling",
		"One task through five stages, on an idle system: median.", "ms", false), true
}
