// Package report has the outcome of a benchmark run: figures with their value in every round, the targets, and the machine
// and the settings that they belong to.
//
//	r := report.New("quick")
//	r.Machine = report.DescribeMachine(ctx, databaseDir)
//	r.Add(report.Key{Scenario: "e2e", System: "cuelight", Case: "idle"}, "ms", report.FromDurations(latencies))
//	r.Add(report.Key{Scenario: "drain", System: "cuelight", Case: "tasks=5000"}, "tasks/s", report.FromValue(21_000))
//	paths, err := report.Write(r, "bench/results", false)
//	fmt.Printf("%s\n", report.Summary(r))
//
// Adding to the same key collects the rounds of a figure. A report is a table of targets, two charts, and tables of figures.
// A figure that was not measured does not exist, its target is "not measured", and its value in the summary is null.
package report

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// markdown returns the report. Its charts are files next to it whose names start with name.
func markdown(r *Result, drawn []chart, name string) []byte {
	p := &page{}
	p.paragraph("# Cuelight's benchmark, %s, %s", r.StartedAt.UTC().Format("2 January 2006, 15:04 UTC"), r.Mode)
	p.paragraph("Made from [%s.json](%[1]s.json), which has the figures of each round. Values are medians over the rounds, with "+
		"their range in brackets. Percentiles are taken round by round.", r.Name())
	p.paragraph("Commit %s; it took %v.", r.Commit, time.Duration(r.DurationSeconds)*time.Second)
	p.writeMap("## Machine", []string{"of", ""}, r.Machine)
	p.writeTargets(r)
	p.writeMap("## Not measured", []string{"what", "why"}, r.Skipped)
	for _, c := range drawn {
		p.paragraph("![%s](%s-%s.svg)", c.title, name, c.name)
	}
	p.writeSections(r)
	p.writeMap("## Settings", []string{"of", "settings"}, r.Settings)
	return p.Bytes()
}

func (p *page) writeTargets(r *Result) {
	var rows [][]string
	for _, t := range checkTargets(r) {
		rows = append(rows, []string{t.figure, t.bound, t.measured, strings.Replace(t.status, missed, "**no**", 1), t.note})
	}
	if len(rows) > 0 {
		p.paragraph("## Targets")
	}
	p.table([]string{"figure", "target:", "measured:", "reached", ""}, rows)
}

// section is a part of the report with related scenarios.
type section struct {
	title     string
	about     string
	scenarios []string
}

// sections are in the order of the benchmark's plan. Their figures have the names that -only takes.
var sections = []section{
	{"Floors", "PostgreSQL alone on this machine: one commit, five that depend on each other, and NOTIFY → LISTEN. Idle is with a " +
		"random pause of 5–50 ms before each sample, after which all processes sleep.", []string{"commit", "commits5", "notify"}},
	{"End to end", "e2e is from before the call that submits a task until its last stage is completed; the stages do nothing. hop is " +
		"from the end of a stage's work until the next stage starts, hop_other from its completion until that in another process.",
		[]string{"e2e", "hop", "hop_other"}},
	{"At offered rates", "In an open loop: tasks arrive at planned times, and their latency counts from these times. rate_kept is the " +
		"share that is completed within the run. A system sustains a rate with 0.99.", []string{"rate", "rate_kept"}},
	{"Throughput", "drain is waiting tasks, five stages each, from the start of the first stage to the completion of the last. cpu is " +
		"processor time per task, processes_cpu that of the database. work20ms is with 20 ms of work per stage: the share of the " +
		"ideal, with all slots always busy. order is, of equal tasks behind one slot, the largest number that started before an " +
		"earlier one. notifies counts notifications. parts compares parts of one task with tasks.",
		[]string{"drain", "cpu", "processes", "processes_cpu", "work20ms", "order", "notifies", "parts"}},
	{"Growth", "grown is a drain in a table with finished tasks, made with SQL, then vacuumed and analyzed. " +
		"snapshot is a steady load before, while and after another session holds back vacuum, and snapshot_kept the share of it " +
		"that is completed in the same time. bulk is triggers, per task that one statement changes.",
		[]string{"grown", "snapshot", "snapshot_kept", "bulk"}},
	{"Remote workers", "Workers that talk over HTTP to a coordinator, on a loopback address without TLS, next to workers with " +
		"the database in the same run. start is from before a submission until the first stage starts at a worker that waits, " +
		"start_beyond its median without two median round trips, http. idle_daemon is cuelight serve on an empty database, and " +
		"waiting_workers the same with --listen, while workers wait for 30 s each.",
		[]string{"start", "start_beyond", "http", "remote_drain", "waiting_workers", "idle_daemon"}},
	{"Media", "The real transcode, and the same ffmpeg command without Cuelight. CPU is that of all processes of the stage, with its " +
		"checks of the renditions and the engine, without the database. One clip is transcoded before, because asking ffmpeg for its " +
		"features takes 0.2 s of CPU once.", []string{"transcode"}},
}

// writeSections writes every figure. Figures of unknown scenarios come last.
func (p *page) writeSections(r *Result) {
	others := slices.Clone(r.Figures)
	for _, s := range sections {
		belongs := func(f Figure) bool { return slices.Contains(s.scenarios, f.Scenario) }
		figures := slices.DeleteFunc(slices.Clone(r.Figures), func(f Figure) bool { return !belongs(f) })
		slices.SortStableFunc(figures, func(a, b Figure) int {
			return slices.Index(s.scenarios, a.Scenario) - slices.Index(s.scenarios, b.Scenario)
		})
		if len(figures) > 0 {
			p.paragraph("## %s\n\n%s", s.title, s.about)
			p.writeFigures(figures)
		}
		others = slices.DeleteFunc(others, belongs)
	}
	if len(others) > 0 {
		p.paragraph("## Other figures")
		p.writeFigures(others)
	}
}

// writeFigures writes a table of figures with percentiles, and one of single values. It omits percentiles with too few
// samples. The maximum is over all rounds.
func (p *page) writeFigures(figures []Figure) {
	var latencies, values [][]string
	for _, f := range figures {
		row := []string{f.Scenario, f.Case, labelOf(f.System), formatSpread(f.Percentile(50))}
		if !f.isSampled() {
			values = append(values, append(row, f.Unit, strconv.Itoa(len(f.Rounds))))
			continue
		}
		samples := 0
		for _, round := range f.Rounds {
			samples += round.N
		}
		for _, percent := range []float64{95, 99, 99.9} {
			text := "–"
			if f.supports(percent) {
				text = formatNumber(f.Percentile(percent).Median)
			}
			row = append(row, text)
		}
		latencies = append(latencies, append(row, formatNumber(f.Percentile(100).Max), f.Unit, withCommas(strconv.Itoa(samples))))
	}
	p.table([]string{"figure", "case", "system", "p50 (range):", "p95:", "p99:", "p99.9:", "max:", "unit", "samples:"}, latencies)
	p.table([]string{"figure", "case", "system", "median (range):", "unit", "rounds:"}, values)
}

// writeMap writes a table of a map, or nothing.
func (p *page) writeMap(title string, heads []string, m map[string]string) {
	if len(m) == 0 {
		return
	}
	p.paragraph("%s", title)
	var rows [][]string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		rows = append(rows, []string{labelOf(key), m[key]})
	}
	p.table(heads, rows)
}

// page is a Markdown text.
type page struct{ bytes.Buffer }

// paragraph writes a paragraph or a heading.
func (p *page) paragraph(format string, args ...any) { fmt.Fprintf(&p.Buffer, format+"\n\n", args...) }

// table writes rows below heads. A head that ends with a colon is of numbers.
func (p *page) table(heads []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	var names, rules []string
	for _, head := range heads {
		name, isNumeric := strings.CutSuffix(head, ":")
		rule := "---"
		if isNumeric {
			rule = "--:"
		}
		names, rules = append(names, name), append(rules, rule)
	}
	for _, row := range slices.Concat([][]string{names, rules}, rows) {
		for _, cell := range row {
			p.WriteString("| " + escapeCell(cell) + " ")
		}
		p.WriteString("|\n")
	}
	p.WriteByte('\n')
}

// escapeCell prevents text from ending the cell or starting an element.
var escapeCell = strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace
