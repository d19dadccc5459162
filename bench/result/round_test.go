package result_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cuelight/cuelight/bench/result"
)

func TestRound_InterpolatesPercentiles(t *testing.T) {
	t.Parallel()
	r := result.FromSamples([]float64{40, 10, 30, 20, 50})
	for p, want := range map[float64]float64{-1: 10, 0: 10, 25: 20, 50: 30, 90: 46, 100: 50, 200: 50} {
		if got := r.Percentile(p); math.Abs(got-want) > 1e-9 {
			t.Errorf("percentile %v is %v, want %v", p, got, want)
		}
	}
	if r.Value != 30 || r.N != 5 {
		t.Errorf("value %v of %d samples, want the median 30 of 5", r.Value, r.N)
	}
}

func TestRound_OfOneNumberHasThatPercentile(t *testing.T) {
	t.Parallel()
	for _, p := range []float64{0, 50, 99} {
		if got := result.FromValue(7).Percentile(p); got != 7 {
			t.Errorf("percentile %v of one number is %v, want 7", p, got)
		}
	}
	if got := result.FromSamples([]float64{7}).Percentile(99); got != 7 {
		t.Errorf("percentile 99 of one sample is %v, want 7", got)
	}
}

func TestFromSamples_LeavesTheInputUnchanged(t *testing.T) {
	t.Parallel()
	samples := []float64{3, 1, 2}
	r := result.FromSamples(samples)
	r.Samples[0] = 99
	if !slices.Equal(samples, []float64{3, 1, 2}) {
		t.Errorf("the input was changed to %v", samples)
	}
}

func TestFromSamples_ThinningKeepsEndsAndPercentiles(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	all := make([]float64, 50_000)
	for i := range all {
		all[i] = math.Exp(random.NormFloat64())
	}
	r := result.FromSamples(all)
	slices.Sort(all)
	if len(r.Samples) != result.MaxSamples || r.N != len(all) {
		t.Fatalf("kept %d of %d, want %d of %d", len(r.Samples), r.N, result.MaxSamples, len(all))
	}
	if r.Samples[0] != all[0] || r.Samples[result.MaxSamples-1] != all[len(all)-1] {
		t.Error("the smallest or the largest is not kept")
	}
	if !slices.IsSorted(r.Samples) {
		t.Error("the kept samples are not sorted")
	}
	for _, p := range []float64{1, 50, 95, 99, 99.9} {
		rank := func(p float64) float64 { return all[int(p/100*float64(len(all)-1))] }
		if got := r.Percentile(p); got < rank(p-0.05) || got > rank(min(p+0.06, 100)) {
			t.Errorf("percentile %v is %v, want between %v and %v", p, got, rank(p-0.05), rank(min(p+0.06, 100)))
		}
	}
	if r.Value != (all[24_999]+all[25_000])/2 {
		t.Error("the median is not that of all samples")
	}
}

func TestFromSamples_KeepsUpToTheLimitUnchanged(t *testing.T) {
	t.Parallel()
	all := make([]float64, result.MaxSamples)
	for i := range all {
		all[i] = float64(i * i)
	}
	if got := result.FromSamples(all).Samples; !slices.Equal(got, all) {
		t.Error("samples within the limit were changed")
	}
	all = append(all, 1e9)
	kept := result.FromSamples(all).Samples
	if len(kept) != result.MaxSamples || len(slices.Compact(kept)) != result.MaxSamples {
		t.Error("with one sample over the limit, not all others were kept")
	}
}

func TestFromDurations_UsesMilliseconds(t *testing.T) {
	t.Parallel()
	r := result.FromDurations([]time.Duration{2_412_345, 1 * time.Millisecond, 3 * time.Second})
	if want := []float64{1, 2.412345, 3000}; !slices.Equal(r.Samples, want) {
		t.Errorf("%v, want %v", r.Samples, want)
	}
}
