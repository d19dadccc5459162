package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/cuelight/cuelight/bench/result"
)

// Verdict is what became of a target.
type TargetResult struct {
	Figure   string // what was to reach it
	Bound    string // "≤ 1.5"
	Measured string // the median over the rounds, with their range; "" if it was not measured
	Note     string // what belongs to it
	Status   Status
}

// State is yes, no, or neither.
type Status string

// The states of a target.
const (
	Reached     Status = "yes"
	Missed      Status = "no"
	NotMeasured Status = "not measured"
)

// target is a bound on one figure or on the ratio of two.
type target struct {
	figure  string
	bound   float64
	atLeast bool
	unit    string
	measure measure
	fails   func(*result.Result) bool   // nil for never: it is missed, whatever was measured
	note    func(*result.Result) string // nil for none
}

// measure is the figure, if it was measured.
type measure func(*result.Result) (result.Spread, bool)

// term is one side of a ratio.
type term struct {
	scenario, contestant, of string
	p                        float64
}

func (t term) figure(r *result.Result) (*result.Figure, bool) {
	switch t.of {
	case "idle":
		return idle(r, t.scenario, t.contestant)
	case "":
		return findFigure(r, t.scenario, t.contestant)
	}
	return findFigure(r, t.scenario, t.contestant, t.of)
}

// value is the figure itself.
func value(t term) measure {
	return func(r *result.Result) (result.Spread, bool) {
		f, ok := t.figure(r)
		if !ok || !isPercentileSupported(f, t.p) {
			return result.Spread{}, false
		}
		return f.Percentile(t.p), true
	}
}

func ratio(over, under term) measure {
	return func(r *result.Result) (result.Spread, bool) {
		a, ok := over.figure(r)
		b, also := under.figure(r)
		if !ok || !also || !isPercentileSupported(a, over.p) || !isPercentileSupported(b, under.p) {
			return result.Spread{}, false
		}
		return result.Ratio(a, over.p, b, under.p)
	}
}

// drained compares with a peer that had as many tasks waiting.
func drained(peer string) measure {
	return func(r *result.Result) (result.Spread, bool) {
		a, b, ok := alike(r, "drain", ours, peer, "tasks")
		if !ok {
			return result.Spread{}, false
		}
		return result.Ratio(a, 50, b, 50)
	}
}

// Targets compares the result with what Cuelight is to reach.
func CheckTargets(r *result.Result) []TargetResult {
	var all []TargetResult
	for _, t := range targets() {
		all = append(all, t.judge(r))
	}
	return all
}

func (t target) judge(r *result.Result) TargetResult {
	sign := "≤ "
	if t.atLeast {
		sign = "≥ "
	}
	v := TargetResult{Figure: t.figure, Bound: sign + strings.TrimSpace(fmt.Sprint(t.bound)+" "+t.unit), Status: NotMeasured}
	s, ok := t.measure(r)
	if !ok {
		return v
	}
	v.Measured, v.Status = strings.TrimSpace(formatSpread(s)+" "+t.unit), Missed
	reached := s.Median == t.bound || (s.Median > t.bound) == t.atLeast
	switch {
	case reached && (t.fails == nil || !t.fails(r)):
		v.Status = Reached
	case !reached && formatNumber(s.Median) == formatNumber(t.bound):
		v.Measured = fmt.Sprintf("%.6g %s", s.Median, t.unit)
	}
	if t.note != nil {
		v.Note = t.note(r)
	}
	return v
}

// Judges reports whether a run is one to judge by: not one that does everything
// once, to see that it works.
func HasTargets(r *result.Result) bool { return r.Mode != "once" }

// PrintTargets writes the targets as a table of plain text.
func PrintTargets(w io.Writer, r *result.Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "figure\tto reach\treached\t")
	for _, v := range CheckTargets(r) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", v.Figure, v.Bound, v.Measured, strings.ToUpper(string(v.Status)))
	}
	return t.Flush()
}
