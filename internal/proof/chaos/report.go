package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// summary is the last line of the output.
type summary struct {
	Seed       uint64  `json:"seed"`
	Seconds    float64 `json:"seconds"`
	Submitted  int     `json:"submitted"`
	Completed  int     `json:"completed"`
	Dead       int     `json:"dead"`
	Deleted    int     `json:"deleted"`
	Restored   int     `json:"restored"`
	Purged     int     `json:"purged"`
	Expired    int     `json:"expired"`
	Lost       int     `json:"lost"`
	Duplicated int     `json:"duplicated"`
	Violations int     `json:"violations"`
	Kills      int     `json:"kills"`
	Restarts   int     `json:"restarts"`
	P50        *int64  `json:"recovery_p50_ms"`
	P99        *int64  `json:"recovery_p99_ms"`
	RemoteP99  *int64  `json:"remote_recovery_p99_ms"`
	// SwitchoverP99 is of remote workers whose coordinator was killed.
	SwitchoverP99 *int64 `json:"switchover_p99_ms"`
	OutageMS      int64  `json:"outage_ms,omitempty"`
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

// printReport prints the table that explains the summary. The findings come last: of a long output often only the end is read.
func (h *harness) printReport(f *findings, sum summary) {
	h.Printf("\n")
	h.printRow("tasks submitted", "%d, and %d rolled back", sum.Submitted, len(h.submitter.rolledBack))
	h.printRow("tasks acknowledged", "%d, with %d submissions repeated", len(h.submitter.acknowledged), h.submitter.repeated)
	h.printRow("tasks finished", "%d completed, %d dead", sum.Completed, sum.Dead)
	h.printRow("tasks deleted", "%d, %d of them restored, and %d purged", len(h.deletions), sum.Restored, sum.Purged)
	h.printRow("tasks deleted by retention", "%d, %v after their end or later", sum.Expired, h.workers.keep)
	if h.videos != nil {
		h.printRow("videos", "%d submitted, %d published and playable", len(h.videos.videos), f.playableVideos)
	}
	h.printRow("errors", "%d lost, %d duplicated, %d violations", sum.Lost, sum.Duplicated, sum.Violations)
	h.printFaults()
	h.printRow("claims only a sweep found", "%d", f.missedWakes)
	h.printRow("executions by remote workers", "%d of %d", f.remoteExecutions, f.executions)
	h.printRow("claims of killed workers", "%d retried, %d without attempts left", len(f.recoveries), f.exhausted)
	for _, group := range recoveryGroups {
		h.printRow(group.name, "%s", distribution(f.recoveries, group.isChosen))
	}
	h.printRow("remote workers that went on", "%d, after the kill of a coordinator", len(f.switchovers))
	h.printRow("  undisturbed (promised: 5 s)", "%s", distribution(f.switchovers, recovery.isPromised))
	h.Printf("\n")
	h.printFindings("LOST", f.lostTasks)
	h.printFindings("DUPLICATED", f.duplicates)
	h.printFindings("VIOLATION", f.violations)
}

// recoveryGroups are the rows about recoveries.
var recoveryGroups = []struct {
	name     string
	isChosen func(recovery) bool
}{
	{"  recovery, all", func(recovery) bool { return true }},
	{"  undisturbed (promised: 10 s)", recovery.isPromised},
	{"    of remote workers", func(r recovery) bool { return r.isPromised() && r.remote }},
	{"  end hidden (promised: 45 s)", func(r recovery) bool { return r.undisturbed && r.hidden }},
}

func (h *harness) printFindings(title string, found []string) {
	for _, text := range found[:min(len(found), maxPrinted)] {
		h.Logf("%s %s", title, text)
	}
	if n := len(found) - maxPrinted; n > 0 {
		h.Logf("%s … and %d more", title, n)
	}
}

func (h *harness) printRow(name, format string, args ...any) {
	h.Printf("  %-30s %s\n", name, fmt.Sprintf(format, args...))
}

// printFaults prints how many faults there were of each kind, and how many of them were not possible.
func (h *harness) printFaults() {
	counts := make(map[faultKind]int)
	for _, f := range h.faults {
		counts[f.kind]++
	}
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		text := fmt.Sprintf("%d times", counts[kind])
		if n := h.failed[kind]; n > 0 {
			text += fmt.Sprintf(", %d of them not possible", n)
		}
		h.printRow("fault "+string(kind), "%s", text)
	}
}

// distribution describes the durations of the chosen recoveries.
func distribution(all []recovery, isChosen func(recovery) bool) string {
	durations := milliseconds(all, isChosen)
	if len(durations) == 0 {
		return "none"
	}
	return fmt.Sprintf("%d, p50 %d ms, p99 %d ms, longest %d ms", len(durations),
		*percentile(durations, 50), *percentile(durations, 99), slices.Max(durations))
}
