package report

import (
	"slices"
	"strings"

	"github.com/cuelight/cuelight/bench/result"
)

// both are the idle system, and the offered rates.
func both(p *page, r *result.Result, g group) {
	p.generic(g.figures(r))
	var rows [][]string
	names := contestants(slices.Concat(r.ForScenario("rate"), r.ForScenario("rate_kept")))
	for _, name := range names {
		for _, step := range r.Steps("rate_kept", name, "rate") {
			share := "all"
			if v := step.Median(); v < 1 {
				share = formatNumber(v*100) + " %"
			}
			cells := make([]string, len(percentilesHead))
			if f, ok := findFigure(r, "rate", name, step.Case); ok {
				cells = percentiles(f)
			}
			keeps := ""
			if step.Median() < keepsUp {
				keeps = "no"
			}
			rows = append(rows, append([]string{label(name), count(step.Value), share, keeps}, cells...))
		}
	}
	if len(rows) > 0 {
		p.say("At offered rates, in an open loop: tasks arrive by a schedule that was made beforehand, and their latency counts from " +
			"when they were to arrive. Less than 99 %% completed within the run is not to keep up.")
	}
	p.table(append([]string{"who", "tasks/s:", "completed:", "keeps up"}, percentilesHead...), rows)
}

// peers are everybody beside Cuelight, but for polling, which is no peer.
func peers(p *page, r *result.Result, _ group) {
	var rows [][]string
	for _, name := range contestants(slices.Concat(r.ForScenario("e2e"), r.ForScenario("drain"))) {
		if name != floor && !strings.HasPrefix(name, "polling_") {
			rows = append(rows, slices.Concat([]string{label(name)}, peerLatency(r, name), peerThroughput(r, name)))
		}
	}
	if len(rows) > 1 {
		p.table([]string{"who", "idle end to end, p50 in ms:", "times Cuelight's:",
			"tasks/s drained:", "of", "Cuelight's, with as many, by it:"}, rows)
	}
}

func peerLatency(r *result.Result, name string) []string {
	f, ok := idle(r, "e2e", name)
	if !ok {
		return []string{"", ""}
	}
	cells := []string{formatSpread(f.Percentile(50)), ""}
	if us, ok := idle(r, "e2e", ours); ok && name != ours {
		if s, ok := result.Ratio(f, 50, us, 50); ok {
			cells[1] = formatSpread(s)
		}
	}
	return cells
}

func peerThroughput(r *result.Result, name string) []string {
	f, ok := largest(r, "drain", name, "tasks")
	if !ok {
		return []string{"", "", ""}
	}
	cells := []string{formatSpread(f.Percentile(50)), caseLabel(f.Case), ""}
	if them, us, ok := alike(r, "drain", name, ours, "tasks"); ok && name != ours {
		cells[0], cells[1] = formatSpread(them.Percentile(50)), caseLabel(them.Case)
		if s, ok := result.Ratio(us, 50, them, 50); ok {
			cells[2] = formatSpread(s)
		}
	}
	return cells
}

// media has the clips' figures side by side.
func media(p *page, r *result.Result, g group) {
	figures := g.figures(r)
	var names []string
	for _, f := range figures {
		if name, _ := clip(f.Case); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	var rows [][]string
	for _, name := range names {
		for _, who := range contestants(figures) {
			row := []string{name, label(who)}
			for _, what := range []string{"cpu", "wall", "memory"} {
				text := ""
				if f, ok := findFigure(r, "transcode", who, "clip="+name+","+what); ok {
					text = formatSpread(f.Percentile(50))
				}
				row = append(row, text)
			}
			if slices.Max(row[2:]) != "" {
				rows = append(rows, row)
			}
		}
	}
	p.table([]string{"clip", "who", "CPU, s:", "wall, s:", "memory, MiB:"}, rows)
}
