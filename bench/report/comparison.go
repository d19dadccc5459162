package report

import (
	"fmt"
	"io"
)

// PrintComparison writes the figures of Cuelight next to those of another revision, whose system is other,
// as a Markdown table. The last column is the ratio of the medians, with the range of the ratios of
// each round.
func PrintComparison(w io.Writer, r *Result, other, revision string) error {
	var rows [][]string
	for i := range r.Figures {
		f := &r.Figures[i]
		was, ok := r.Find(Key{f.Scenario, other, f.Case})
		if f.System != cuelightSystem || !ok {
			continue
		}
		for _, p := range []float64{50, 99} {
			if p > 50 && (!f.isSampled() || !f.supports(p) || !was.supports(p)) {
				continue
			}
			percentile, times := "", "–"
			if f.isSampled() {
				percentile = fmt.Sprintf("p%g", p)
			}
			if s, ok := ratio(f, p, was, p); ok {
				times = formatSpread(s)
			}
			rows = append(rows, []string{f.Scenario, f.Case, percentile, f.Unit, formatNumber(was.Percentile(p).Median),
				formatNumber(f.Percentile(p).Median), times})
		}
	}
	p := &page{}
	p.table([]string{"figure", "case", "", "unit", revision + ":", "now:", "now / " + revision + ":"}, rows)
	_, err := p.WriteTo(w)
	return err
}
