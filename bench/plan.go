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
	modeHeld  = "snapshot"
)

const (
	slots      = 100                   // per stage, under full load
	workTime   = 20 * time.Millisecond // of stages that take time
	slowCommit = 2 * time.Millisecond  // additional time of a commit on a slow disk
)

// plan returns what a mode measures.
func plan(mode string) []scenario.Group {
	switch mode {
	case modeQuick:
		return quickPlan()
	case modeOnce:
		return oncePlan()
	case modeHeld:
		return snapshotPlan()
	}
	return fullPlan()
}

// group returns runs that are measured in interleaved rounds, so that they can be compared.
func group(rounds int, runs ...[]scenario.Run) scenario.Group {
	return scenario.Group{Rounds: rounds, Runs: slices.Concat(runs...)}
}

// runs returns a run of a scenario with each of the systems, or one without a system.
func runs(s scenario.Scenario, systems ...string) (all []scenario.Run) {
	for _, name := range systems {
		system, _ := systemByName(name) // the plan has no others
		all = append(all, scenario.Run{Scenario: s, System: system})
	}
	if all == nil {
		all = []scenario.Run{{Scenario: s}}
	}
	return all
}

// cuelightRuns returns a run of a scenario with Cuelight.
func cuelightRuns(s scenario.Scenario) []scenario.Run { return runs(s, "cuelight") }

// fullPlan takes an hour.
func fullPlan() []scenario.Group {
	return []scenario.Group{
		group(3, // an idle system
			runs(floor.Commits(1, floor.Options{Samples: 300})),
			runs(floor.Commits(5, floor.Options{Samples: 300})),
			runs(floor.Notify(floor.Options{Samples: 300})),
			runs(floor.Commits(1, floor.Options{Samples: 3000, WithoutPauses: true})),
			runs(floor.Commits(5, floor.Options{Samples: 1000, WithoutPauses: true})),
			runs(floor.Notify(floor.Options{Samples: 3000, WithoutPauses: true})),
			runs(scenario.E2E(scenario.E2EOptions{Samples: 250}), notified...),
			cuelightRuns(scenario.HopToOtherProcess(250)),
		),
		group(2,
			runs(scenario.E2E(scenario.E2EOptions{Samples: 100, TimeLimit: 20 * time.Second}), defaultRiver...),
			runs(scenario.E2E(scenario.E2EOptions{Samples: 60, Spread: 10 * time.Second}), pollers...),
		),
		group(3, // a slow disk
			runs(floor.Commits(1, floor.Options{Samples: 150, CommitDelay: slowCommit})),
			runs(floor.Commits(5, floor.Options{Samples: 150, CommitDelay: slowCommit})),
			cuelightRuns(scenario.E2E(scenario.E2EOptions{Samples: 150, CommitDelay: slowCommit})),
		),
		group(2,
			runs(scenario.Rate(scenario.RateOptions{
				Rates: []int{50, 100, 200, 400, 800, 1500, 3000}, Duration: 5 * time.Second, Warmup: 2 * time.Second,
			}), notified...),
		),
		group(3,
			runs(scenario.Drain(5_000), notified...),
			cuelightRuns(scenario.Drain(50_000)),
			cuelightRuns(scenario.NotificationCount(20_000)),
		),
		group(1, runs(scenario.Drain(5_000), pollers...)),
		group(3, cuelightRuns(scenario.ProcessorTime(300, 20_000))),
		group(3, processes(50_000, 150, 1, 2, 4, 8, 16)),
		group(3, cuelightRuns(scenario.Overtaking(600, 8))),
		group(3, cuelightRuns(scenario.Utilization(8_000, 32, workTime))),
		group(3, grown(20_000, 0, 100_000, 1_000_000)),
		group(1, runs(shortSnapshot(), "cuelight", "river_fast", "river_tx")),
		group(1, cuelightRuns(scenario.Size(50_000))),
		group(3, cuelightRuns(scenario.TriggerCost(100_000))),
		group(3, cuelightRuns(scenario.Parts(10_000))),
		group(1, cuelightRuns(scenario.IdleDaemon(10*time.Second, time.Minute))),
		group(3, runs(scenario.Start(250), localAndRemote...), runs(scenario.RemoteDrain(5_000), localAndRemote...)),
		group(1, cuelightRuns(scenario.WaitingWorkers(1000, time.Minute))),
		group(4, cuelightRuns(scenario.Transcode(
			scenario.Clip{File: "bbb_720p24_vp8_30s.webm", Size: "1280x720", Rate: 24, Duration: 10 * time.Second},
			scenario.Clip{File: "vfr_360p_17s.mp4", Size: "640x360", Rate: 30, Duration: 10 * time.Second},
			scenario.Clip{File: "vtest_576p10_msmpeg4_80s.avi", Size: "1024x576", Rate: 50, Duration: 10 * time.Second},
		))),
	}
}

// quickPlan has the figures of the summary and of most targets.
func quickPlan() []scenario.Group {
	return []scenario.Group{
		group(2,
			runs(floor.Commits(1, floor.Options{Samples: 50})),
			runs(floor.Commits(5, floor.Options{Samples: 100})),
			runs(floor.Notify(floor.Options{Samples: 100})),
			cuelightRuns(scenario.E2E(scenario.E2EOptions{Samples: 100})),
			runs(scenario.E2E(scenario.E2EOptions{Samples: 50}), "river_tx"),
			cuelightRuns(scenario.HopToOtherProcess(50)),
		),
		group(1,
			runs(floor.Commits(5, floor.Options{Samples: 50, CommitDelay: slowCommit})),
			cuelightRuns(scenario.E2E(scenario.E2EOptions{Samples: 50, CommitDelay: slowCommit})),
		),
		group(1,
			cuelightRuns(scenario.Rate(scenario.RateOptions{
				Rates: []int{400}, Duration: 3 * time.Second, Warmup: time.Second,
			})),
		),
		group(1,
			runs(scenario.E2E(scenario.E2EOptions{Samples: 30, Spread: 5 * time.Second}), pollers...),
			runs(scenario.Drain(5_000), tunedRiver...),
		),
		group(3,
			cuelightRuns(scenario.Drain(5_000)),
			cuelightRuns(scenario.NotificationCount(5_000)),
		),
		group(1, cuelightRuns(scenario.ProcessorTime(150, 10_000))),
		group(1, processes(10_000, 0, 1, 8)),
		group(1, cuelightRuns(scenario.Overtaking(600, 8))),
		group(1, cuelightRuns(scenario.Utilization(4_800, 32, workTime))),
		group(2, grown(10_000, 0, 100_000)),
		group(1, cuelightRuns(scenario.Size(5_000))),
		group(1, cuelightRuns(scenario.TriggerCost(10_000))),
		group(1, cuelightRuns(scenario.Parts(10_000))),
		group(1, cuelightRuns(scenario.IdleDaemon(2*time.Second, 20*time.Second))),
		group(1, runs(scenario.Start(100), localAndRemote...), runs(scenario.RemoteDrain(2_000), localAndRemote...)),
		group(1, cuelightRuns(scenario.WaitingWorkers(1000, 8*time.Second))),
		group(1, cuelightRuns(scenario.Transcode(
			scenario.Clip{Size: "1280x720", Rate: 30, Duration: 6 * time.Second},
		))),
	}
}

// oncePlan has every scenario in its smallest size.
func oncePlan() []scenario.Group {
	return []scenario.Group{group(1,
		runs(floor.Commits(1, floor.Options{Samples: 5})),
		runs(floor.Commits(5, floor.Options{Samples: 5, WithoutPauses: true})),
		runs(floor.Commits(5, floor.Options{Samples: 5, CommitDelay: slowCommit})),
		runs(floor.Notify(floor.Options{Samples: 5})),
		runs(scenario.E2E(scenario.E2EOptions{Samples: 5}), notified...),
		runs(scenario.E2E(scenario.E2EOptions{Samples: 1, TimeLimit: time.Millisecond}), defaultRiver...),
		runs(scenario.E2E(scenario.E2EOptions{Samples: 2, Spread: time.Millisecond}), pollers...),
		cuelightRuns(scenario.E2E(scenario.E2EOptions{Samples: 5, CommitDelay: slowCommit})),
		cuelightRuns(scenario.HopToOtherProcess(5)),
		cuelightRuns(scenario.Rate(scenario.RateOptions{
			Rates: []int{50, 100}, Duration: time.Second, Warmup: 200 * time.Millisecond,
		})),
		runs(scenario.Drain(200), notified...),
		cuelightRuns(scenario.NotificationCount(200)),
		cuelightRuns(scenario.ProcessorTime(5, 200)),
		cuelightRuns(scenario.Overtaking(100, 8)),
		cuelightRuns(scenario.Utilization(320, 32, workTime)),
		runs(scenario.Snapshot(scenario.SnapshotOptions{
			Rate: 50, Before: time.Second, Held: time.Second, After: time.Second, Users: 7, FailEvery: 10,
		}), "cuelight", "river_tx"),
		cuelightRuns(scenario.Size(200)),
		cuelightRuns(scenario.TriggerCost(200)),
		cuelightRuns(scenario.Parts(200)),
		cuelightRuns(scenario.IdleDaemon(time.Second, 2*time.Second)),
		runs(scenario.Start(5), localAndRemote...),
		runs(scenario.RemoteDrain(200), localAndRemote...),
		cuelightRuns(scenario.WaitingWorkers(20, time.Second)),
		cuelightRuns(scenario.Transcode(scenario.Clip{Size: "640x360", Rate: 25, Duration: time.Second})),
		processes(200, 2, 1, 2), grown(200, 0, 1_000),
	)}
}

// snapshotPlan takes 50 minutes for each of its eight runs: ten, then 30 with a snapshot held, and ten again. Only Cuelight
// knows users.
func snapshotPlan() (all []scenario.Group) {
	for _, failEvery := range []int{10, 0} {
		for _, users := range []int{7, 0} {
			systems := []string{"cuelight", "river_fast", "river_tx"}
			if users > 0 {
				systems = systems[:1]
			}
			all = append(all, group(1, runs(scenario.Snapshot(scenario.SnapshotOptions{
				Rate: 300, Before: 10 * time.Minute, Held: 30 * time.Minute, Recovery: time.Minute, After: 9 * time.Minute,
				Users: users, FailEvery: failEvery,
			}), systems...)))
		}
	}
	return all
}

// shortSnapshot takes five minutes.
func shortSnapshot() scenario.Scenario {
	return scenario.Snapshot(scenario.SnapshotOptions{
		Rate: 300, Before: time.Minute, Held: 3 * time.Minute, Recovery: 15 * time.Second, After: 45 * time.Second, FailEvery: 10,
	})
}

// processes compares numbers of processes.
func processes(tasks, oneByOne int, counts ...int) (all []scenario.Run) {
	for _, n := range counts {
		all = append(all, cuelightRuns(scenario.Processes(n, tasks, oneByOne))...)
	}
	return all
}

// grown compares tables with numbers of finished tasks.
func grown(tasks int, counts ...int) (all []scenario.Run) {
	for _, n := range counts {
		all = append(all, cuelightRuns(scenario.DrainWithFinished(n, tasks))...)
	}
	return all
}

// scenarioNames returns the valid names for -only.
func scenarioNames() map[string]bool {
	names := make(map[string]bool)
	for _, mode := range []string{modeFull, modeQuick, modeOnce, modeHeld} {
		for _, g := range plan(mode) {
			for _, r := range g.Runs {
				for _, name := range r.Scenario.Names {
					names[name] = true
				}
			}
		}
	}
	return names
}
