package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// target is a bound on a value, on two cores with PostgreSQL's durable settings.
type target struct {
	name    string
	bound   string // "≤ 1.5" or "≥ 20"
	unit    string
	formula string                    // see evaluate
	failure func(*Result) (miss bool) // a further condition for a miss; nil for none
}

var targets = []target{
	{name: "idle end-to-end p50 / five dependent commits", bound: "≤ 1.5",
		formula: "e2e/cuelight/idle over commits5/floor/idle"},
	{name: "the same with commits made slow (commit_delay 2 ms)", bound: "≤ 1.15",
		formula: "e2e/cuelight/commit_delay=2ms over commits5/floor/commit_delay=2ms"},
	{name: "idle end-to-end p50 / River's (fetch cooldown 1 ms)", bound: "≤ 0.7",
		formula: "e2e/cuelight/idle over e2e/river_tx/idle"},
	{name: "tasks/s drained / River's, transactional form", bound: "≥ 12",
		formula: "drain/cuelight/tasks=* over drain/river_tx/tasks=*"},
	{name: "tasks/s drained / River's, its fastest form", bound: "≥ 6",
		formula: "drain/cuelight/tasks=* over drain/river_fast/tasks=*"},
	{name: "end-to-end p99 at 400 tasks/s offered", bound: "≤ 10", unit: "ms",
		formula: "rate/cuelight/rate=400@99",
		failure: func(r *Result) bool {
			kept, ok := r.Find(Key{"rate_kept", cuelightSystem, "rate=400"})
			return ok && kept.Median() < SustainedShare
		}},
	{name: "completion → dependent stage in another process, p99 / NOTIFY floor p99", bound: "≤ 4",
		formula: "hop_other/cuelight@99 over notify/floor/idle@99"},
	{name: "tasks/s with 1,000,000 finished tasks / with none", bound: "≥ 0.95",
		formula: "grown/cuelight/finished=1000000 over grown/cuelight/finished=0"},
	{name: "p99 of 300 tasks/s while a snapshot is held elsewhere / before", bound: "≤ 3",
		formula: "snapshot/cuelight/held*@99 over snapshot/cuelight/before*@99"},
	{name: "share of 300 tasks/s completed meanwhile", bound: "≥ 0.99", formula: "snapshot_kept/cuelight/held*"},
	{name: "tasks/s with 8 processes / with 1, without an error", bound: "≥ 0.9",
		formula: "processes/cuelight/processes=8 over processes/cuelight/processes=1",
		failure: func(r *Result) bool { return r.Skipped["processes/"+cuelightSystem] != "" }},
	{name: "notifications per task under full load", bound: "≤ 0.1", formula: "notifies/cuelight"},
	{name: "triggers, per task that one statement changes", bound: "≤ 0.05", unit: "ms",
		formula: "bulk/cuelight/slowest"},
	{name: "20 ms of work per stage, 32 slots: share of the ideal", bound: "≥ 0.9",
		formula: "work20ms/cuelight/slots=32"},
	{name: "a stage with one slot, 600 equal tasks: the most later tasks before an earlier one", bound: "≤ 4",
		unit: "tasks", formula: "order/cuelight/tasks=600"},
	{name: "idle daemon: queries per second", bound: "≤ 1", formula: "idle_daemon/cuelight/queries"},
	{name: "idle daemon: share of a core", bound: "≤ 0.005", formula: "idle_daemon/cuelight/cpu"},
	{name: "idle daemon: memory", bound: "≤ 40", unit: "MiB", formula: "idle_daemon/cuelight/memory"},
	{name: "submission → start at a waiting remote worker, p50, beyond two HTTP round trips", bound: "≤ 3", unit: "ms",
		formula: "start_beyond/cuelight_remote/idle"},
	{name: "tasks/s drained by a remote worker / by a local one", bound: "≥ 0.8",
		formula: "remote_drain/cuelight_remote/tasks=* over remote_drain/cuelight/tasks=*"},
	{name: "daemon with 1,000 waiting remote workers: queries per second", bound: "≤ 2",
		formula: "waiting_workers/cuelight/workers=1000,queries"},
	{name: "memory that 1,000 waiting remote workers add to a daemon", bound: "≤ 60", unit: "MiB",
		formula: "waiting_workers/cuelight/workers=1000,added memory"},
	{name: "real transcode / the same ffmpeg bare, CPU", bound: "≤ 1.05",
		formula: "transcode/cuelight/clip=*,cpu over transcode/ffmpeg_bare/clip=*,cpu"},
}

// SustainedShare is the least share of completed tasks of a system that sustains a rate. The rest
// is chance: tasks are in progress at the start and at the end. Below it, latency is that of a
// growing queue.
const SustainedShare = 0.99

// targetResult is a target with the measured value.
type targetResult struct {
	figure   string // the name of the value
	bound    string // "≤ 1.5"
	measured string // the median over the rounds, with their range; "" if it was not measured
	note     string // the worst case, of several
	status   string // reached, missed or notMeasured
}

// notMeasured says that the result lacks a figure that the target needs.
const reached, missed, notMeasured = "yes", "no", "not measured"

// checkTargets compares the result with the targets. There are none for a run of "once", which has too few samples.
func checkTargets(r *Result) (all []targetResult) {
	for _, t := range targets {
		if r.Mode != "once" {
			all = append(all, t.check(r))
		}
	}
	return all
}

func (t target) check(r *Result) targetResult {
	checked := targetResult{figure: t.name, bound: strings.TrimSpace(t.bound + " " + t.unit), status: notMeasured}
	number, higher := strings.CutPrefix(t.bound, "≥ ")
	bound, _ := strconv.ParseFloat(strings.TrimPrefix(number, "≤ "), 64)
	v, ok := evaluate(r, t.formula, higher)
	if !ok {
		return checked
	}
	checked.measured, checked.status = strings.TrimSpace(formatSpread(v.Spread)+" "+t.unit), missed
	isReached := v.Median == bound || (v.Median > bound) == higher
	switch {
	case isReached && (t.failure == nil || !t.failure(r)):
		checked.status = reached
	case !isReached && formatNumber(v.Median) == formatNumber(bound): // show that it is a miss
		checked.measured = strings.TrimSpace(fmt.Sprintf("%.6g %s", v.Median, t.unit))
	}
	if strings.Contains(t.formula, "*") {
		checked.note = v.figure.Case
	}
	return checked
}

// PrintTargets writes the targets as a table of plain text; of a run that is not complete, only those that were measured.
func PrintTargets(w io.Writer, r *Result, isComplete bool) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, v := range checkTargets(r) {
		if isComplete || v.status != notMeasured {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", v.figure, v.bound, v.measured, strings.ToUpper(v.status))
		}
	}
	return t.Flush()
}

// summary has the keys of the summary with their formulas.
var summary = []struct{ key, formula string }{
	{"floor5_ms", "commits5/floor/idle"},
	{"e2e_p50_ms", "e2e/cuelight/idle"},
	{"e2e_p99_ms", "e2e/cuelight/idle@99"},
	{"hop_p50_ms", "hop/cuelight"},
	{"hop_other_process_p99_ms", "hop_other/cuelight@99"},
	{"tasks_per_s", "drain/cuelight/tasks=5000"},
	{"river_e2e_p50_ms", "e2e/river_tx/idle"},
	{"river_tasks_per_s", "drain/river_tx/tasks=5000"},
	{"river_fast_tasks_per_s", "drain/river_fast/tasks=5000"},
	{"polling_e2e_p50_ms", "e2e/polling_5s/idle"},
	{"notifies_per_task", "notifies/cuelight"},
	{"grown_ratio", "grown/cuelight/finished=100000 over grown/cuelight/finished=0"},
}

// Summary returns the run as one line of JSON, without a line end. The keys and their order are
// fixed. The values are medians over the rounds with four digits, or null.
//
//   - floor5_ms is five dependent commits, and e2e_… a task through the five stages, both on an
//     idle system; river_… is the transactional form, polling_… every 5 s.
//   - hop_p50_ms is from the end of a stage's work until the next stage starts, and
//     hop_other_process_p99_ms from its completion until that in another process.
//   - tasks_per_s is with 5,000 waiting tasks.
//   - grown_ratio is tasks/s with 100,000 finished tasks over those with none.
func Summary(r *Result) []byte {
	var pairs []string
	for _, s := range summary {
		text := "null"
		if v, ok := evaluate(r, s.formula, false); ok {
			rounded, _ := strconv.ParseFloat(strconv.FormatFloat(v.Median, 'g', 4, 64), 64)
			text = strconv.FormatFloat(rounded, 'f', -1, 64)
		}
		pairs = append(pairs, strconv.Quote(s.key)+":"+text)
	}
	return []byte("{" + strings.Join(pairs, ",") + "}")
}
