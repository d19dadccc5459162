package result

import (
	"math"
	"slices"
	"time"
)

// Round is the value of a figure in one round.
type Round struct {
	Value   float64   `json:"value"`             // of samples their median
	Samples []float64 `json:"samples,omitempty"` // sorted; see [FromSamples]
	N       int       `json:"n,omitempty"`       // the number of samples before thinning
}

// MaxSamples is how many samples of a round are kept.
const MaxSamples = 2000

// FromSamples returns a round of samples in any order. Its value is their median. Of more than
// [MaxSamples] it keeps the smallest, the largest, and others at equal distances between them:
// percentile p of the kept ones lies between p-0.05 and p+0.05 of all.
func FromSamples(samples []float64) Round {
	sorted := slices.Sorted(slices.Values(samples))
	return Round{Value: percentile(sorted, 50), Samples: thin(sorted), N: len(sorted)}
}

// FromDurations is FromSamples in milliseconds.
func FromDurations(samples []time.Duration) Round {
	ms := make([]float64, len(samples))
	for i, d := range samples {
		ms[i] = Milliseconds(d)
	}
	return FromSamples(ms)
}

// Milliseconds converts a duration into the unit "ms".
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// FromValue returns a round of one number.
func FromValue(v float64) Round { return Round{Value: v} }

// Percentile returns the value that p percent of the samples do not exceed, interpolated
// between two samples. A round of one number returns that number.
func (r Round) Percentile(p float64) float64 {
	if len(r.Samples) == 0 {
		return r.Value
	}
	return percentile(r.Samples, p)
}

// isValid reports whether JSON can represent the round: it has no NaN and no infinity.
func (r Round) isValid() bool {
	return isFinite(r.Value) && !slices.ContainsFunc(r.Samples, func(v float64) bool { return !isFinite(v) })
}

func isFinite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// percentile returns NaN for no values.
func percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	index, fraction := math.Modf(min(max(p, 0), 100) / 100 * float64(len(sorted)-1))
	if fraction == 0 {
		return sorted[int(index)]
	}
	return sorted[int(index)]*(1-fraction) + sorted[int(index)+1]*fraction
}

func thin(sorted []float64) []float64 {
	n := len(sorted)
	if n <= MaxSamples {
		return sorted
	}
	kept := make([]float64, MaxSamples)
	for i := range kept {
		kept[i] = sorted[(i*(n-1)+(MaxSamples-1)/2)/(MaxSamples-1)]
	}
	return kept
}

// Spread is a value over the rounds.
type Spread struct {
	Median, Min, Max float64
	Rounds           int
}

// Percentile returns the spread over the rounds of the percentile of each round.
func (f *Figure) Percentile(p float64) Spread { return spreadOf(f.percentiles(p)) }

// Median returns the median over the rounds of their medians.
func (f *Figure) Median() float64 { return f.Percentile(50).Median }

// SampleCount returns the number of samples in all rounds; 0 for a figure of single values.
func (f *Figure) SampleCount() int {
	n := 0
	for _, r := range f.Rounds {
		n += max(r.N, len(r.Samples))
	}
	return n
}

func (f *Figure) percentiles(p float64) []float64 {
	values := make([]float64, len(f.Rounds))
	for i, r := range f.Rounds {
		values[i] = r.Percentile(p)
	}
	return values
}

func spreadOf(values []float64) Spread {
	sorted := slices.Sorted(slices.Values(values))
	s := Spread{Median: percentile(sorted, 50), Rounds: len(values)}
	if len(sorted) > 0 {
		s.Min, s.Max = sorted[0], sorted[len(sorted)-1]
	}
	return s
}

// Ratio divides one figure by another, each at a percentile. The median is that of the medians
// over the rounds. Min and Max compare round with round, which are close in time. If the
// figures have different numbers of rounds, Rounds is 0, and Min and Max are the median. There
// is no ratio if the denominator is 0.
func Ratio(numerator *Figure, p float64, denominator *Figure, q float64) (Spread, bool) {
	a, b := numerator.percentiles(p), denominator.percentiles(q)
	base := spreadOf(b).Median
	if len(a) == 0 || len(b) == 0 || base == 0 {
		return Spread{}, false
	}
	ratio := spreadOf(a).Median / base
	if len(a) != len(b) || slices.Contains(b, 0) {
		return Spread{Median: ratio, Min: ratio, Max: ratio}, true
	}
	each := make([]float64, len(a))
	for i := range a {
		each[i] = a[i] / b[i]
	}
	s := spreadOf(each)
	s.Median = ratio
	return s, true
}
