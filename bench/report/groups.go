package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cuelight/cuelight/bench/result"
)

// group is a part of the report: scenarios that belong together.
type group struct {
	title     string
	about     string
	scenarios []string
	of        func(*result.Figure) bool // nil for all
	tables    func(*page, *result.Result, group)
}

// groups are what is measured, in the order of the benchmark's plan.
var groups = []group{
	{title: "Floors", scenarios: []string{"commit", "commits5", "notify"},
		about: "What PostgreSQL takes for it on this machine, without any system around it. Idle is with a random pause of " +
			"5–50 ms before each, after which everything has gone to sleep."},
	{title: "Wake-up", scenarios: []string{"wake_submit", "hop", "hop_commit", "hop_other"},
		about: "How long until a stage begins that can begin."},
	{title: "End to end", scenarios: []string{"e2e"}, of: not("polling_"), tables: both,
		about: "From before the call that submits a task until its last stage is completed; the stages do nothing."},
	{title: "Throughput", scenarios: []string{"drain", "processes", "work20ms", "order"},
		about: "Waiting tasks, five stages each, from the first stage's beginning to the last one's completion. " +
			"With 20 ms of work per stage: the share of what would be done with all slots busy all the time. " +
			"Behind one slot: of equal tasks, the most that began the stage before one that was submitted earlier."},
	{title: "Growth", scenarios: []string{"grown", "held", "size", "bulk"}, about: "The same in a table that has grown, and how much it grows."},
	{title: "Idle cost, and notifications", scenarios: []string{"idle_daemon", "notifies"}},
	{title: "Polling, the way it was", scenarios: []string{"e2e"}, of: pollingOrOurs,
		about: "The same pipeline, each stage of which looks for work, and then sleeps."},
	{title: "Peers", tables: peers,
		about: "Each in its best sensible settings, which are below."},
	{title: "Media", scenarios: []string{"transcode"}, tables: media,
		about: "The real transcode, beside the same ffmpeg command run bare, and beside one ffmpeg per rung, one after another."},
}

func not(prefix string) func(*result.Figure) bool {
	return func(f *result.Figure) bool { return !strings.HasPrefix(f.System, prefix) }
}

func pollingOrOurs(f *result.Figure) bool {
	return !not("polling_")(f) || f.System == ours && f.Case == "idle"
}

// groups writes every figure there is: those of no group come last.
func (p *page) groups(r *result.Result) {
	for i, g := range groups {
		part := &page{}
		if g.tables != nil {
			g.tables(part, r, g)
		} else {
			part.generic(g.figures(r))
		}
		if part.Len() == 0 {
			continue
		}
		p.say("## %d. %s", i+1, g.title)
		if g.about != "" {
			p.say("%s", g.about)
		}
		p.Write(part.Bytes())
	}
	if others := unknown(r); len(others) > 0 {
		p.say("## Other figures")
		p.generic(others)
	}
}

// figures are the group's, in its order. A group that wants one of several
// contestants alone has none.
func (g group) figures(r *result.Result) []*result.Figure {
	var all []*result.Figure
	for _, s := range g.scenarios {
		all = append(all, r.ForScenario(s)...)
	}
	if g.of != nil {
		all = slices.DeleteFunc(all, func(f *result.Figure) bool { return !g.of(f) })
	}
	if g.of != nil && !slices.ContainsFunc(all, func(f *result.Figure) bool { return f.System != ours }) {
		return nil
	}
	return all
}

func unknown(r *result.Result) []*result.Figure {
	known := []string{"rate", "rate_kept"}
	for _, g := range groups {
		known = append(known, g.scenarios...)
	}
	var all []*result.Figure
	for i := range r.Figures {
		if f := &r.Figures[i]; !slices.Contains(known, f.Scenario) && len(f.Rounds) > 0 {
			all = append(all, f)
		}
	}
	return all
}

// generic is a table of what has percentiles, and one of what has not.
func (p *page) generic(figures []*result.Figure) {
	var spreads, values [][]string
	for _, f := range figures {
		what := []string{scenario(f.Scenario), caseLabel(f.Case), label(f.System)}
		if len(f.Rounds[0].Samples) > 0 {
			spreads = append(spreads, append(what, percentiles(f)...))
			continue
		}
		values = append(values, append(what, formatSpread(f.Percentile(50)), f.Unit, fmt.Sprint(len(f.Rounds))))
	}
	p.table(append([]string{"what", "how", "who"}, percentilesHead...), spreads)
	p.table([]string{"what", "how", "who", "median (range):", "unit", "rounds:"}, values)
}

var percentilesHead = []string{"p50 (range):", "p95:", "p99:", "p99.9:", "max:", "unit", "samples:"}

// percentiles are those that were seen; the largest value is that of all rounds.
func percentiles(f *result.Figure) []string {
	cells := []string{formatSpread(f.Percentile(50))}
	for _, p := range []float64{95, 99, 99.9} {
		text := "–"
		if isPercentileSupported(f, p) {
			text = formatNumber(f.Percentile(p).Median)
		}
		cells = append(cells, text)
	}
	return append(cells, formatNumber(f.Percentile(100).Max), f.Unit, thousands(strconv.Itoa(f.SampleCount())))
}
