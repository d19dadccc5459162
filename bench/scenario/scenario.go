// Package scenario has the workloads of the benchmark: how tasks arrive, what is measured
// while they pass the stages, and how often. A [Scenario] knows no system; each [Trial] hands
// it one, with an empty database.
//
//	server, err := scenario.StartServer(ctx, dir, memoryMiB)
//	session := scenario.Session{Server: server, Result: r, Logf: log.Logf, Slots: 100}
//	err = session.Run(ctx, scenario.Group{Rounds: 3, Runs: []scenario.Run{
//		{Scenario: scenario.Drain(5000), System: cuelight},
//		{Scenario: scenario.Drain(5000), System: river},
//	}})
//
// Every workload counts its observations: a stage that starts or is completed twice, or a task
// that does not finish, is an error and gives no figure.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/result"
)

// Scenario is a workload of a certain size.
type Scenario struct {
	// Names are those of its figures and of the groups that include it.
	Names []string

	// Settings are those of its database, as "name=value".
	Settings []string

	// Timeout ends a run that hangs. Default: 15 minutes.
	Timeout time.Duration

	// Measure measures once and records the figures.
	Measure func(ctx context.Context, t *Trial) error
}

// errNotMeasured says that the system or the machine cannot be measured in a scenario.
var errNotMeasured = errors.New("not measured")

var errNotSupported = fmt.Errorf("%w: the system does not support it", errNotMeasured)

// Trial is one run of a scenario with one system in one round.
type Trial struct {
	System harness.System // empty for scenarios without a system
	Round  int            // from 0
	URL    string         // of a database of its own, with the system's tables

	*Session
	systemName string
}

// Record adds a round to a figure of the system and logs it.
func (t *Trial) Record(scenario, caseName, unit string, r result.Round) {
	t.RecordFor(t.systemName, scenario, caseName, unit, r)
}

// RecordDurations is Record for samples of a latency.
func (t *Trial) RecordDurations(scenario, caseName string, samples []time.Duration) {
	t.Record(scenario, caseName, "ms", result.FromDurations(samples))
}

// RecordFor is Record for another system that is measured in the same trial.
func (t *Trial) RecordFor(system, scenario, caseName, unit string, r result.Round) {
	key := result.Key{Scenario: scenario, System: system, Case: caseName}
	t.Result.Add(key, unit, r)
	if len(r.Samples) == 0 {
		t.Logf("%-44s %10.4g %s", key, r.Value, unit)
		return
	}
	t.Logf("%-44s %10.4g %s  p95 %.4g  p99 %.4g  max %.4g  (%d)", key, r.Value, unit,
		r.Percentile(95), r.Percentile(99), r.Percentile(100), r.N)
}

// Note adds to the result's settings what the figures of a scenario do not say.
func (t *Trial) Note(scenario, format string, args ...any) {
	t.Result.Settings[scenario] = fmt.Sprintf(format, args...)
}

// stopTimeout is how long workers may take to stop, even if the trial is cancelled.
const stopTimeout = time.Minute

// Stop stops workers and adds their errors to err.
func (t *Trial) Stop(ctx context.Context, err *error, workers ...harness.Workers) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	for _, w := range workers {
		*err = errors.Join(*err, w.Stop(ctx))
	}
}
