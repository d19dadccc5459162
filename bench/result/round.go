package result

import (
	"math"
	"slices"
	"time"
)

// Most is how many samples of a round are kept.
const MaxSamples = 2000

// Of makes a round of samples, in any order, which stay the caller's. Its value
// is their median. Of more than [Most] it keeps that many: the smallest, the
// largest, and of the others, sorted, every so many-th: percentile p of what is
// kept lies between those of p-0.05 and p+0.05 of all. N says how many there
// were.
//
// A round of no samples, or of one that is not a number, is not a finding:
// [Result.Add] refuses it.
func FromSamples(samples []float64) Round {
	sorted := slices.Sorted(slices.Values(samples))
	return Round{Value: percentile(sorted, 50), Samples: thin(sorted, MaxSamples), N: len(sorted)}
}

// OfDurations is Of, in milliseconds.
func FromDurations(samples []time.Duration) Round {
	ms := make([]float64, len(samples))
	for i, d := range samples {
		ms[i] = Milliseconds(d)
	}
	return FromSamples(ms)
}

// Milliseconds says a duration in the unit "ms".
func Milliseconds(d time.Duration) float64 {
	return float64(d) / float64(time.Millisecond)
}

// Value is a round that found one number.
func FromValue(v float64) Round { return Round{Value: v} }

// Percentile is the value that p of a hundred samples do not exceed, between
// two samples by their distance. 0 is the smallest, 100 the largest. Of a round
// that is one number it is that number, whatever p.
func (r Round) Percentile(p float64) float64 {
	if len(r.Samples) == 0 {
		return r.Value
	}
	return percentile(r.Samples, p)
}

// found reports whether the round can be told and written: JSON has neither
// NaN nor infinity.
func (r Round) found() bool {
	return finite(r.Value) && !slices.ContainsFunc(r.Samples, func(v float64) bool { return !finite(v) })
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// percentile is NaN of nothing.
func percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := min(max(p, 0), 100) / 100 * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	part := at - float64(low)
	if part == 0 {
		return sorted[low]
	}
	return sorted[low]*(1-part) + sorted[high]*part
}

func thin(sorted []float64, most int) []float64 {
	n := len(sorted)
	if n <= most {
		return sorted
	}
	kept := make([]float64, most)
	for i := range kept {
		kept[i] = sorted[(i*(n-1)+(most-1)/2)/(most-1)]
	}
	return kept
}

// median is NaN of nothing.
func median(values []float64) float64 {
	return percentile(slices.Sorted(slices.Values(values)), 50)
}
