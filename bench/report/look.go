package report

import (
	"slices"

	"github.com/cuelight/cuelight/bench/result"
)

// The contestants that are spoken of by name.
const (
	ours  = "cuelight"
	floor = "floor"
)

// look finds a contestant's figure in a scenario: in the first of these cases
// that was measured; without cases in the only one there is.
func findFigure(r *result.Result, scenario, contestant string, cases ...string) (*result.Figure, bool) {
	for _, c := range cases {
		if f, ok := r.Find(result.Key{Scenario: scenario, System: contestant, Case: c}); ok {
			return f, true
		}
	}
	if all := of(r, scenario, contestant); len(cases) == 0 && len(all) == 1 {
		return all[0], true
	}
	return nil, false
}

// of are a contestant's figures in a scenario.
func of(r *result.Result, scenario, contestant string) []*result.Figure {
	return slices.DeleteFunc(r.ForScenario(scenario), func(f *result.Figure) bool { return f.System != contestant })
}

// idle is a figure of latency on an idle system.
func idle(r *result.Result, scenario, contestant string) (*result.Figure, bool) {
	return findFigure(r, scenario, contestant, "idle", "")
}

// largest is the figure with the parameter's largest number.
func largest(r *result.Result, scenario, contestant, parameter string) (*result.Figure, bool) {
	steps := r.Steps(scenario, contestant, parameter)
	if len(steps) == 0 {
		return nil, false
	}
	return steps[len(steps)-1].Figure, true
}

// alike are the figures of two contestants with the largest number that both
// have, or none.
func alike(r *result.Result, scenario, a, b, parameter string) (fa, fb *result.Figure, ok bool) {
	for _, step := range r.Steps(scenario, a, parameter) {
		if other, found := findFigure(r, scenario, b, step.Case); found {
			fa, fb, ok = step.Figure, other, true
		}
	}
	return fa, fb, ok
}

// contestants are those who have a figure in the scenario, in their order of
// appearance.
func contestants(figures []*result.Figure) []string {
	var names []string
	for _, f := range figures {
		if !slices.Contains(names, f.System) {
			names = append(names, f.System)
		}
	}
	return names
}

// enough reports whether a percentile is one that was seen: one sample in each
// round lies beyond it, or more. A round that is one number has seen it.
func isPercentileSupported(f *result.Figure, p float64) bool {
	for _, r := range f.Rounds {
		if n := max(r.N, len(r.Samples)); n > 0 && float64(n)*(100-p) < 100-1e-6 && p > 50 {
			return false
		}
	}
	return true
}
