package report

import (
	"strconv"
	"strings"
)

// A value of a target or of the summary is written as a formula:
//
//	SCENARIO/SYSTEM[/CASE][@PERCENTILE] [over SCENARIO/SYSTEM[/CASE][@PERCENTILE]]
//
// The percentile is 50 by default. A * in the cases stands for the same text in both, and gives
// the worst of all values.

// value is the value of a formula.
type value struct {
	Spread
	figure *Figure // the first one
}

// evaluate returns the value of a formula if its figures were measured, with enough samples for the percentiles. higher
// says that high values are good.
func evaluate(r *Result, formula string, higher bool) (worst value, ok bool) {
	left, right, isRatio := strings.Cut(formula, " over ")
	a, p := parseReference(left)
	b, q := parseReference(right)
	prefix, suffix, isPattern := strings.Cut(a.Case, "*")
	for i := range r.Figures {
		f := &r.Figures[i]
		if f.Scenario != a.Scenario || f.System != a.System || len(f.Case) < len(prefix)+len(suffix) ||
			!strings.HasPrefix(f.Case, prefix) || !strings.HasSuffix(f.Case, suffix) || !isPattern && f.Case != a.Case || !f.supports(p) {
			continue
		}
		v := value{Spread: f.Percentile(p), figure: f}
		if isRatio {
			other := b
			other.Case = strings.Replace(b.Case, "*", f.Case[len(prefix):len(f.Case)-len(suffix)], 1)
			d, found := r.Find(other)
			if !found || !d.supports(q) {
				continue
			}
			if v.Spread, found = ratio(f, p, d, q); !found {
				continue
			}
		}
		if !ok || v.Median != worst.Median && v.Median < worst.Median == higher {
			worst, ok = v, true
		}
	}
	return worst, ok
}

func parseReference(text string) (k Key, percentile float64) {
	text, p, ok := strings.Cut(text, "@")
	if percentile, _ = strconv.ParseFloat(p, 64); !ok {
		percentile = 50
	}
	parts := append(strings.SplitN(text, "/", 3), "", "", "")
	return Key{Scenario: parts[0], System: parts[1], Case: parts[2]}, percentile
}
