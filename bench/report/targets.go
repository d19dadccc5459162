package report

import (
	"fmt"
	"strings"

	"github.com/cuelight/cuelight/bench/result"
)

// targets are what Cuelight is to reach, on two cores, with PostgreSQL's
// durable settings, and history on.
func targets() []target {
	e2e := term{"e2e", ours, "idle", 50}
	slow := "commit_delay=2ms"
	return []target{
		{figure: "idle end-to-end p50 / five dependent commits", bound: 1.5,
			measure: ratio(e2e, term{"commits5", floor, "idle", 50})},
		{figure: "the same with commits made slow (commit_delay 2 ms)", bound: 1.15,
			measure: ratio(term{"e2e", ours, slow, 50}, term{"commits5", floor, slow, 50})},
		{figure: "idle end-to-end p50 / River's (fetch cooldown 1 ms)", bound: 0.40,
			measure: ratio(e2e, term{"e2e", "river_tx", "idle", 50}), note: riverDefaults},
		{figure: "tasks/s drained / River's, transactional form", bound: 20, atLeast: true, measure: drained("river_tx"),
			note: waiting("river_tx")},
		{figure: "tasks/s drained / River's, its fastest form", bound: 10, atLeast: true, measure: drained("river_fast"),
			note: waiting("river_fast")},
		{figure: "tasks/s drained / Graphile Worker's", bound: 15, atLeast: true, measure: drained("graphile"),
			note: waiting("graphile")},
		{figure: "end-to-end p99 at 400 tasks/s offered", bound: 10, unit: "ms",
			measure: value(term{"rate", ours, "rate=400", 99}), fails: behind, note: atFourHundred},
		{figure: "completion → dependent stage in another process, p99 / NOTIFY floor p99", bound: 4,
			measure: ratio(term{"hop_other", ours, "idle", 99}, term{"notify", floor, "idle", 99})},
		{figure: "tasks/s with 1,000,000 finished tasks / with none", bound: 0.95, atLeast: true,
			measure: ratio(term{"grown", ours, "finished=1000000", 50}, term{"grown", ours, "finished=0", 50})},
		{figure: "tasks/s while a snapshot elsewhere holds back vacuum / normally", bound: 0.6, atLeast: true,
			measure: ratio(term{"held", ours, "held", 50}, term{"held", ours, "free", 50})},
		{figure: "tasks/s with 8 processes / with 1, no error surfaced", bound: 0.9, atLeast: true,
			measure: ratio(term{"processes", ours, "processes=8", 50}, term{"processes", ours, "processes=1", 50}),
			fails:   erred("processes"), note: failure("processes")},
		{figure: "notifications per task at full load", bound: 0.1,
			measure: value(term{"notifies", ours, "", 50})},
		{figure: "triggers, per task that one statement changes", bound: 0.05, unit: "ms",
			measure: value(term{"bulk", ours, "slowest", 50})},
		{figure: "20 ms of work per stage, 32 slots: share of the ideal", bound: 0.9, atLeast: true,
			measure: value(term{"work20ms", ours, "slots=32", 50})},
		{figure: "a stage with one slot, 600 equal tasks: the most that began before an earlier one", bound: 4, unit: "tasks",
			measure: value(term{"order", ours, "tasks=600", 50})},
		{figure: "idle daemon: queries per second", bound: 1, measure: value(term{"idle_daemon", ours, "queries", 50})},
		{figure: "idle daemon: share of a core", bound: 0.005, measure: value(term{"idle_daemon", ours, "cpu", 50})},
		{figure: "idle daemon: memory", bound: 40, unit: "MiB", measure: value(term{"idle_daemon", ours, "memory", 50})},
		{figure: "real transcode / the same ffmpeg bare, CPU", bound: 1.05, measure: worstClip, note: clips},
	}
}

// riverDefaults says what River takes as it comes.
func riverDefaults(r *result.Result) string {
	quick, ok := idle(r, "e2e", "river_tx")
	slow, also := idle(r, "e2e", "river_default")
	if !ok || !also {
		return ""
	}
	times, ok := result.Ratio(slow, 50, quick, 50)
	if !ok {
		return ""
	}
	return fmt.Sprintf("with its default cooldown River takes %s ms, %s times as long", formatNumber(slow.Median()), formatNumber(times.Median))
}

// waiting says how many tasks were compared.
func waiting(peer string) func(*result.Result) string {
	return func(r *result.Result) string {
		f, _, ok := alike(r, "drain", ours, peer, "tasks")
		if !ok {
			return ""
		}
		return "of " + caseLabel(f.Case)
	}
}

// kept is the share of offered tasks that were completed within the run.
func kept(r *result.Result, contestant, of string) (float64, bool) {
	f, ok := findFigure(r, "rate_kept", contestant, of)
	if !ok {
		return 0, false
	}
	return f.Median(), true
}

// keepsUp is the share from which on a contestant does: below, its latency is
// that of a queue that grows.
const keepsUp = 0.99

func behind(r *result.Result) bool {
	share, ok := kept(r, ours, "rate=400")
	return ok && share < keepsUp
}

// atFourHundred says how River does.
func atFourHundred(r *result.Result) string {
	var there []string
	if behind(r) {
		there = append(there, "it did not keep up")
	}
	for _, name := range []string{"river_tx", "river_fast"} {
		lost := ""
		if share, ok := kept(r, name, "rate=400"); ok && share < keepsUp {
			lost = ", not kept up with"
		}
		if f, ok := findFigure(r, "rate", name, "rate=400"); ok {
			there = append(there, fmt.Sprintf("%s: %s ms%s", label(name), formatNumber(f.Percentile(99).Median), lost))
		}
	}
	return strings.Join(there, "; ")
}

// erred reports whether Cuelight returned an error there, maybe in one round of
// several.
func erred(scenario string) func(*result.Result) bool {
	return func(r *result.Result) bool { return r.Skipped[scenario+"/"+ours] != "" }
}

func failure(scenario string) func(*result.Result) string {
	return func(r *result.Result) string { return r.Skipped[scenario+"/"+ours] }
}

// eachClip compares with ffmpeg bare, clip by clip.
func eachClip(r *result.Result) (names []string, ratios []result.Spread) {
	for _, f := range of(r, "transcode", ours) {
		clip, what := clip(f.Case)
		bare, ok := findFigure(r, "transcode", "ffmpeg_bare", f.Case)
		if what != "cpu" || !ok {
			continue
		}
		if s, ok := result.Ratio(f, 50, bare, 50); ok {
			names, ratios = append(names, clip), append(ratios, s)
		}
	}
	return names, ratios
}

// worstClip is the one that has the largest ratio.
func worstClip(r *result.Result) (worst result.Spread, ok bool) {
	_, all := eachClip(r)
	for _, s := range all {
		if !ok || s.Median > worst.Median {
			worst, ok = s, true
		}
	}
	return worst, ok
}

func clips(r *result.Result) string {
	names, ratios := eachClip(r)
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	var each []string
	for i, s := range ratios {
		each = append(each, names[i]+" "+formatNumber(s.Median))
	}
	return "the worst of " + strings.Join(each, ", ")
}

// clip splits "clip=NAME,cpu".
func clip(of string) (name, what string) {
	name, what, _ = strings.Cut(strings.TrimPrefix(of, "clip="), ",")
	return name, what
}
