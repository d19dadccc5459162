package report

import (
	"math"
	"slices"
	"strings"
	"time"
)

// Result is one run of the benchmark. It is for one goroutine at a time.
type Result struct {
	Format          int       `json:"format"`
	StartedAt       time.Time `json:"at"`
	DurationSeconds float64   `json:"took_s"`
	Mode            string    `json:"mode"`   // "full", "quick", "once" or "snapshot"
	Commit          string    `json:"commit"` // of Cuelight; "-dirty" with uncommitted changes

	// Machine is where it ran: facts by name.
	Machine map[string]string `json:"machine"`

	// Settings describes systems by name, and the server's settings under "postgres".
	Settings map[string]string `json:"settings"`

	// Skipped has the reasons why scenarios, systems or figures were not measured.
	Skipped map[string]string `json:"skipped,omitempty"`

	Figures []Figure `json:"figures"`
}

// format is the version of the JSON.
const format = 2

// Key identifies a figure.
type Key struct {
	Scenario string `json:"scenario"`       // "e2e"
	System   string `json:"system"`         // "cuelight", "river_tx", "floor"
	Case     string `json:"case,omitempty"` // "rate=400"
}

// String returns scenario/system/case.
func (k Key) String() string {
	return strings.TrimSuffix(k.Scenario+"/"+k.System+"/"+k.Case, "/")
}

// Figure is a quantity with its value in every round.
type Figure struct {
	Key
	Unit   string  `json:"unit"` // "ms", "tasks/s", "MiB", "queries/s", …
	Rounds []Round `json:"rounds"`
}

// New returns a result that starts now.
func New(mode string) *Result {
	return &Result{
		Format: format, StartedAt: time.Now().UTC().Truncate(time.Second), Mode: mode, Commit: unknown,
		Settings: map[string]string{}, Skipped: map[string]string{},
	}
}

// Name returns the base name of the result's files: its time to the minute, and its mode.
func (r *Result) Name() string {
	return r.StartedAt.UTC().Format("2006-01-02T1504Z") + "-" + r.Mode
}

// Add adds a round to a figure and creates it if necessary. Without a number, which a ratio to nothing has not, it adds a
// reason to Skipped instead.
func (r *Result) Add(k Key, unit string, round Round) {
	if math.IsNaN(round.Value) || math.IsInf(round.Value, 0) {
		r.Skip(k.String(), "a round without a number")
		return
	}
	f, ok := r.Find(k)
	if !ok {
		r.Figures = append(r.Figures, Figure{Key: k, Unit: unit})
		f = &r.Figures[len(r.Figures)-1]
	}
	f.Rounds = append(f.Rounds, round)
}

// Skip records why a scenario, a system or a figure was not measured: the first reason.
func (r *Result) Skip(name, reason string) {
	if _, ok := r.Skipped[name]; !ok {
		r.Skipped[name] = reason
	}
}

// Find returns a figure if it was measured. The pointer is valid until the next Add.
func (r *Result) Find(k Key) (*Figure, bool) {
	i := slices.IndexFunc(r.Figures, func(f Figure) bool { return f.Key == k })
	if i < 0 {
		return nil, false
	}
	return &r.Figures[i], true
}

// Round is the value of a figure in one round: a number, or percentiles of samples.
type Round struct {
	Value float64 `json:"value"`       // of samples their median
	N     int     `json:"n,omitempty"` // the number of samples; 0 for a number
	P95   float64 `json:"p95,omitempty"`
	P99   float64 `json:"p99,omitempty"`
	P999  float64 `json:"p999,omitempty"`
	Max   float64 `json:"max,omitempty"`
}

// FromValue returns a round of one number.
func FromValue(v float64) Round { return Round{Value: v} }

// FromDurations returns a round of samples in any order, in milliseconds.
func FromDurations(samples []time.Duration) Round {
	ms := make([]float64, len(samples))
	for i, d := range samples {
		ms[i] = Milliseconds(d)
	}
	slices.Sort(ms)
	return Round{
		Value: percentile(ms, 50), N: len(ms),
		P95: percentile(ms, 95), P99: percentile(ms, 99), P999: percentile(ms, 99.9), Max: percentile(ms, 100),
	}
}

// Milliseconds converts a duration into the unit "ms".
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// percentile returns the value that p percent of the values do not exceed, interpolated between two; NaN for none.
func percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	index, fraction := math.Modf(p / 100 * float64(len(sorted)-1))
	if fraction == 0 {
		return sorted[int(index)]
	}
	return sorted[int(index)]*(1-fraction) + sorted[int(index)+1]*fraction
}

// Percentile returns one of the percentiles that a round keeps. Of a number it is that number.
func (r Round) Percentile(p float64) float64 {
	if r.N == 0 {
		return r.Value
	}
	return map[float64]float64{50: r.Value, 95: r.P95, 99: r.P99, 99.9: r.P999, 100: r.Max}[p]
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

// isSampled reports whether a figure has samples.
func (f *Figure) isSampled() bool { return f.Rounds[0].N > 0 }

// supports reports whether each round has at least one sample beyond the percentile. A round of one number supports all.
func (f *Figure) supports(p float64) bool {
	return p <= 50 || !slices.ContainsFunc(f.Rounds, func(r Round) bool { return r.N > 0 && float64(r.N)*(100-p) < 100-1e-6 })
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
	return Spread{Median: percentile(sorted, 50), Min: sorted[0], Max: sorted[len(sorted)-1], Rounds: len(values)}
}

// ratio divides one figure by another, each at a percentile. The median is that of the medians
// over the rounds. Min and Max compare round with round, which are close in time, if the
// figures have as many. There is no ratio to 0.
func ratio(numerator *Figure, p float64, denominator *Figure, q float64) (Spread, bool) {
	a, b := numerator.percentiles(p), denominator.percentiles(q)
	base := spreadOf(b).Median
	if base == 0 {
		return Spread{}, false
	}
	median := spreadOf(a).Median / base
	if len(a) != len(b) || slices.Contains(b, 0) {
		return Spread{Median: median, Min: median, Max: median}, true
	}
	for i := range a {
		a[i] /= b[i]
	}
	s := spreadOf(a)
	s.Median = median
	return s, true
}
