// Package scenario has the workloads of the benchmark: how tasks come, what is
// measured while they go through the stages, and how often. A [Scenario] knows
// no contestant; it is handed one with each [Trial], in an empty database.
//
//	stand, err := scenario.NewStand(ctx, dir)
//	meeting := scenario.Meeting{Stand: stand, Result: r, Say: say}
//	err = meeting.Hold(ctx, scenario.Group{Rounds: 3, Heats: []scenario.Heat{
//		{Scenario: scenario.E2E{Samples: 200}, Contestant: cuelight},
//		{Scenario: scenario.E2E{Samples: 200}, Contestant: river},
//	}})
//
// Every workload counts what it sees: a stage that is worked on or completed
// twice, or a task that gets stuck, is an error and not a figure.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/result"
)

// Scenario is a workload. Its fields are its sizes.
type Scenario interface {
	// Names are the words it is known by: those of its figures, and of what
	// comprises it.
	Names() []string

	// Measure does it once, and records what it found.
	Measure(ctx context.Context, t *Trial) error
}

// Configured is a Scenario that needs settings in its database, as "name=value".
type Configured interface {
	DatabaseSettings() []string
}

// Filler is a contestant that can submit tasks while nobody works on them. For
// others the crew is at work already when its SubmitAll is called.
type Preloader interface {
	Preload(ctx context.Context, url string, first int64, n int) error
}

// Notifier is a contestant that tells the channels of its notifications.
type ChannelLister interface {
	Channels() []string
}

// Trial is one contestant's turn at a scenario in one round.
type Trial struct {
	System harness.System // nil where it takes none
	Round  int            // from 0
	URL    string         // of a database of its own, with the contestant's tables

	*Session
	systemName string
}

// Record adds what this round found to the figure, and tells it.
func (t *Trial) Record(scenario, of, unit string, r result.Round) {
	t.RecordFor(t.systemName, scenario, of, unit, r)
}

// RecordOf is Record for somebody who is measured beside the contestant.
func (t *Trial) RecordFor(who, scenario, of, unit string, r result.Round) {
	key := result.Key{Scenario: scenario, System: who, Case: of}
	t.Result.Add(key, unit, r)
	if len(r.Samples) == 0 {
		t.Logf("%-44s %10.4g %s", key, r.Value, unit)
		return
	}
	t.Logf("%-44s %10.4g %s  p95 %.4g  p99 %.4g  max %.4g  (%d)", key, r.Value, unit,
		r.Percentile(95), r.Percentile(99), r.Percentile(100), r.N)
}

// Explain writes down, among the settings, what of a scenario its figures do not
// say.
func (t *Trial) Note(scenario, format string, args ...any) {
	t.Result.Settings[scenario] = fmt.Sprintf(format, args...)
}

// stopWithin is how long a crew may take to stop. It is asked to also when
// everything ends early.
const stopWithin = time.Minute

// Stop ends crews, and puts what went wrong in them to err. An error of theirs
// is the trial's.
func (t *Trial) Stop(ctx context.Context, err *error, crews ...harness.Workers) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer cancel()
	for _, c := range crews {
		*err = errors.Join(*err, c.Stop(ctx))
	}
}

// pause waits, or returns why not.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
