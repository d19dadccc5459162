package report

import (
	"slices"
	"strconv"
	"strings"

	"github.com/cuelight/cuelight/bench/result"
)

// find returns a figure if it was measured. The case "idle" also finds a figure without a case,
// no case finds the only figure of the system in the scenario, and "tasks=max" finds that with
// the largest number of a parameter.
func find(r *result.Result, scenario, system, caseName string) (*result.Figure, bool) {
	if parameter, ok := strings.CutSuffix(caseName, "=max"); ok {
		steps := r.Steps(scenario, system, parameter)
		if len(steps) == 0 {
			return nil, false
		}
		return steps[len(steps)-1].Figure, true
	}
	if f, ok := r.Find(result.Key{Scenario: scenario, System: system, Case: caseName}); ok {
		return f, true
	}
	all := figuresOf(r, scenario, system)
	if caseName == "" && len(all) == 1 {
		return all[0], true
	}
	if caseName == "idle" {
		return r.Find(result.Key{Scenario: scenario, System: system})
	}
	return nil, false
}

func figuresOf(r *result.Result, scenario, system string) []*result.Figure {
	return slices.DeleteFunc(r.ForScenario(scenario), func(f *result.Figure) bool { return f.System != system })
}

// isSustained reports whether a system sustains a rate; it does if that was not measured.
func isSustained(r *result.Result, system, rate string) bool {
	f, ok := find(r, "rate_kept", system, rate)
	return !ok || f.Median() >= result.SustainedShare
}

// systemsOf returns the systems of figures in their order of appearance.
func systemsOf(figures []*result.Figure) (names []string) {
	for _, f := range figures {
		if !slices.Contains(names, f.System) {
			names = append(names, f.System)
		}
	}
	return names
}

// isPercentileSupported reports whether each round has at least one sample beyond the
// percentile. A round of one number supports all.
func isPercentileSupported(f *result.Figure, p float64) bool {
	for _, r := range f.Rounds {
		if n := max(r.N, len(r.Samples)); n > 0 && float64(n)*(100-p) < 100-1e-6 && p > 50 {
			return false
		}
	}
	return true
}

// value is a figure at a percentile, or the ratio of two. It is written as a formula:
//
//	SCENARIO/SYSTEM/CASE[@PERCENTILE] [over SCENARIO/SYSTEM/CASE[@PERCENTILE]]
//
// The percentile is 50 by default, and cases are as for find. A * in both cases stands for the
// same text, and gives the worst ratio.
type value struct {
	result.Spread
	figure, divisor *result.Figure // divisor is nil without a ratio
	all             []value        // of a *
}

// evaluate returns the value of a formula if its figures were measured. higher says that high
// values are good.
func evaluate(r *result.Result, formula string, higher bool) (value, bool) {
	left, right, isRatio := strings.Cut(formula, " over ")
	a, p := parseReference(left)
	b, q := parseReference(right)
	prefix, suffix, isPattern := strings.Cut(a.Case, "*")
	if !isPattern {
		f, ok := find(r, a.Scenario, a.System, a.Case)
		if !ok || !isRatio {
			return newValue(f, nil, p, 0), ok && isPercentileSupported(f, p)
		}
		d, ok := find(r, b.Scenario, b.System, b.Case)
		v := newValue(f, d, p, q)
		return v, ok && f != d && v.Rounds >= 0 && isPercentileSupported(f, p) && isPercentileSupported(d, q)
	}
	var all []value
	for _, f := range figuresOf(r, a.Scenario, a.System) {
		if len(f.Case) < len(prefix)+len(suffix) || !strings.HasPrefix(f.Case, prefix) || !strings.HasSuffix(f.Case, suffix) {
			continue
		}
		same := f.Case[len(prefix) : len(f.Case)-len(suffix)]
		d, _ := r.Find(result.Key{Scenario: b.Scenario, System: b.System, Case: strings.Replace(b.Case, "*", same, 1)})
		if v := newValue(f, d, p, q); v.Rounds >= 0 && isRatio == (d != nil) {
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		return value{}, false
	}
	worst := all[0]
	for _, v := range all {
		if v.Median != worst.Median && (v.Median < worst.Median) == higher {
			worst = v
		}
	}
	worst.all = all
	return worst, true
}

// newValue returns a value whose Rounds are -1 if there is none.
func newValue(f, divisor *result.Figure, p, q float64) value {
	v := value{figure: f, divisor: divisor, Spread: result.Spread{Rounds: -1}}
	switch {
	case f != nil && divisor != nil:
		if s, ok := result.Ratio(f, p, divisor, q); ok {
			v.Spread = s
		}
	case f != nil:
		v.Spread = f.Percentile(p)
	}
	return v
}

func parseReference(text string) (k result.Key, percentile float64) {
	text, p, ok := strings.Cut(text, "@")
	if percentile, _ = strconv.ParseFloat(p, 64); !ok {
		percentile = 50
	}
	parts := append(strings.SplitN(text, "/", 3), "", "", "")
	return result.Key{Scenario: parts[0], System: parts[1], Case: parts[2]}, percentile
}
