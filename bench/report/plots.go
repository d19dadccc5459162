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

// plots draws what there are figures for.
func plots(r *result.Result) []drawing {
	var all []drawing
	for _, draw := range []func(*result.Result) (drawing, bool){latency, throughput, rates, growth, wakeups, waitingOrPolling} {
		if d, ok := draw(r); ok {
			all = append(all, d)
		}
	}
	return all
}

func idleFigures(r *result.Result) []*result.Figure {
	return slices.DeleteFunc(r.ForScenario("e2e"), func(f *result.Figure) bool {
		return f.Case != "idle" || f.Median() <= 0
	})
}

// latency is one task's way on an idle system.
func latency(r *result.Result) (drawing, bool) {
	figures := idleFigures(r)
	if len(figures) == 0 {
		return drawing{}, false
	}
	slices.SortStableFunc(figures, func(a, b *result.Figure) int { return cmp.Compare(a.Median(), b.Median()) })
	var b bars
	for _, f := range figures {
		v := f.Median()
		row := bar{name: label(f.System), paint: paintOf(f.System), value: v, label: formatWithUnit(v, f.Unit)}
		if isPercentileSupported(f, 99) {
			row.low, row.high = v, f.Percentile(99).Median
		}
		b.all = append(b.all, row)
	}
	if f, ok := idle(r, "commits5", floor); ok {
		b.line = mark{f.Median(), "five dependent commits: " + formatWithUnit(f.Median(), f.Unit)}
	}
	return barPlot("latency", "One task through five stages, on an idle system",
		"From before the call that submits it until its last stage is completed: median, and a thin line to p99. Shorter is better.",
		"ms", true, b), true
}

// throughput is how fast waiting tasks are drained.
func throughput(r *result.Result) (drawing, bool) {
	figures := r.ForScenario("drain")
	var b bars
	for _, name := range contestants(figures) {
		f, ok := largest(r, "drain", name, "tasks")
		if !ok || f.Median() <= 0 {
			continue
		}
		s := f.Percentile(50)
		b.all = append(b.all, bar{name: label(name), paint: paintOf(name), value: s.Median, low: s.Min, high: s.Max,
			label: fmt.Sprintf("%s (of %s)", formatWithUnit(s.Median, f.Unit), counted(f.Case[len("tasks="):]))})
	}
	if len(b.all) == 0 {
		return drawing{}, false
	}
	slices.SortStableFunc(b.all, func(x, y bar) int { return cmp.Compare(y.value, x.value) })
	return barPlot("throughput", "Waiting tasks drained, five stages each",
		"Tasks per second: median of the rounds, and a thin line over their range. Longer is better.", "tasks/s", true, b), true
}

// rates is latency under load.
func rates(r *result.Result) (drawing, bool) {
	names := contestants(r.ForScenario("rate"))
	p50, p99 := rateLines(r, names, 50), rateLines(r, names, 99)
	if len(p50) == 0 {
		return drawing{}, false
	}
	x, y := reach(slices.Concat(p50, p99))
	both := []panel{{heading: "p50", all: p50}, {heading: "p99", all: p99}}
	if len(p99) == 0 {
		both = both[:1]
	}
	for i := range both {
		p := bare()
		logarithmic(&p.X, "tasks/s", x[0], x[1])
		logarithmic(&p.Y, "ms", y[0], y[1])
		p.X.Label.Text = "tasks offered per second"
		both[i].plot = p
	}
	return panels("rates", "Latency at offered rates",
		"From a task's time of arrival, in an open loop, until its last stage is completed. × marks a rate that was not kept up with.",
		190, p50, both...), true
}

func rateLines(r *result.Result, names []string, p float64) []series {
	var all []series
	for _, name := range names {
		s := series{name: label(name), paint: paintOf(name), glyph: glyphs[name]}
		for _, step := range r.Steps("rate", name, "rate") {
			at := plotter.XY{X: step.Value, Y: step.Figure.Percentile(p).Median}
			if at.X <= 0 || at.Y <= 0 || !isPercentileSupported(step.Figure, p) {
				continue
			}
			s.points = append(s.points, at)
			if share, ok := kept(r, name, step.Case); ok && share < keepsUp {
				s.lost = append(s.lost, at)
			}
		}
		if len(s.points) > 0 {
			all = append(all, s)
		}
	}
	return all
}

// growth is what changes throughput.
func growth(r *result.Result) (drawing, bool) {
	var b bars
	group := func(heading string, figures []*result.Figure, name func(string) string) {
		if len(figures) < 2 {
			return
		}
		b.all = append(b.all, bar{name: heading})
		for _, f := range figures {
			s := f.Percentile(50)
			b.all = append(b.all, bar{name: name(f.Case), paint: paintOf(f.System), value: s.Median,
				low: s.Min, high: s.Max, label: formatWithUnit(s.Median, f.Unit)})
		}
	}
	group("processes", figures(r.Steps("processes", ours, "processes")), after("processes="))
	group("finished tasks", figures(r.Steps("grown", ours, "finished")), after("finished="))
	group("a snapshot elsewhere", of(r, "held", ours), caseLabel)
	if len(b.all) == 0 {
		return drawing{}, false
	}
	return barPlot("growth", "Cuelight's throughput, as things grow",
		"Tasks per second: median of the rounds, and a thin line over their range. Longer is better.", "tasks/s", false, b), true
}

func figures(steps []result.Step) []*result.Figure {
	all := make([]*result.Figure, len(steps))
	for i, s := range steps {
		all[i] = s.Figure
	}
	return all
}

func after(prefix string) func(string) string {
	return func(of string) string { return counted(of[len(prefix):]) }
}

// wakeups is how the hops are distributed.
func wakeups(r *result.Result) (drawing, bool) {
	const tooSlow = 50 // ms: the others would have no room beside it
	var all []series
	below, slow := "On an idle system. To another process: from its completion.", []string{}
	for _, f := range r.ForScenario("hop") {
		switch {
		case f.Case != "idle" && f.Case != "":
		case f.Median() > tooSlow:
			slow = append(slow, label(f.System))
		default:
			all = append(all, distribution(f, label(f.System)))
		}
	}
	if len(slow) > 0 {
		below += fmt.Sprintf(" Not shown, over %d ms: %d others.", tooSlow, len(slow))
	}
	if f, ok := idle(r, "hop_other", ours); ok {
		all = append(all, distribution(f, "Cuelight, to another process", 6, 3))
	}
	if f, ok := idle(r, "notify", floor); ok {
		all = append(all, distribution(f, "NOTIFY → LISTEN alone", 2, 2))
	}
	all = slices.DeleteFunc(all, func(s series) bool { return len(s.points) == 0 })
	if len(all) == 0 {
		return drawing{}, false
	}
	x, y := reach(all)
	p := bare()
	logarithmic(&p.X, "ms", x[0], x[1])
	p.Y.Tick.Marker = plot.TickerFunc(percent)
	p.Y.Min, p.Y.Max = 0, max(y[1], 2)
	p.Y.Label.Text = "share of the hops"
	p.X.Label.Text = "took so long at most"
	return panels("wakeups", "From the end of a stage's work until the next stage begins",
		below, 200, all, panel{plot: p, all: all}), true
}

// distribution is a figure's, as many points as can be seen.
func distribution(f *result.Figure, name string, dashes ...vg.Length) series {
	s := series{name: name, paint: paintOf(f.System), dashes: dashes}
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

// waitingOrPolling is what polling costs, on an axis that shows it.
func waitingOrPolling(r *result.Result) (drawing, bool) {
	var b bars
	for _, name := range []string{"polling_5s", "polling_1s", "river_default", ours} {
		if f, ok := idle(r, "e2e", name); ok {
			b.all = append(b.all, bar{name: label(name), paint: paintOf(name), value: f.Median(), label: formatWithUnit(f.Median(), f.Unit)})
		}
	}
	if len(b.all) < 2 || b.all[len(b.all)-1].name != label(ours) {
		return drawing{}, false
	}
	return barPlot("polling", "Waiting for a notification, and polling", "One task through five stages, on an idle system, as it passes: median.",
		"ms", false, b), true
}
