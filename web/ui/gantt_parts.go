package ui

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/cuelight/cuelight/store"
)

// maxPartLanes is how many lanes the hosts of a stage's parts have; the last one is then for all other hosts.
const maxPartLanes = 8

// partBar is an attempt at a part.
type partBar struct {
	host string
	part int
	bar
}

// addParts adds what was done for the parts of a stage to its lane, or lanes for several parts.
func addParts(lane ganttLane, bars []partBar) []ganttLane {
	if slices.ContainsFunc(bars, func(b partBar) bool { return b.part > 1 }) {
		return append([]ganttLane{lane}, partLanes(lane.Stage, bars)...)
	}
	for _, b := range bars {
		lane.Bars = append(lane.Bars, mergeParts(lane.Stage, b.host, []partBar{b})...)
	}
	return []ganttLane{lane}
}

// partLanes returns a lane for each host that worked on parts of a stage. Attempts with the same outcome that overlap, or
// follow each other closely, are one bar.
func partLanes(stage string, bars []partBar) (lanes []ganttLane) {
	byHost := make(map[string][]partBar)
	var hosts []string
	for _, b := range bars {
		host := b.host
		if _, ok := byHost[host]; !ok {
			if len(hosts) == maxPartLanes {
				host = hosts[maxPartLanes-1]
			} else {
				hosts = append(hosts, host)
			}
		}
		byHost[host] = append(byHost[host], b)
	}
	for i, host := range hosts {
		name := host
		if i == maxPartLanes-1 && slices.ContainsFunc(byHost[host], func(b partBar) bool { return b.host != host }) {
			name = "other hosts"
		}
		lanes = append(lanes, ganttLane{Stage: stage, Host: name, Bars: mergeParts(stage, name, byHost[host])})
	}
	return lanes
}

// partBars returns the finished and the running attempts at the parts of a stage, the first one first.
func partBars(stage string, history []store.Attempt, c current, now time.Time) (all []partBar) {
	for _, a := range history {
		if a.Stage == stage && a.Part > 0 {
			host := printable(cmp.Or(a.WorkerName, a.Host, "unknown"))
			all = append(all, partBar{host, a.Part, bar{Kind: a.Outcome, from: a.StartedAt, to: a.FinishedAt}})
		}
	}
	for _, p := range c.parts {
		if p.Stage == stage && p.Status == store.StatusInProgress && p.LockedAt != nil {
			host := "unknown"
			for _, w := range c.Workers {
				if w.ID == p.LockedBy {
					host = printable(cmp.Or(w.Name, w.Host))
				}
			}
			all = append(all, partBar{host, p.Part, bar{Kind: "running", from: *p.LockedAt, to: laterOf(now, *p.LockedAt)}})
		}
	}
	slices.SortStableFunc(all, func(a, b partBar) int { return a.from.Compare(b.from) })
	return all
}

// mergeParts returns the bars of a host: those of completed attempts first, so that others are drawn above them.
func mergeParts(stage, host string, all []partBar) (bars []bar) {
	for _, kind := range []string{"completed", "running", "released", "cancelled", "expired", "failed"} {
		var merged []bar
		var parts []int
		for _, b := range all {
			if b.Kind != kind {
				continue
			}
			if n := len(merged); n > 0 && b.from.Sub(merged[n-1].to) < maxExchange {
				merged[n-1].to = laterOf(merged[n-1].to, b.to)
				parts[n-1]++
				continue
			}
			b.bar.Title = fmt.Sprintf("%s part %d", stage, b.part)
			merged, parts = append(merged, b.bar), append(parts, 1)
		}
		for i, b := range merged {
			if parts[i] > 1 {
				b.Title = stage + ": " + count(parts[i], "attempt") + " at parts"
			}
			word := map[string]string{"running": "in progress"}[kind]
			b.Title += fmt.Sprintf(" %s on %s in %s", cmp.Or(word, kind), host, formatDuration(b.to.Sub(b.from)))
			bars = append(bars, b)
		}
	}
	return bars
}
