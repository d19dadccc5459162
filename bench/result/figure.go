package result

import "slices"

// Spread is a value over the rounds: their median, the smallest, the largest.
type Spread struct {
	Median, Min, Max float64
	Rounds           int
}

// At is a percentile of the figure: of each round's samples, then over the
// rounds. Of a figure of single values p means nothing.
func (f *Figure) Percentile(p float64) Spread {
	return spread(f.each(p))
}

// Median is the middle of the middles: At(50).
func (f *Figure) Median() float64 { return f.Percentile(50).Median }

// N is how many samples all rounds together had; 0 for a figure of single values.
func (f *Figure) SampleCount() int {
	n := 0
	for _, r := range f.Rounds {
		n += max(r.N, len(r.Samples))
	}
	return n
}

func (f *Figure) each(p float64) []float64 {
	values := make([]float64, len(f.Rounds))
	for i, r := range f.Rounds {
		values[i] = r.Percentile(p)
	}
	return values
}

func spread(values []float64) Spread {
	s := Spread{Median: median(values), Rounds: len(values)}
	if len(values) > 0 {
		s.Min, s.Max = slices.Min(values), slices.Max(values)
	}
	return s
}

// Ratio divides one figure by another, each at a percentile. Its median is that
// of the medians over the rounds. Min and Max are those of the single rounds,
// the first by the first, and so on: rounds are interleaved, so that one lies
// close to the other in time. Where the figures have unlike numbers of rounds,
// it is not known which belong together: then Rounds is 0, and Min and Max are
// the median, too.
//
// There is no ratio to what is 0.
func Ratio(over *Figure, p float64, under *Figure, q float64) (Spread, bool) {
	a, b := over.each(p), under.each(q)
	if len(a) == 0 || len(b) == 0 || median(b) == 0 {
		return Spread{}, false
	}
	ratio := median(a) / median(b)
	s := Spread{Median: ratio, Min: ratio, Max: ratio}
	if len(a) != len(b) || slices.Contains(b, 0) {
		return s, true
	}
	each := make([]float64, len(a))
	for i := range a {
		each[i] = a[i] / b[i]
	}
	s.Min, s.Max, s.Rounds = slices.Min(each), slices.Max(each), len(each)
	return s, true
}
