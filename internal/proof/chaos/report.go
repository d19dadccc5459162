package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// summary is the last line.
type summary struct {
	Seed       uint64  `json:"seed"`
	Seconds    float64 `json:"seconds"`
	Submitted  int     `json:"submitted"`
	Completed  int     `json:"completed"`
	Dead       int     `json:"dead"`
	Lost       int     `json:"lost"`
	Duplicated int     `json:"duplicated"`
	Violations int     `json:"violations"`
	Kills      int     `json:"kills"`
	Restarts   int     `json:"restarts"`
	P50        *int64  `json:"rescue_p50_ms"`
	P99        *int64  `json:"rescue_p99_ms"`
}

func (s summary) good() bool { return s.Lost+s.Duplicated+s.Violations == 0 }

func (s summary) String() string {
	line, err := json.Marshal(s)
	if err != nil {
		panic(err) // nothing in it cannot be written
	}
	return string(line)
}

// mostShown bounds how many wrongs of a kind are printed.
const mostShown = 40

// table prints what is wrong, and where the figures come from.
func (t *theatre) table(v *findings, sum summary) {
	for _, wrongs := range []struct {
		name string
		all  []string
	}{{"LOST", v.lost}, {"DUPLICATED", v.duplicated}, {"VIOLATION", v.violations}} {
		for i, one := range wrongs.all {
			if i == mostShown {
				t.Logf("%s … and %d more", wrongs.name, len(wrongs.all)-i)
				break
			}
			t.Logf("%s %s", wrongs.name, one)
		}
	}
	row := func(name, format string, args ...any) {
		t.Printf("  %-28s %s\n", name, fmt.Sprintf(format, args...))
	}
	t.Printf("\n")
	row("tasks", "%d submitted, %d acknowledged, %d of these after repetition, %d rolled back",
		sum.Submitted, len(t.load.acknowledged), t.load.repeated, len(t.load.undone))
	row("ended", "%d completed, %d dead", sum.Completed, sum.Dead)
	if t.studio != nil {
		row("videos", "%d submitted, %d published and playable", len(t.studio.videos), v.videos)
	}
	row("wrong", "%d lost, %d duplicated, %d violations", sum.Lost, sum.Duplicated, sum.Violations)
	row("kills, restarts", "%d processes killed, %d restarts of the server", sum.Kills, sum.Restarts)
	row("torments", "%s", counts(t.done))
	if len(t.tormentor.missed) > 0 {
		row("could not be", "%s", counts(t.tormentor.missed))
	}
	row("wakes made good by sweeps", "%d", v.missed)
	row("claims of killed workers", "%d begun anew, %d that were their last attempt", len(v.rescues), v.buried)
	for _, line := range []struct {
		name   string
		choose func(rescue) bool
	}{
		{"  rescue, all", func(rescue) bool { return true }},
		{"  in calm (promised: 10 s)", func(r rescue) bool { return r.calm && !r.silent }},
		{"    by the successor", func(r rescue) bool { return r.calm && !r.silent && r.own }},
		{"    by others", func(r rescue) bool { return r.calm && !r.silent && !r.own }},
		{"  unseen (promised: 45 s)", func(r rescue) bool { return r.calm && r.silent }},
	} {
		row(line.name, "%s", spread(v.rescues, line.choose))
	}
	t.Printf("\n")
}

func counts(of map[kind]int) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(of)) {
		all = append(all, fmt.Sprintf("%s %d", k, of[k]))
	}
	return strings.Join(all, ", ")
}

// spread describes how long the chosen rescues took.
func spread(all []rescue, choose func(rescue) bool) string {
	p50, p99 := percentiles(all, choose)
	if p50 == nil {
		return "none"
	}
	n, longest := 0, int64(0)
	for _, r := range all {
		if choose(r) {
			n, longest = n+1, max(longest, r.took.Milliseconds())
		}
	}
	return fmt.Sprintf("%d, p50 %d ms, p99 %d ms, longest %d ms", n, *p50, *p99, longest)
}
