package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cuelight/cuelight/bench/result"
)

// section is a numbered part of the report with related scenarios.
type section struct {
	title     string
	about     string
	scenarios []string
	selects   func(*result.Figure) bool // nil for all
	write     func(*page, *result.Result, []*result.Figure)
}

// sections are in the order of the benchmark's plan.
var sections = []section{
	{title: "Floors", scenarios: []string{"commit", "commits5", "notify"},
		about: "The times of PostgreSQL alone on this machine. Idle is with a random pause of 5–50 ms before each " +
			"sample, after which all processes sleep."},
	{title: "Wake-up", scenarios: []string{"wake_submit", "hop", "hop_commit", "hop_other"},
		about: "The time until a stage starts that is ready."},
	{title: "End to end", scenarios: []string{"e2e"}, selects: isNoPoller, write: writeEndToEnd,
		about: "From before the call that submits a task until its last stage is completed; the stages do nothing."},
	{title: "Throughput", scenarios: []string{"drain", "cpu", "processes", "work20ms", "order"},
		about: "Waiting tasks, five stages each, from the start of the first stage to the completion of the last. " +
			"With 20 ms of work per stage: the share of the ideal, with all slots always busy. " +
			"Behind one slot: of equal tasks, the largest number that started the stage before an earlier one."},
	{title: "Growth", scenarios: []string{"grown", "snapshot", "snapshot_kept", "size", "bulk"},
		about: "The same in a table that has grown, and how much it grows."},
	{title: "Idle cost, and notifications", scenarios: []string{"idle_daemon", "notifies"}},
	{title: "Remote workers", scenarios: []string{"start", "start_beyond", "http", "remote_drain", "waiting_workers"},
		about: "Workers that talk over HTTP to a coordinator, on a loopback address without TLS, next to workers with the " +
			"database in the same run. From a submission until the first stage starts at a worker that waits; and a daemon at " +
			"which workers wait while nothing happens."},
	{title: "Polling", scenarios: []string{"e2e"}, selects: isPollerOrIdleCuelight, write: writePolling,
		about: "The same pipeline with stages that search for work and then sleep."},
	{title: "Peers", write: writePeers,
		about: "Each in its best sensible settings, which are below."},
	{title: "Media", scenarios: []string{"transcode"}, write: writeMedia,
		about: "The real transcode, the same ffmpeg command without Cuelight, and one ffmpeg per rung, one after another."},
}

func isPoller(f *result.Figure) bool   { return strings.HasPrefix(f.System, "polling_") }
func isNoPoller(f *result.Figure) bool { return !isPoller(f) }

func isPollerOrIdleCuelight(f *result.Figure) bool {
	return isPoller(f) || f.System == cuelightSystem && f.Case == "idle"
}

// writeSections writes every figure. Figures of unknown scenarios come last.
func (p *page) writeSections(r *result.Result) {
	known := []string{"rate", "rate_kept"}
	for i, s := range sections {
		known = append(known, s.scenarios...)
		var figures []*result.Figure
		for _, scenario := range s.scenarios {
			figures = append(figures, r.ForScenario(scenario)...)
		}
		if s.selects != nil {
			figures = slices.DeleteFunc(figures, func(f *result.Figure) bool { return !s.selects(f) })
		}
		part := &page{}
		if s.write != nil {
			s.write(part, r, figures)
		} else {
			part.writeFigures(figures)
		}
		if part.Len() == 0 {
			continue
		}
		p.paragraph("## %d. %s", i+1, s.title)
		if s.about != "" {
			p.paragraph("%s", s.about)
		}
		p.Write(part.Bytes())
	}
	var others []*result.Figure
	for i := range r.Figures {
		if f := &r.Figures[i]; !slices.Contains(known, f.Scenario) && len(f.Rounds) > 0 {
			others = append(others, f)
		}
	}
	if len(others) > 0 {
		p.paragraph("## Other figures")
		p.writeFigures(others)
	}
}

// writeFigures writes a table of figures with percentiles, and one of single values.
func (p *page) writeFigures(figures []*result.Figure) {
	var latencies, values [][]string
	for _, f := range figures {
		row := []string{scenarioLabel(f.Scenario), caseLabel(f.Case), label(f.System)}
		if len(f.Rounds[0].Samples) > 0 {
			latencies = append(latencies, append(row, percentileCells(f)...))
			continue
		}
		values = append(values, append(row, formatSpread(f.Percentile(50)), f.Unit, strconv.Itoa(len(f.Rounds))))
	}
	p.table(append([]string{"figure", "case", "system"}, percentileHeads...), latencies)
	p.table([]string{"figure", "case", "system", "median (range):", "unit", "rounds:"}, values)
}

var percentileHeads = []string{"p50 (range):", "p95:", "p99:", "p99.9:", "max:", "unit", "samples:"}

// percentileCells omits percentiles with too few samples. The maximum is over all rounds.
func percentileCells(f *result.Figure) []string {
	cells := []string{formatSpread(f.Percentile(50))}
	for _, p := range []float64{95, 99, 99.9} {
		text := "–"
		if isPercentileSupported(f, p) {
			text = formatNumber(f.Percentile(p).Median)
		}
		cells = append(cells, text)
	}
	return append(cells, formatNumber(f.Percentile(100).Max), f.Unit, withCommas(strconv.Itoa(f.SampleCount())))
}

// writeEndToEnd writes the idle system and the offered rates.
func writeEndToEnd(p *page, r *result.Result, figures []*result.Figure) {
	p.writeFigures(figures)
	var rows [][]string
	for _, name := range systemsOf(slices.Concat(r.ForScenario("rate"), r.ForScenario("rate_kept"))) {
		for _, step := range r.Steps("rate_kept", name, "rate") {
			share, sustained := "all", ""
			if v := step.Median(); v < 1 {
				share = formatNumber(v*100) + " %"
			}
			if !isSustained(r, name, step.Case) {
				sustained = "no"
			}
			cells := make([]string, len(percentileHeads))
			if f, ok := find(r, "rate", name, step.Case); ok {
				cells = percentileCells(f)
			}
			rows = append(rows, append([]string{label(name), formatCount(step.Value), share, sustained}, cells...))
		}
	}
	if len(rows) > 0 {
		p.paragraph("At offered rates, in an open loop: tasks arrive at planned times, and their latency counts from these " +
			"times. A system sustains a rate if it completes at least 99 %% of the tasks within the run.")
	}
	p.table(append([]string{"system", "tasks/s:", "completed:", "sustained"}, percentileHeads...), rows)
}

// writePolling writes nothing without a poller.
func writePolling(p *page, _ *result.Result, figures []*result.Figure) {
	if slices.ContainsFunc(figures, isPoller) {
		p.writeFigures(figures)
	}
}

// writePeers compares all systems except the pollers with Cuelight.
func writePeers(p *page, r *result.Result, _ []*result.Figure) {
	var rows [][]string
	for _, name := range systemsOf(slices.Concat(r.ForScenario("e2e"), r.ForScenario("drain"))) {
		if name == floor || strings.HasPrefix(name, "polling_") {
			continue
		}
		row := []string{label(name), "", "", "", "", ""}
		if f, ok := find(r, "e2e", name, "idle"); ok {
			row[1] = formatSpread(f.Percentile(50))
		}
		if f, ok := find(r, "drain", name, "tasks=max"); ok {
			row[3], row[4] = formatSpread(f.Percentile(50)), caseLabel(f.Case)
		}
		if name != cuelightSystem {
			if v, ok := evaluate(r, fmt.Sprintf("e2e/%s/idle over e2e/cuelight/idle", name), false); ok {
				row[2] = formatSpread(v.Spread)
			}
			if v, ok := evaluate(r, fmt.Sprintf("drain/cuelight/tasks=* over drain/%s/tasks=*", name), true); ok {
				row[3], row[4] = formatSpread(v.divisor.Percentile(50)), caseLabel(v.divisor.Case)
				row[5] = formatSpread(v.Spread)
			}
		}
		rows = append(rows, row)
	}
	if len(rows) > 1 {
		p.table([]string{"system", "idle end to end, p50 in ms:", "ratio to Cuelight's:",
			"tasks/s drained:", "of", "Cuelight's ratio to it, with as many tasks:"}, rows)
	}
}

// writeMedia writes a row for each clip and system.
func writeMedia(p *page, r *result.Result, figures []*result.Figure) {
	var clips []string
	for _, f := range figures {
		if clip, _, _ := strings.Cut(f.Case, ","); !slices.Contains(clips, clip) {
			clips = append(clips, clip)
		}
	}
	var rows [][]string
	for _, clip := range clips {
		for _, system := range systemsOf(figures) {
			row := []string{strings.TrimPrefix(clip, "clip="), label(system), "", "", ""}
			for i, quantity := range []string{"cpu", "wall", "memory"} {
				if f, ok := find(r, "transcode", system, clip+","+quantity); ok {
					row[2+i] = formatSpread(f.Percentile(50))
				}
			}
			if slices.Max(row[2:]) != "" {
				rows = append(rows, row)
			}
		}
	}
	p.table([]string{"clip", "system", "CPU, s:", "wall, s:", "memory, MiB:"}, rows)
}
