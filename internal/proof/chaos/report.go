package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// summary is the last line of the output.
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
	P50        *int64  `json:"recovery_p50_ms"`
	P99        *int64  `json:"recovery_p99_ms"`
	OutageMS   int64   `json:"outage_ms,omitempty"`
}

func (s summary) passed() bool { return s.Lost+s.Duplicated+s.Violations == 0 }

// String returns the summary as JSON.
func (s summary) String() string {
	line, err := json.Marshal(s)
	if err != nil {
		panic(err) // every field can be encoded
	}
	return string(line)
}

// maxPrinted limits the findings of a kind that are printed.
const maxPrinted = 40

// printReport prints the findings, and the table that explains the summary.
func (h *harness) printReport(f *findings, sum summary) {
	for _, list := range []struct {
		title    string
		findings []string
	}{{"LOST", f.lost}, {"DUPLICATED", f.duplicated}, {"VIOLATION", f.violations}} {
		for i, text := range list.findings {
			if i == maxPrinted {
				h.Logf("%s … and %d more", list.title, len(list.findings)-i)
				break
			}
			h.Logf("%s %s", list.title, text)
		}
	}
	row := func(name, format string, args ...any) {
		h.Printf("  %-30s %s\n", name, fmt.Sprintf(format, args...))
	}
	h.Printf("\n")
	row("tasks submitted", "%d, and %d rolled back", sum.Submitted, len(h.submitter.rolledBack))
	row("tasks acknowledged", "%d, with %d submissions repeated", len(h.submitter.acknowledged), h.submitter.repeated)
	row("tasks finished", "%d completed, %d dead", sum.Completed, sum.Dead)
	if h.videos != nil {
		row("videos", "%d submitted, %d published and playable", len(h.videos.videos), f.playableVideos)
	}
	row("errors", "%d lost, %d duplicated, %d violations", sum.Lost, sum.Duplicated, sum.Violations)
	row("processes killed", "%d", sum.Kills)
	row("server restarts", "%d", sum.Restarts)
	printKinds := func(name string, counts map[faultKind]int) {
		for line := range slices.Chunk(slices.Sorted(maps.Keys(counts)), 4) {
			var texts []string
			for _, kind := range line {
				texts = append(texts, fmt.Sprintf("%s %d", kind, counts[kind]))
			}
			row(name, "%s", strings.Join(texts, ", "))
			name = ""
		}
	}
	printKinds("faults injected", h.injected)
	printKinds("faults not possible", h.failed)
	if h.options.failover != "" {
		row("outage", "%d ms without an acknowledgement", sum.OutageMS)
	}
	row("claims only a sweep found", "%d", f.missedWakes)
	row("claims of killed workers", "%d retried, %d without attempts left", len(f.recoveries), f.exhausted)
	for _, group := range []struct {
		name     string
		isChosen func(recovery) bool
	}{
		{"  recovery, all", func(recovery) bool { return true }},
		{"  undisturbed (promised: 10 s)", recovery.isPromised},
		{"    by the restarted worker", func(r recovery) bool { return r.isPromised() && r.bySuccessor }},
		{"    by other workers", func(r recovery) bool { return r.isPromised() && !r.bySuccessor }},
		{"  end hidden (promised: 45 s)", func(r recovery) bool { return r.undisturbed && r.hidden }},
	} {
		if len(f.recoveries) > 0 {
			row(group.name, "%s", distribution(f.recoveries, group.isChosen))
		}
	}
	h.Printf("\n")
}

// distribution describes the durations of the chosen recoveries.
func distribution(all []recovery, isChosen func(recovery) bool) string {
	p50, p99 := percentiles(all, isChosen)
	if p50 == nil {
		return "none"
	}
	n, longest := 0, int64(0)
	for _, r := range all {
		if isChosen(r) {
			n, longest = n+1, max(longest, r.duration.Milliseconds())
		}
	}
	return fmt.Sprintf("%d, p50 %d ms, p99 %d ms, longest %d ms", n, *p50, *p99, longest)
}
