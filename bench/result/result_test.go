package result_test

import (
	"math"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/bench/result"
)

func key(scenario, system, c string) result.Key {
	return result.Key{Scenario: scenario, System: system, Case: c}
}

func TestAdd_CollectsRoundsOfAFigure(t *testing.T) {
	t.Parallel()
	r := result.New("once")
	k := key("drain", "cuelight", "tasks=5000")
	r.Add(k, "tasks/s", result.FromValue(10))
	r.Add(key("drain", "river_tx", "tasks=5000"), "tasks/s", result.FromValue(1))
	r.Add(k, "tasks/s", result.FromValue(30), result.FromValue(20))
	f, ok := r.Find(k)
	if !ok || len(f.Rounds) != 3 || f.Lower {
		t.Fatalf("found %v: %+v, want three rounds with higher values better", ok, f)
	}
	if got, want := f.Percentile(50), (result.Spread{Median: 20, Min: 10, Max: 30, Rounds: 3}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestFind_OmitsFiguresNotMeasured(t *testing.T) {
	t.Parallel()
	r := result.New("once")
	r.Add(key("e2e", "cuelight", "idle"), "ms")
	r.Figures = append(r.Figures, result.Figure{Scenario: "e2e", System: "cuelight", Case: "empty"})
	for _, c := range []string{"idle", "empty", "none"} {
		if _, ok := r.Find(key("e2e", "cuelight", c)); ok {
			t.Errorf("%s was found", c)
		}
	}
	if len(r.ForScenario("e2e")) != 0 {
		t.Error("the scenario has figures without rounds")
	}
}

func TestAdd_SkipsInvalidRoundsWithAReason(t *testing.T) {
	t.Parallel()
	r := result.New("once")
	k := key("e2e", "cuelight", "idle")
	r.Add(k, "ms", result.FromSamples(nil), result.FromValue(math.Inf(1)), result.FromSamples([]float64{1, math.NaN()}),
		result.Round{Value: 1, Samples: []float64{math.Inf(-1), 1}}, result.FromValue(2))
	f, ok := r.Find(k)
	if !ok || len(f.Rounds) != 1 || f.Median() != 2 {
		t.Errorf("%+v, want the one valid round", f)
	}
	if r.Skipped["e2e/cuelight/idle"] == "" {
		t.Error("the other rounds have no reason")
	}
	r.Add(k, "s", result.FromValue(2))
	if len(f.Rounds) != 1 || !strings.Contains(r.Skipped["e2e/cuelight/idle"], `"s"`) {
		t.Error("a round in another unit was added, or has no reason")
	}
}

func TestSkip_CollectsDistinctReasons(t *testing.T) {
	t.Parallel()
	var r result.Result
	for _, reason := range []string{"no node", "no node", "too slow", "no node"} {
		r.Skip("graphile", reason)
	}
	if got := r.Skipped["graphile"]; got != "no node; too slow" {
		t.Errorf("%q", got)
	}
}

func TestAdd_DerivesDirectionFromTheUnit(t *testing.T) {
	t.Parallel()
	r := result.New("once")
	for unit, lower := range map[string]bool{
		"ms": true, "tasks/s": false, "share": false, "share of the ideal": false, "share of a core": true,
		"MiB": true, "queries/s": true, "per task": true, "CPU s": true,
	} {
		k := key("a", "b", unit)
		r.Add(k, unit, result.FromValue(1))
		if f, _ := r.Find(k); f.Lower != lower {
			t.Errorf("%s: lower is better: %v", unit, f.Lower)
		}
	}
}

func TestSteps_SortsByNumber(t *testing.T) {
	t.Parallel()
	r := result.New("once")
	for _, c := range []string{"rate=400", "rate=50", "idle", "rate=1500", "rate=", "rates=3"} {
		r.Add(key("rate", "cuelight", c), "ms", result.FromValue(1))
	}
	r.Add(key("rate", "river_tx", "rate=1"), "ms", result.FromValue(1))
	var got []float64
	for _, s := range r.Steps("rate", "cuelight", "rate") {
		got = append(got, s.Value)
	}
	if len(got) != 3 || got[0] != 50 || got[1] != 400 || got[2] != 1500 {
		t.Errorf("%v, want 50, 400, 1500", got)
	}
}

func TestForScenario_SortsBySystemThenCase(t *testing.T) {
	t.Parallel()
	r := result.New("once")
	for _, k := range []result.Key{
		key("e2e", "b", "y"), key("e2e", "a", "y"), key("other", "a", "z"), key("e2e", "a", "x"), key("e2e", "b", "x"),
	} {
		r.Add(k, "ms", result.FromValue(1))
	}
	var got []string
	for _, f := range r.ForScenario("e2e") {
		got = append(got, f.System+f.Case)
	}
	if s := strings.Join(got, " "); s != "by bx ay ax" {
		t.Errorf("%s, want by bx ay ax", s)
	}
}

func figureOf(values ...float64) *result.Figure {
	f := &result.Figure{}
	for _, v := range values {
		f.Rounds = append(f.Rounds, result.FromValue(v))
	}
	return f
}

func TestRatio_DividesMediansAndRounds(t *testing.T) {
	t.Parallel()
	got, ok := result.Ratio(figureOf(10, 20, 60), 50, figureOf(10, 5, 20), 50)
	if want := (result.Spread{Median: 2, Min: 1, Max: 4, Rounds: 3}); !ok || got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestRatio_HasNoRangeForUnequalRoundCounts(t *testing.T) {
	t.Parallel()
	got, ok := result.Ratio(figureOf(10, 20, 60), 50, figureOf(10, 5), 50)
	if want := 20 / 7.5; !ok || got != (result.Spread{Median: want, Min: want, Max: want}) {
		t.Errorf("%+v, want %v alone", got, want)
	}
}

func TestRatio_IsUndefinedForZero(t *testing.T) {
	t.Parallel()
	for _, under := range []*result.Figure{figureOf(), figureOf(0), figureOf(0, 0, 1)} {
		if got, ok := result.Ratio(figureOf(1, 2, 3), 50, under, 50); ok {
			t.Errorf("%+v", got)
		}
	}
	if got, ok := result.Ratio(figureOf(), 50, figureOf(1), 50); ok {
		t.Errorf("%+v", got)
	}
}

func TestRatio_UsesBothPercentiles(t *testing.T) {
	t.Parallel()
	over := &result.Figure{Rounds: []result.Round{result.FromSamples([]float64{1, 2, 9})}}
	under := &result.Figure{Rounds: []result.Round{result.FromSamples([]float64{1, 3, 4})}}
	if got, _ := result.Ratio(over, 100, under, 50); got.Median != 3 {
		t.Errorf("%v, want 9/3", got.Median)
	}
}
