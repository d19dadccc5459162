// Package scenario has the workloads of the benchmark: how tasks arrive, what is measured
// while they pass the stages, and how often. A [Scenario] is one function that measures once; each [Trial] hands
// it a system, with a database of its own.
//
//	server, err := scenario.StartServer(ctx, dir, memoryMiB)
//	session := scenario.Session{Server: server, Result: r, Logf: log.Logf, Slots: 100}
//	err = session.Run(ctx, scenario.Group{Rounds: 3, Runs: []scenario.Run{
//		{Scenario: scenario.Drain(5000), System: cuelight.Local},
//		{Scenario: scenario.Drain(5000), System: river.Tx},
//	}})
//
// Every workload counts its observations: a stage that starts or is completed twice, or a task
// that does not finish, is an error and gives no figure.
package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/bench/report"
	"github.com/cuelight/cuelight/bench/system"
)

// Scenario is a workload of a certain size.
type Scenario struct {
	// Names are those of its figures, and of the group that it belongs to.
	Names []string

	// Settings are those of its database, as "name=value".
	Settings []string

	// Measure measures once and records the figures.
	Measure func(ctx context.Context, t *Trial) error
}

// Run is a scenario with a system.
type Run struct {
	Scenario Scenario
	System   system.System // nil for the floor
}

// SystemName returns the name under which the figures are recorded: "floor" without a system.
func (r Run) SystemName() string {
	if r.System == nil {
		return "floor"
	}
	return r.System.Name()
}

// Group is runs that are compared: each round has all of them, and starts with another one.
type Group struct {
	Rounds int
	Runs   []Run
}

// Select keeps the runs whose scenario has one of the names and whose system is one of
// those. No names, or no systems, select all; the floor always stays.
func (g Group) Select(names, systems []string) Group {
	g.Runs = slices.DeleteFunc(slices.Clone(g.Runs), func(r Run) bool {
		isNamed := func(name string) bool { return slices.Contains(names, name) }
		return len(names) > 0 && !slices.ContainsFunc(r.Scenario.Names, isNamed) ||
			len(systems) > 0 && r.System != nil && !slices.Contains(systems, r.SystemName())
	})
	return g
}

// Session measures runs on one server and collects one result.
type Session struct {
	*Server
	Result *report.Result
	Logf   func(format string, args ...any)
	Slots  int    // per stage
	Dir    string // for files of scenarios
}

// Run measures a group. It adds the error of a run to the result and omits that run from later
// rounds; the others continue. It returns an error if the server fails or ctx is done.
func (s *Session) Run(ctx context.Context, g Group) error {
	failed := make([]bool, len(g.Runs))
	for round := range g.Rounds {
		for n := range g.Runs {
			i := (n + round) % len(g.Runs)
			if failed[i] {
				continue
			}
			err := s.measure(ctx, g.Runs[i], round)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err == nil {
				continue
			}
			failed[i] = true
			s.recordError(g.Runs[i], round, err)
			if err := s.Check(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// errNotMeasured says that the machine cannot be measured in a scenario.
var errNotMeasured = errors.New("not measured")

// recordError adds the reason why a run has no figure, in one line that fits into a table.
func (s *Session) recordError(r Run, round int, err error) {
	reason := strings.Join(strings.Fields(err.Error()), " ")
	if !errors.Is(err, errNotMeasured) {
		reason = fmt.Sprintf("error in round %d: %s", round+1, reason)
	}
	key := r.Scenario.Names[0] + "/" + r.SystemName()
	s.Result.Skip(key, reason)
	s.Logf("%s: %s", key, reason)
}

// runTimeout ends runs that hang. The longest run takes 50 minutes.
const runTimeout = time.Hour

// measure measures a run in a database of its own.
func (s *Session) measure(ctx context.Context, r Run, round int) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, runTimeout, fmt.Errorf("it took longer than %v", runTimeout))
	defer cancel()
	url, drop, err := s.CreateDatabase(ctx, r.Scenario.Settings...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	if r.System != nil {
		if err := r.System.SetUp(ctx, url); err != nil {
			return err
		}
		s.Result.Settings[r.SystemName()] = r.System.Settings()
	}
	// A run must not pay for the dirty pages and the garbage of those before it.
	if err := s.Checkpoint(ctx); err != nil {
		return err
	}
	runtime.GC()
	return r.Scenario.Measure(ctx, &Trial{Run: r, Session: s, Round: round, URL: url})
}

// Trial is one run of a scenario with one system in one round.
type Trial struct {
	Run
	*Session
	Round int    // from 0
	URL   string // of a database of its own, with the system's tables
}

// RecordValue adds a number to a figure of the system and logs it.
func (t *Trial) RecordValue(scenario, caseName, unit string, v float64) {
	t.RecordFor(t.SystemName(), scenario, caseName, unit, report.FromValue(v))
}

// RecordDurations is RecordValue for samples of a latency.
func (t *Trial) RecordDurations(scenario, caseName string, samples []time.Duration) {
	t.RecordFor(t.SystemName(), scenario, caseName, "ms", report.FromDurations(samples))
}

// RecordFor adds a round for another system that is measured in the same trial.
func (t *Trial) RecordFor(name, scenario, caseName, unit string, r report.Round) {
	key := report.Key{Scenario: scenario, System: name, Case: caseName}
	t.Result.Add(key, unit, r)
	if r.N == 0 {
		t.Logf("%-44s %10.4g %s", key, r.Value, unit)
		return
	}
	t.Logf("%-44s %10.4g %s  p95 %.4g  p99 %.4g  max %.4g  (%d)", key, r.Value, unit, r.P95, r.P99, r.Max, r.N)
}

const (
	stuckTimeout = 30 * time.Second // how long a workload may wait without progress
	stopTimeout  = time.Minute      // how long workers may take to stop, even if the trial is cancelled
)

// stop stops workers and adds their errors to err.
func (t *Trial) stop(ctx context.Context, err *error, workers ...system.Workers) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	for _, w := range workers {
		*err = errors.Join(*err, w.Stop(ctx))
	}
}

// starter starts all workers of a measurement.
type starter func(context.Context, system.Options) ([]system.Workers, error)

// start starts workers in this process.
func (t *Trial) start(ctx context.Context, o system.Options) ([]system.Workers, error) {
	o.Slots = cmp.Or(o.Slots, t.Slots)
	w, err := t.System.Start(ctx, t.URL, o)
	if err != nil {
		return nil, err
	}
	return []system.Workers{w}, nil
}

// startProcesses starts processes of the system, and stops them again if one cannot be started.
func (t *Trial) startProcesses(n int) starter {
	return func(ctx context.Context, o system.Options) (all []system.Workers, err error) {
		o.Slots = cmp.Or(o.Slots, t.Slots)
		for range n {
			w, startErr := system.StartProcess(ctx, t.System, t.URL, o)
			if startErr != nil {
				t.stop(ctx, &startErr, all...)
				return nil, startErr
			}
			all = append(all, w)
		}
		return all, nil
	}
}
