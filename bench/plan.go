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

// group is measured in interleaved rounds, so that its entries can be compared.
type group struct {
	rounds  int
	entries []entry
}

// entry is a scenario with its systems.
type entry struct {
	scenario scenario.Scenario
	systems  []string // nil for scenarios without a system
}

const (
	slots      = 100                   // per stage, under full load
	workTime   = 20 * time.Millisecond // of stages that take time
	slowCommit = 2 * time.Millisecond  // additional time of a commit on a slow disk
)

// plan returns what a mode measures.
func plan(mode string) []group {
	switch mode {
	case modeQuick:
		return quickPlan()
	case modeOnce:
		return oncePlan()
	}
	return fullPlan()
}

// single returns a group with one entry of Cuelight.
func single(rounds int, s scenario.Scenario) group {
	return group{rounds, []entry{{s, cuelightOnly}}}
}

// fullPlan takes half an hour.
func fullPlan() []group {
	return []group{
		{rounds: 3, entries: []entry{ // an idle system
			{floor.Commits{Dependent: 1, Samples: 300}, nil},
			{floor.Commits{Dependent: 5, Samples: 300}, nil},
			{floor.Notify{Samples: 300}, nil},
			{floor.Commits{Dependent: 1, Samples: 3000, Tight: true}, nil},
			{floor.Commits{Dependent: 5, Samples: 1000, Tight: true}, nil},
			{floor.Notify{Samples: 3000, Tight: true}, nil},
			{scenario.E2E{Samples: 250, Slots: slots}, notified},
			{scenario.HopOther{Samples: 250, Slots: slots}, cuelightOnly},
		}},
		{rounds: 2, entries: []entry{
			{scenario.E2E{Samples: 100, Slots: slots, Within: 20 * time.Second}, defaultRiver},
			{scenario.E2E{Samples: 60, Slots: slots, Spread: 10 * time.Second}, pollers},
		}},
		{rounds: 3, entries: []entry{ // a slow disk
			{floor.Commits{Dependent: 1, Samples: 150, CommitDelay: slowCommit}, nil},
			{floor.Commits{Dependent: 5, Samples: 150, CommitDelay: slowCommit}, nil},
			{scenario.E2E{Samples: 150, Slots: slots, CommitDelay: slowCommit}, cuelightOnly},
		}},
		{rounds: 2, entries: []entry{
			{scenario.Rate{
				Rates: []int{50, 100, 200, 400, 800, 1500, 3000}, For: 5 * time.Second, Warmup: 2 * time.Second, Slots: slots,
			}, notified},
		}},
		{rounds: 3, entries: []entry{
			{scenario.Drain{Tasks: 5_000, Slots: slots}, notified},
			{scenario.Drain{Tasks: 50_000, Slots: slots}, cuelightOnly},
			{scenario.Notifies{Tasks: 20_000, Slots: slots}, cuelightOnly},
		}},
		{rounds: 1, entries: []entry{{scenario.Drain{Tasks: 5_000, Slots: slots}, pollers}}},
		{rounds: 3, entries: processes(50_000, 1, 2, 4, 8)},
		single(3, scenario.Order{Tasks: 600, Slots: 8}),
		single(3, scenario.WorkShare{Tasks: 8_000, Slots: 32, Work: workTime}),
		{rounds: 3, entries: grown(20_000, 0, 100_000, 1_000_000)},
		{rounds: 3, entries: held(80_000)},
		single(1, scenario.Size{Tasks: 50_000, Slots: slots}),
		single(3, scenario.Bulk{Tasks: 100_000}),
		single(1, scenario.IdleDaemon{Settle: 10 * time.Second, For: time.Minute}),
		{rounds: 4, entries: []entry{{scenario.Transcode{Clips: []scenario.Clip{
			{File: "bbb_720p24_vp8_30s.webm", Size: "1280x720", Rate: 24, For: 10 * time.Second},
			{File: "vfr_360p_17s.mp4", Size: "640x360", Rate: 30, For: 10 * time.Second},
			{File: "vtest_576p10_msmpeg4_80s.avi", Size: "1024x576", Rate: 50, For: 10 * time.Second},
		}}, cuelightOnly}}},
	}
}

// quickPlan has the figures of the summary and of most targets.
func quickPlan() []group {
	return []group{
		{rounds: 2, entries: []entry{
			{floor.Commits{Dependent: 1, Samples: 50}, nil},
			{floor.Commits{Dependent: 5, Samples: 100}, nil},
			{floor.Notify{Samples: 100}, nil},
			{scenario.E2E{Samples: 100, Slots: slots}, cuelightOnly},
			{scenario.E2E{Samples: 50, Slots: slots}, []string{"river_tx"}},
			{scenario.HopOther{Samples: 50, Slots: slots}, cuelightOnly},
		}},
		{rounds: 1, entries: []entry{
			{floor.Commits{Dependent: 5, Samples: 50, CommitDelay: slowCommit}, nil},
			{scenario.E2E{Samples: 50, Slots: slots, CommitDelay: slowCommit}, cuelightOnly},
		}},
		{rounds: 1, entries: []entry{
			{scenario.Rate{Rates: []int{400}, For: 3 * time.Second, Warmup: time.Second, Slots: slots}, cuelightOnly},
		}},
		{rounds: 1, entries: []entry{
			{scenario.E2E{Samples: 30, Slots: slots, Spread: 5 * time.Second}, pollers[:1]},
			{scenario.Drain{Tasks: 5_000, Slots: slots}, tunedRiver},
		}},
		{rounds: 3, entries: []entry{
			{scenario.Drain{Tasks: 5_000, Slots: slots}, cuelightOnly},
			{scenario.Notifies{Tasks: 5_000, Slots: slots}, cuelightOnly},
		}},
		{rounds: 1, entries: processes(10_000, 1, 8)},
		single(1, scenario.Order{Tasks: 600, Slots: 8}),
		single(1, scenario.WorkShare{Tasks: 4_800, Slots: 32, Work: workTime}),
		{rounds: 2, entries: grown(10_000, 0, 100_000)},
		{rounds: 1, entries: held(10_000)},
		single(1, scenario.Size{Tasks: 5_000, Slots: slots}),
		single(1, scenario.Bulk{Tasks: 10_000}),
		single(1, scenario.IdleDaemon{Settle: 2 * time.Second, For: 20 * time.Second}),
		{rounds: 1, entries: []entry{{scenario.Transcode{Clips: []scenario.Clip{
			{Size: "1280x720", Rate: 30, For: 6 * time.Second},
		}}, cuelightOnly}}},
	}
}

// oncePlan has every scenario in its smallest size.
func oncePlan() []group {
	return []group{{rounds: 1, entries: slices.Concat([]entry{
		{floor.Commits{Dependent: 1, Samples: 5}, nil},
		{floor.Commits{Dependent: 5, Samples: 5, Tight: true}, nil},
		{floor.Commits{Dependent: 5, Samples: 5, CommitDelay: slowCommit}, nil},
		{floor.Notify{Samples: 5}, nil},
		{scenario.E2E{Samples: 5, Slots: slots}, notified},
		{scenario.E2E{Samples: 1, Slots: slots, Within: time.Millisecond}, defaultRiver},
		{scenario.E2E{Samples: 2, Slots: slots, Spread: time.Millisecond}, pollers[1:]},
		{scenario.E2E{Samples: 5, Slots: slots, CommitDelay: slowCommit}, cuelightOnly},
		{scenario.HopOther{Samples: 5, Slots: slots}, cuelightOnly},
		{scenario.Rate{Rates: []int{50, 100}, For: time.Second, Warmup: 200 * time.Millisecond, Slots: slots}, cuelightOnly},
		{scenario.Drain{Tasks: 200, Slots: slots}, notified},
		{scenario.Notifies{Tasks: 200, Slots: slots}, cuelightOnly},
		{scenario.Order{Tasks: 100, Slots: 8}, cuelightOnly},
		{scenario.WorkShare{Tasks: 320, Slots: 32, Work: workTime}, cuelightOnly},
		{scenario.Size{Tasks: 200, Slots: slots}, cuelightOnly},
		{scenario.Bulk{Tasks: 200}, cuelightOnly},
		{scenario.IdleDaemon{Settle: time.Second, For: 2 * time.Second}, cuelightOnly},
		{scenario.Transcode{Clips: []scenario.Clip{{Size: "640x360", Rate: 25, For: time.Second}}}, cuelightOnly},
	}, processes(200, 1, 2), grown(200, 0, 1_000), held(200))}}
}

// processes compares numbers of processes.
func processes(tasks int, counts ...int) (entries []entry) {
	for _, n := range counts {
		entries = append(entries, entry{scenario.Processes{Processes: n, Tasks: tasks, Slots: slots}, cuelightOnly})
	}
	return entries
}

// grown compares tables with numbers of finished tasks.
func grown(tasks int, counts ...int) (entries []entry) {
	for _, n := range counts {
		entries = append(entries, entry{scenario.Grown{Finished: n, Tasks: tasks, Slots: slots}, cuelightOnly})
	}
	return entries
}

// held compares a drain with and without a snapshot held elsewhere.
func held(tasks int) []entry {
	return []entry{
		{scenario.Held{Tasks: tasks, Slots: slots}, cuelightOnly},
		{scenario.Held{Tasks: tasks, Slots: slots, Hold: true}, cuelightOnly},
	}
}

// scenarioNames returns the valid names for -only.
func scenarioNames() map[string]bool {
	names := make(map[string]bool)
	for _, mode := range []string{modeFull, modeQuick, modeOnce} {
		for _, g := range plan(mode) {
			for _, e := range g.entries {
				for _, name := range e.scenario.Names() {
					names[name] = true
				}
			}
		}
	}
	return names
}
