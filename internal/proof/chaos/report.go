package main

import (
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
	isRemotePromised := func(r recovery) bool { return r.isPromised() && r.remote }
	isHidden := func(r recovery) bool { return r.undisturbed && r.hidden }
	h.printRow("  recovery, all", "%s", distribution(f.recoveries, func(recovery) bool { return true }))
	h.printRow("  undisturbed (promised: 10 s)", "%s", distribution(f.recoveries, recovery.isPromised))
	h.printRow("    of remote workers", "%s", distribution(f.recoveries, isRemotePromised))
	h.printRow("  end hidden (promised: 45 s)", "%s", distribution(f.recoveries, isHidden))
	h.printRow("remote workers that went on", "%d, after the kill of a coordinator", len(f.switchovers))
	h.printRow("  undisturbed (promised: 5 s)", "%s", distribution(f.switchovers, recovery.isPromised))
	h.Printf("\n")
	h.printFindings("LOST", f.lostTasks)
	h.printFindings("DUPLICATED", f.duplicates)
	h.printFindings("VIOLATION", f.violations)
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

// printFaults prints how many faults there were of each kind.
func (h *harness) printFaults() {
	counts, failed := make(map[faultKind]int), make(map[faultKind]int)
	for _, f := range h.faults {
		if counts[f.kind]++; f.isFailed {
			failed[f.kind]++
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		h.printRow("fault "+string(kind), "%d times, %d of them not possible", counts[kind], failed[kind])
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
