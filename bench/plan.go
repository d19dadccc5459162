package main

import (
	"slices"
	"time"

	"github.com/cuelight/cuelight/bench/floor"
	"github.com/cuelight/cuelight/bench/scenario"
)

// The modes.
const (
	modeFull  = "full"
	modeQuick = "quick"
	modeOnce  = "once"
)

// entry is a scenario with those who take part in it.
type entry struct {
	scenario    scenario.Scenario
	contestants []string // none: it takes none
}

// group is what is interleaved, so that it can be compared.
type group struct {
	rounds  int
	entries []entry
}

// slots is how many tasks are worked on at once in each stage under full load.
const slots = 100

// plan is what is measured in a mode.
func plan(mode string) []group {
	switch mode {
	case modeQuick:
		return quickPlan()
	case modeOnce:
		return oncePlan()
	}
	return fullPlan()
}

// fullPlan takes some twenty minutes.
func fullPlan() []group {
	return []group{
		{rounds: 3, entries: []entry{ // a system that has nothing to do
			{floor.Commits{Dependent: 1, Samples: 300}, nil},
			{floor.Commits{Dependent: 5, Samples: 300}, nil},
			{floor.Notify{Samples: 300}, nil},
			{floor.Commits{Dependent: 1, Samples: 3000, Tight: true}, nil},
			{floor.Commits{Dependent: 5, Samples: 1000, Tight: true}, nil},
			{floor.Notify{Samples: 3000, Tight: true}, nil},
			{scenario.E2E{Samples: 250, Slots: slots}, woken()},
			{scenario.HopOther{Samples: 250, Slots: slots}, ours()},
		}},
		{rounds: 2, entries: []entry{
			{scenario.E2E{Samples: 100, Slots: slots, Within: 20 * time.Second}, sleepers()},
			{scenario.E2E{Samples: 60, Slots: slots, Spread: 10 * time.Second}, pollers()},
		}},
		{rounds: 3, entries: []entry{ // a slow disk
			{floor.Commits{Dependent: 1, Samples: 150, CommitDelay: slowCommit}, nil},
			{floor.Commits{Dependent: 5, Samples: 150, CommitDelay: slowCommit}, nil},
			{scenario.E2E{Samples: 150, Slots: slots, CommitDelay: slowCommit}, ours()},
		}},
		{rounds: 2, entries: []entry{
			{scenario.Rate{
				Rates: []int{50, 100, 200, 400, 800, 1500, 3000}, For: 5 * time.Second, Warmup: 2 * time.Second, Slots: slots,
			}, woken()},
		}},
		{rounds: 3, entries: []entry{
			{scenario.Drain{Tasks: 5_000, Slots: slots}, woken()},
			{scenario.Drain{Tasks: 50_000, Slots: slots}, ours()},
			{scenario.Notifies{Tasks: 20_000, Slots: slots}, ours()},
		}},
		{rounds: 1, entries: []entry{{scenario.Drain{Tasks: 5_000, Slots: slots}, pollers()}}},
		{rounds: 3, entries: processes(50_000, 1, 2, 4, 8)},
		{rounds: 3, entries: []entry{{scenario.Order{Tasks: 600, Slots: 8}, ours()}}},
		{rounds: 3, entries: []entry{{scenario.WorkShare{Tasks: 8_000, Slots: 32, Work: work}, ours()}}},
		{rounds: 3, entries: grown(20_000, 0, 100_000, 1_000_000)},
		{rounds: 3, entries: held(80_000)},
		{rounds: 1, entries: []entry{{scenario.Size{Tasks: 50_000, Slots: slots}, ours()}}},
		{rounds: 3, entries: []entry{{scenario.Bulk{Tasks: 100_000}, ours()}}},
		{rounds: 1, entries: []entry{{scenario.IdleDaemon{Settle: 10 * time.Second, For: time.Minute}, ours()}}},
		{rounds: 4, entries: []entry{{scenario.Transcode{Clips: []scenario.Clip{
			{File: "bbb_720p24_vp8_30s.webm", Size: "1280x720", Rate: 24, For: 10 * time.Second},
			{File: "vfr_360p_17s.mp4", Size: "640x360", Rate: 30, For: 10 * time.Second},
			{File: "vtest_576p10_msmpeg4_80s.avi", Size: "1024x576", Rate: 50, For: 10 * time.Second},
		}}, ours()}}},
	}
}

// quickPlan has the figures of the summary and most of the targets.
func quickPlan() []group {
	return []group{
		{rounds: 2, entries: []entry{
			{floor.Commits{Dependent: 1, Samples: 50}, nil},
			{floor.Commits{Dependent: 5, Samples: 100}, nil},
			{floor.Notify{Samples: 100}, nil},
			{scenario.E2E{Samples: 100, Slots: slots}, ours()},
			{scenario.E2E{Samples: 50, Slots: slots}, []string{"river_tx"}},
			{scenario.HopOther{Samples: 50, Slots: slots}, ours()},
		}},
		{rounds: 1, entries: []entry{
			{floor.Commits{Dependent: 5, Samples: 50, CommitDelay: slowCommit}, nil},
			{scenario.E2E{Samples: 50, Slots: slots, CommitDelay: slowCommit}, ours()},
		}},
		{rounds: 1, entries: []entry{
			{scenario.Rate{Rates: []int{400}, For: 3 * time.Second, Warmup: time.Second, Slots: slots}, ours()},
		}},
		{rounds: 1, entries: []entry{
			{scenario.E2E{Samples: 30, Slots: slots, Spread: 5 * time.Second}, pollers()[:1]},
			{scenario.Drain{Tasks: 5_000, Slots: slots}, rivers()},
		}},
		{rounds: 3, entries: []entry{
			{scenario.Drain{Tasks: 5_000, Slots: slots}, ours()},
			{scenario.Notifies{Tasks: 5_000, Slots: slots}, ours()},
		}},
		{rounds: 1, entries: processes(10_000, 1, 8)},
		{rounds: 1, entries: []entry{{scenario.Order{Tasks: 600, Slots: 8}, ours()}}},
		{rounds: 1, entries: []entry{{scenario.WorkShare{Tasks: 4_800, Slots: 32, Work: work}, ours()}}},
		{rounds: 2, entries: grown(10_000, 0, 100_000)},
		{rounds: 1, entries: held(10_000)},
		{rounds: 1, entries: []entry{{scenario.Size{Tasks: 5_000, Slots: slots}, ours()}}},
		{rounds: 1, entries: []entry{{scenario.Bulk{Tasks: 10_000}, ours()}}},
		{rounds: 1, entries: []entry{{scenario.IdleDaemon{Settle: 2 * time.Second, For: 20 * time.Second}, ours()}}},
		{rounds: 1, entries: []entry{{scenario.Transcode{Clips: []scenario.Clip{
			{Size: "1280x720", Rate: 30, For: 6 * time.Second},
		}}, ours()}}},
	}
}

// oncePlan has everything there is, as small as it can be.
func oncePlan() []group {
	return []group{{rounds: 1, entries: slices.Concat([]entry{
		{floor.Commits{Dependent: 1, Samples: 5}, nil},
		{floor.Commits{Dependent: 5, Samples: 5, Tight: true}, nil},
		{floor.Commits{Dependent: 5, Samples: 5, CommitDelay: slowCommit}, nil},
		{floor.Notify{Samples: 5}, nil},
		{scenario.E2E{Samples: 5, Slots: slots}, woken()},
		{scenario.E2E{Samples: 1, Slots: slots, Within: time.Millisecond}, sleepers()},
		{scenario.E2E{Samples: 2, Slots: slots, Spread: time.Millisecond}, pollers()[1:]},
		{scenario.E2E{Samples: 5, Slots: slots, CommitDelay: slowCommit}, ours()},
		{scenario.HopOther{Samples: 5, Slots: slots}, ours()},
		{scenario.Rate{Rates: []int{50, 100}, For: time.Second, Warmup: 200 * time.Millisecond, Slots: slots}, ours()},
		{scenario.Drain{Tasks: 200, Slots: slots}, woken()},
		{scenario.Notifies{Tasks: 200, Slots: slots}, ours()},
		{scenario.Order{Tasks: 100, Slots: 8}, ours()},
		{scenario.WorkShare{Tasks: 320, Slots: 32, Work: work}, ours()},
		{scenario.Size{Tasks: 200, Slots: slots}, ours()},
		{scenario.Bulk{Tasks: 200}, ours()},
		{scenario.IdleDaemon{Settle: time.Second, For: 2 * time.Second}, ours()},
		{scenario.Transcode{Clips: []scenario.Clip{{Size: "640x360", Rate: 25, For: time.Second}}}, ours()},
	}, processes(200, 1, 2), grown(200, 0, 1_000), held(200))}}
}

// work is how long a stage takes that does not do nothing.
const work = 20 * time.Millisecond

// slowCommit is how much longer a commit takes on a slow disk.
const slowCommit = 2 * time.Millisecond

// processes has a crew of so many processes, and one of more.
func processes(tasks int, each ...int) []entry {
	var all []entry
	for _, n := range each {
		all = append(all, entry{scenario.Processes{Processes: n, Tasks: tasks, Slots: slots}, ours()})
	}
	return all
}

// grown has a table with so many finished tasks, and one with more.
func grown(tasks int, each ...int) []entry {
	var all []entry
	for _, n := range each {
		all = append(all, entry{scenario.Grown{Finished: n, Tasks: tasks, Slots: slots}, ours()})
	}
	return all
}

// held is with a snapshot elsewhere, and without.
func held(tasks int) []entry {
	return []entry{
		{scenario.Held{Tasks: tasks, Slots: slots}, ours()},
		{scenario.Held{Tasks: tasks, Slots: slots, Hold: true}, ours()},
	}
}

// scenarios are the words for -only.
func scenarios() map[string]bool {
	known := make(map[string]bool)
	for _, mode := range []string{modeFull, modeQuick, modeOnce} {
		for _, g := range plan(mode) {
			for _, e := range g.entries {
				for _, name := range e.scenario.Names() {
					known[name] = true
				}
			}
		}
	}
	return known
}
