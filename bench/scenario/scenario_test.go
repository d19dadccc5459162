package scenario_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/bench/report"
	"github.com/cuelight/cuelight/bench/scenario"
	"github.com/cuelight/cuelight/bench/system"
)

func TestE2E_RecordsTasksAndHops(t *testing.T) {
	t.Parallel()
	tr, r := newTrial(fakeSystem{name: "fake"})
	if err := scenario.E2E(3, 0).Measure(t.Context(), tr); err != nil {
		t.Fatal(err)
	}
	for key, n := range map[report.Key]int{
		{Scenario: "e2e", System: "fake", Case: "idle"}: 3,
		{Scenario: "hop", System: "fake"}:               12,
	} {
		f, ok := r.Find(key)
		if !ok || f.Unit != "ms" || f.Rounds[0].N != n {
			t.Errorf("%s is %+v, want %d samples in ms", key, f, n)
		}
	}
}

func TestE2E_SpreadTasksRunConcurrently(t *testing.T) {
	t.Parallel()
	tr, r := newTrial(fakeSystem{name: "slow", duration: 300 * time.Millisecond})
	started := time.Now()
	if err := scenario.SpreadE2E(50, 100*time.Millisecond).Measure(t.Context(), tr); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(started); took > 10*time.Second {
		t.Errorf("50 tasks of 0.3 s took %v", took)
	}
	f, ok := r.Find(report.Key{Scenario: "e2e", System: "slow", Case: "idle"})
	if !ok || f.Rounds[0].N < 20 || f.Median() < 300 {
		t.Errorf("%+v; want about 50 samples of at least 300 ms", f)
	}
}

func TestScenarios_RejectDuplicateWork(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]scenario.Scenario{
		"e2e":   scenario.E2E(5, 0),
		"rate":  scenario.Rate(scenario.RateOptions{Rates: []int{200}, Duration: 200 * time.Millisecond}),
		"drain": scenario.Drain(10),
		"order": scenario.Overtaking(10, 1),
		"share": scenario.Utilization(10, 1, time.Millisecond),
	} {
		for _, what := range []system.Kind{system.Started, system.Completed} {
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
	kept, ok := r.Find(report.Key{Scenario: "rate_kept", System: "late", Case: "rate=300"})
	if !ok || kept.Median() > 0.1 {
		t.Errorf("the share is %+v; want nearly 0", kept)
	}
	latency, ok := r.Find(report.Key{Scenario: "rate", System: "late", Case: "rate=300"})
	if !ok || latency.Median() < 300 || len(r.Figures) != 2 {
		t.Errorf("latency: %+v; want at least 300 ms, and no other rate", latency)
	}
}
