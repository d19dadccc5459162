package scenario_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/result"
	"github.com/cuelight/cuelight/bench/scenario"
)

func TestE2E_RecordsFourFigures(t *testing.T) {
	t.Parallel()
	tr, r := newTrial(fakeSystem{name: "fake"})
	if err := scenario.E2E(scenario.E2EOptions{Samples: 3}).Measure(t.Context(), tr); err != nil {
		t.Fatal(err)
	}
	for key, n := range map[result.Key]int{
		{Scenario: "e2e", System: "fake", Case: "idle"}: 3,
		{Scenario: "wake_submit", System: "fake"}:       3,
		{Scenario: "hop", System: "fake"}:               12,
		{Scenario: "hop_commit", System: "fake"}:        12,
	} {
		f, ok := r.Find(key)
		if !ok || f.Unit != "ms" || f.SampleCount() != n || !f.Lower {
			t.Errorf("%s is %+v, want %d samples in ms", key, f, n)
		}
	}
}

func TestE2E_SpreadTasksRunConcurrently(t *testing.T) {
	t.Parallel()
	tr, r := newTrial(fakeSystem{name: "slow", duration: 300 * time.Millisecond})
	started := time.Now()
	if err := scenario.E2E(scenario.E2EOptions{Samples: 50, Spread: 100 * time.Millisecond}).Measure(t.Context(), tr); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(started); took > 10*time.Second {
		t.Errorf("50 tasks of 0.3 s took %v", took)
	}
	f, ok := r.Find(result.Key{Scenario: "e2e", System: "slow", Case: "idle"})
	if !ok || f.SampleCount() != 50 || f.Percentile(0).Min < 300 {
		t.Errorf("%+v; want 50 samples of at least 300 ms", f)
	}
}

func TestE2E_StopsAtItsTimeLimit(t *testing.T) {
	t.Parallel()
	tr, r := newTrial(fakeSystem{name: "slow", duration: 20 * time.Millisecond})
	s := scenario.E2E(scenario.E2EOptions{Samples: 1_000_000, TimeLimit: time.Millisecond})
	if err := s.Measure(t.Context(), tr); err != nil {
		t.Fatal(err)
	}
	if f, ok := r.Find(result.Key{Scenario: "e2e", System: "slow", Case: "idle"}); !ok || f.SampleCount() != 4 {
		t.Errorf("%+v; want five samples minus a fifth", f)
	}
}

func TestScenarios_RejectDuplicateWork(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]scenario.Scenario{
		"e2e":   scenario.E2E(scenario.E2EOptions{Samples: 5}),
		"rate":  scenario.Rate(scenario.RateOptions{Rates: []int{200}, Duration: 200 * time.Millisecond}),
		"drain": scenario.Drain(10),
		"order": scenario.Overtaking(10, 1),
		"share": scenario.Utilization(10, 1, time.Millisecond),
	} {
		for _, what := range []harness.Kind{harness.Started, harness.Completed} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				tr, r := newTrial(fakeSystem{name: "sloppy", distort: duplicate(what)})
				err := s.Measure(t.Context(), tr)
				if err == nil || !strings.Contains(err.Error(), "metadata of task 3") {
					t.Errorf("error is %v", err)
				}
				if len(r.Figures) > 0 {
					t.Errorf("figures of a failed run: %+v", r.Figures)
				}
			})
		}
	}
}

func TestRate_StopsAtTheFirstRateNotSustained(t *testing.T) {
	t.Parallel()
	// Tasks that take as long as the measurement are completed after it.
	tr, r := newTrial(fakeSystem{name: "late", duration: 300 * time.Millisecond})
	s := scenario.Rate(scenario.RateOptions{Rates: []int{300, 600}, Duration: 300 * time.Millisecond})
	if err := s.Measure(t.Context(), tr); err != nil {
		t.Fatal(err)
	}
	kept := r.Steps("rate_kept", "late", "rate")
	if len(kept) != 1 || kept[0].Value != 300 || kept[0].Median() > 0.1 {
		t.Errorf("shares are %+v; want nearly 0 at 300, and no other rate", kept)
	}
	latency := r.Steps("rate", "late", "rate")
	if len(latency) != 1 || latency[0].Figure.Percentile(0).Min < 300 {
		t.Errorf("latency: %+v; want at least 300 ms", latency)
	}
}

func TestScenarios_SkipWhatCannotBeMeasured(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]scenario.Scenario{
		"several processes":       scenario.Processes(2, 1, 0),
		"hops to another process": scenario.HopToOtherProcess(1),
		"unknown channels":        scenario.NotificationCount(1),
		"finished tasks":          scenario.DrainWithFinished(1, 1),
		"unknown tables":          scenario.Size(1),
		"unknown triggers":        scenario.TriggerCost(1),
		"a daemon":                scenario.IdleDaemon(0, time.Hour),
		"waiting workers":         scenario.WaitingWorkers(1, time.Hour),
	} {
		tr, _ := newTrial(fakeSystem{name: "fake", onStart: func() { t.Errorf("%s: the system was started", name) }})
		if err := s.Measure(t.Context(), tr); err == nil || !strings.Contains(err.Error(), "not measured") {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}
