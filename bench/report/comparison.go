package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// PrintComparison writes the figures of Cuelight next to those of another revision, whose system is other,
// as a Markdown table. The last column is the ratio of the medians, with the range of the ratios of
// each round.
func PrintComparison(w io.Writer, r *Result, other, revision string) error {
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintf(t, "| figure\t| unit\t| %s\t| now\t| now / %[1]s\t|\n|---\t|---\t|--:\t|--:\t|--:\t|\n", revision)
	for i := range r.Figures {
		f := &r.Figures[i]
		was, ok := r.Find(Key{f.Scenario, other, f.Case})
		if f.System != cuelightSystem || !ok {
			continue
		}
		name := strings.TrimSuffix(labelOf(f.Scenario)+", "+f.Case, ", ")
		for _, p := range []float64{50, 99} {
			if p > 50 && (!f.isSampled() || !f.supports(p) || !was.supports(p)) {
				continue
			}
			label := name
			if f.isSampled() {
				label += fmt.Sprintf(", p%g", p)
			}
			times := "–"
			if s, ok := ratio(f, p, was, p); ok {
				times = formatSpread(s)
			}
			fmt.Fprintf(t, "| %s\t| %s\t| %s\t| %s\t| %s\t|\n", label, f.Unit, formatNumber(was.Percentile(p).Median),
				formatNumber(f.Percentile(p).Median), times)
		}
	}
	return t.Flush()
}
