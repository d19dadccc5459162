// Command bench measures Cuelight, the lower bounds of its database, River and a poller, all in
// one run on one temporary PostgreSQL server.
//
//	cd bench && go run .            # everything: an hour
//	cd bench && go run . -quick     # three minutes
//	cd bench && go run . -snapshot  # with a snapshot held elsewhere: 50 minutes for each of eight runs
//	cd bench && go run . -quick -only e2e,drain,floor -systems cuelight
//	cd bench && go run . -quick -against HEAD~1 -only e2e,cpu,drain -rounds 5
//
// It prints figures while it runs, and the targets at the end. It writes a dated result with
// the figures of every round, and a report with charts, to bench/results. The last line of a quick run is
// one JSON object, the summary.
//
// It needs PostgreSQL's programs, and Go to build the daemon. If ffmpeg is missing, it skips what needs it, and the result
// says so. CUELIGHT_TEST_MEDIA is a directory with clips to transcode; missing clips are generated. It leaves no process and
// no database behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cuelight/cuelight/bench/scenario"
	"github.com/cuelight/cuelight/bench/system"
	"github.com/cuelight/cuelight/bench/system/cuelight"
	"github.com/cuelight/cuelight/bench/system/poller"
	"github.com/cuelight/cuelight/bench/system/river"
)

func main() {
	system.RunIfChild(systems)
	o, err := parseOptions(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	} else if err != nil {
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if o.against != "" {
		err = compare(ctx, o, os.Stdout)
	} else {
		err = run(ctx, o, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// polling is textbook code.
const polling = poller.Every(5 * time.Second)

// systems are those under test.
var systems = []system.System{cuelight.Local, cuelight.Remote, river.Tx, river.Fast, river.Default, polling}

// mode is how much is measured.
type mode int

// The modes: everything, the figures of the summary and of most targets, everything in its smallest size, and a steady load
// with a snapshot held elsewhere.
const (
	full mode = iota
	quick
	once
	held
)

func (m mode) String() string { return [...]string{"full", "quick", "once", "snapshot"}[m] }

const (
	slots      = 100                   // per stage, under full load
	workTime   = 20 * time.Millisecond // of stages that take time
	slowCommit = 2 * time.Millisecond  // additional time of a commit on a slow disk
)

// plan returns what a mode measures. Each group is measured in interleaved rounds, so that its runs can be compared. of
// selects a size of the full, the quick and the short plan.
func plan(m mode) []scenario.Group {
	if m == held {
		return snapshotPlan()
	}
	of := func(sizes ...int) int { return sizes[m] }
	seconds := func(sizes ...float64) time.Duration { return time.Duration(sizes[m] * float64(time.Second)) }
	var p planner
	p.group(of(3, 2, 1)) // an idle system
	p.add(scenario.Commits(1, of(300, 50, 5), 0))
	p.add(scenario.Commits(5, of(300, 100, 5), 0))
	p.add(scenario.Notify(of(300, 100, 5)))
	if m != quick {
		p.add(scenario.E2E(of(250, 0, 5), 0), river.Fast)
	}
	p.add(scenario.E2E(of(250, 50, 5), 0), cuelight.Local, river.Tx)
	p.add(scenario.HopToOtherProcess(of(250, 50, 5)), cuelight.Local)
	p.group(of(2, 1, 1))
	if m != quick {
		p.add(scenario.E2E(of(60, 0, 1), 0), river.Default)
	}
	p.add(scenario.SpreadE2E(of(60, 30, 5), seconds(10, 5, 0.01)), polling)
	p.group(of(3, 1, 1)) // a slow disk
	p.add(scenario.Commits(1, of(150, 50, 5), slowCommit))
	p.add(scenario.Commits(5, of(150, 50, 5), slowCommit))
	p.add(scenario.E2E(of(150, 50, 5), slowCommit), cuelight.Local)
	p.group(of(2, 1, 1))
	switch m {
	case full:
		p.add(scenario.Rate(scenario.RateOptions{
			Rates: []int{50, 100, 200, 400, 800, 1500, 3000}, Duration: 5 * time.Second, Warmup: 2 * time.Second,
		}), cuelight.Local, river.Tx, river.Fast)
	case quick:
		p.add(scenario.Rate(scenario.RateOptions{Rates: []int{400}, Duration: 3 * time.Second, Warmup: time.Second}), cuelight.Local)
	case once:
		p.add(scenario.Rate(scenario.RateOptions{Rates: []int{50, 100}, Duration: time.Second}), cuelight.Local)
	}
	p.group(of(3, 1, 1))
	p.add(scenario.Drain(of(5_000, 5_000, 200)), river.Tx, river.Fast)
	if m == quick { // River is slow
		p.group(3)
	}
	p.add(scenario.Drain(of(5_000, 5_000, 200)), cuelight.Local)
	p.add(scenario.NotificationCount(of(20_000, 5_000, 200)), cuelight.Local)
	if m == full {
		p.add(scenario.Drain(50_000), cuelight.Local)
		p.group(1)
		p.add(scenario.Drain(5_000), polling)
	}
	p.group(of(3, 1, 1))
	p.add(scenario.ProcessorTime(of(300, 150, 5), of(20_000, 10_000, 200)), cuelight.Local)
	p.group(of(3, 1, 1))
	for _, n := range [][]int{{1, 2, 4, 8, 16}, {1, 8}, {1, 2}}[m] {
		p.add(scenario.Processes(n, of(50_000, 10_000, 200), of(150, 0, 2)), cuelight.Local)
	}
	p.group(of(3, 1, 1))
	p.add(scenario.Overtaking(of(600, 600, 100), 8), cuelight.Local)
	p.group(of(3, 1, 1))
	p.add(scenario.Utilization(of(8_000, 4_800, 320), 32, workTime), cuelight.Local)
	p.group(of(3, 2, 1))
	for _, n := range [][]int{{0, 100_000, 1_000_000}, {0, 100_000}, {0, 1_000}}[m] {
		p.add(scenario.DrainWithFinished(n, of(20_000, 10_000, 200)), cuelight.Local)
	}
	p.group(1)
	switch m {
	case full:
		p.add(scenario.Snapshot(scenario.SnapshotOptions{
			Rate: 300, Before: time.Minute, Held: 3 * time.Minute, Recovery: 15 * time.Second, After: 45 * time.Second, FailEvery: 10,
		}), cuelight.Local, river.Fast, river.Tx)
	case once:
		p.add(scenario.Snapshot(scenario.SnapshotOptions{
			Rate: 50, Before: time.Second, Held: time.Second, After: time.Second, Users: 7, FailEvery: 10,
		}), cuelight.Local, river.Tx)
	}
	p.group(of(3, 1, 1))
	p.add(scenario.TriggerCost(of(100_000, 10_000, 200)), cuelight.Local)
	p.group(of(3, 1, 1))
	p.add(scenario.Parts(of(10_000, 10_000, 200)), cuelight.Local)
	p.group(1)
	p.add(scenario.IdleDaemon(seconds(10, 2, 1), seconds(60, 20, 2)), cuelight.Local)
	p.group(of(3, 1, 1))
	p.add(scenario.Start(of(250, 100, 5)), cuelight.Local, cuelight.Remote)
	p.add(scenario.RemoteDrain(of(5_000, 2_000, 200)), cuelight.Local, cuelight.Remote)
	p.group(1)
	p.add(scenario.WaitingWorkers(of(1000, 1000, 20), seconds(60, 8, 1)), cuelight.Local)
	p.group(of(4, 1, 1))
	p.add(scenario.Transcode([][]scenario.Clip{{
		clip("bbb_720p24_vp8_30s.webm", "1280x720", 24, 10*time.Second),
		clip("vfr_360p_17s.mp4", "640x360", 30, 10*time.Second),
		clip("vtest_576p10_msmpeg4_80s.avi", "1024x576", 50, 10*time.Second),
	}, {
		clip("", "1280x720", 30, 6*time.Second),
	}, {
		clip("", "640x360", 25, time.Second),
	}}[m]...), cuelight.Local)
	return slices.DeleteFunc(p.groups, func(g scenario.Group) bool { return len(g.Runs) == 0 })
}

// clip returns a file of the directory with clips or, if there is none, a generated clip.
func clip(file, size string, rate int, duration time.Duration) scenario.Clip {
	path := filepath.Join(mediaDir(), file)
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		return scenario.Clip{Name: strings.TrimSuffix(file, filepath.Ext(file)), Path: path}
	}
	return scenario.Clip{
		Name: fmt.Sprintf("generated_%sp%d_%v", size, rate, duration), Duration: duration,
		Picture: fmt.Sprintf("testsrc2=size=%s:rate=%d", size, rate),
	}
}

// snapshotPlan takes 50 minutes for each of its eight runs: ten, then 30 with a snapshot held, and ten again. Only Cuelight
// knows users.
func snapshotPlan() []scenario.Group {
	var p planner
	for _, failEvery := range []int{10, 0} {
		for _, users := range []int{7, 0} {
			measured := []system.System{cuelight.Local, river.Fast, river.Tx}
			if users > 0 {
				measured = measured[:1]
			}
			p.group(1)
			p.add(scenario.Snapshot(scenario.SnapshotOptions{
				Rate: 300, Before: 10 * time.Minute, Held: 30 * time.Minute, Recovery: time.Minute, After: 9 * time.Minute,
				Users: users, FailEvery: failEvery,
			}), measured...)
		}
	}
	return p.groups
}

type planner struct{ groups []scenario.Group }

// group begins a group.
func (p *planner) group(rounds int) { p.groups = append(p.groups, scenario.Group{Rounds: rounds}) }

// add adds a run of a scenario with each of the systems to the group, or one without a system.
func (p *planner) add(s scenario.Scenario, measured ...system.System) {
	if len(measured) == 0 {
		measured = []system.System{nil}
	}
	g := &p.groups[len(p.groups)-1]
	for _, one := range measured {
		g.Runs = append(g.Runs, scenario.Run{Scenario: s, System: one})
	}
}

// names returns the valid names of scenarios and of systems.
func names() (scenarios, ofSystems []string) {
	for _, m := range []mode{full, quick, once, held} {
		for _, g := range plan(m) {
			for _, r := range g.Runs {
				scenarios = append(scenarios, r.Scenario.Names...)
			}
		}
	}
	for _, s := range systems {
		ofSystems = append(ofSystems, s.Name())
	}
	slices.Sort(scenarios)
	return slices.Compact(scenarios), ofSystems
}
