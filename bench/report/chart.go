package report

import (
	"bytes"
	"cmp"
	"fmt"
	"html"
	"math"
	"slices"
)

// chart is horizontal bars on a logarithmic scale, with their values.
type chart struct {
	name     string // part of its file name
	title    string
	subtitle string
	unit     string
	bars     []bar
}

type bar struct {
	name   string
	isOurs bool
	value  float64
}

// charts returns those that have figures.
func charts(r *Result) (all []chart) {
	latency := chart{name: "latency", unit: " ms", title: "One task through five stages, on an idle system",
		subtitle: "From submission to the completion of the last stage: median. Shorter is better."}
	throughput := chart{name: "throughput", unit: " tasks/s", title: "Waiting tasks drained, five stages each",
		subtitle: "Median of the rounds. Longer is better."}
	for i := range r.Figures {
		f := &r.Figures[i]
		name, v := labelOf(f.System), f.Median()
		switch {
		case v <= 0:
		case f.Scenario == "commits5" && f.Case == "idle":
			latency.bars = append(latency.bars, bar{"floor: five dependent commits", false, v})
		case f.Scenario == "e2e" && f.Case == "idle":
			latency.bars = append(latency.bars, bar{name, f.System == cuelightSystem, v})
		case f.Scenario == "drain" && f.Case == "tasks=5000":
			throughput.bars = append(throughput.bars, bar{name, f.System == cuelightSystem, v})
		}
	}
	slices.SortStableFunc(latency.bars, func(a, b bar) int { return cmp.Compare(a.value, b.value) })
	slices.SortStableFunc(throughput.bars, func(a, b bar) int { return cmp.Compare(b.value, a.value) })
	return slices.DeleteFunc([]chart{latency, throughput}, func(c chart) bool { return len(c.bars) == 0 })
}

// chartHead has the colours for light and for dark backgrounds.
const chartHead = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 600 %[1]d" width="600" height="%[1]d" role="img">
<title>%[2]s</title>
<style>text{font:11px Arial,Helvetica,sans-serif;fill:#1f2328}.muted{fill:#59636e}rect{fill:#8c959f}.ours{fill:#0072b2}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.muted{fill:#9198a1}rect{fill:#6e7781}.ours{fill:#58b4f5}}</style>
<text x="4" y="14" font-weight="bold">%[2]s</text>
<text x="4" y="30" class="muted">%[3]s</text>
`

// svg draws the chart. The scale begins at a power of ten below the smallest value.
func (c chart) svg() []byte {
	const top, rowHeight, left, length = 40, 20, 190, 300
	byValue := func(a, b bar) int { return cmp.Compare(a.value, b.value) }
	low := math.Pow(10, math.Floor(math.Log10(slices.MinFunc(c.bars, byValue).value/1.3)))
	high := max(slices.MaxFunc(c.bars, byValue).value, 10*low)
	var b bytes.Buffer
	subtitle := c.subtitle + fmt.Sprintf(" Logarithmic, from %s.", formatNumber(low))
	fmt.Fprintf(&b, chartHead, top+rowHeight*len(c.bars), html.EscapeString(c.title), html.EscapeString(subtitle))
	for i, row := range c.bars {
		y, width, class := top+rowHeight*i, length*math.Log(row.value/low)/math.Log(high/low), ""
		if row.isOurs {
			class = ` class="ours"`
		}
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>", left-6, y+10, html.EscapeString(row.name))
		fmt.Fprintf(&b, "<rect x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"12\"%s/>", left, y, width, class)
		fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%d\">%s</text>\n", left+width+5, y+10, formatNumber(row.value)+c.unit)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
