package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/cuelight/cuelight/bench/result"
)

// PrintComparison writes the figures of Cuelight next to those of another revision, whose system is other,
// as a Markdown table. The last column is the ratio of the medians, with the range of the ratios of
// each round.
func PrintComparison(w io.Writer, r *result.Result, other, revision string) error {
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintf(t, "| figure\t| unit\t| %s\t| now\t| now / %[1]s\t|\n|---\t|---\t|--:\t|--:\t|--:\t|\n", revision)
	for i := range r.Figures {
		f := &r.Figures[i]
		was, ok := r.Find(result.Key{Scenario: f.Scenario, System: other, Case: f.Case})
		if f.System != cuelightSystem || !ok {
			continue
		}
		name := strings.TrimSuffix(scenarioLabel(f.Scenario)+", "+caseLabel(f.Case), ", ")
		for _, p := range []float64{50, 99} {
			if p > 50 && (len(f.Rounds[0].Samples) == 0 || !isPercentileSupported(f, p) || !isPercentileSupported(was, p)) {
				continue
			}
			label := name
			if len(f.Rounds[0].Samples) > 0 {
				label += fmt.Sprintf(", p%g", p)
			}
			ratio := "–"
			if s, ok := result.Ratio(f, p, was, p); ok {
				ratio = formatSpread(s)
			}
			fmt.Fprintf(t, "| %s\t| %s\t| %s\t| %s\t| %s\t|\n", label, f.Unit, formatNumber(was.Percentile(p).Median),
				formatNumber(f.Percentile(p).Median), ratio)
		}
	}
	return t.Flush()
}
