package scenario

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/cuelight/cuelight/bench/system"
)

func TestArrivalTimes_ArePoissonAndEqualWithinARound(t *testing.T) {
	t.Parallel()
	const rate, during = 1000, 20 * time.Second
	all := arrivalTimes(rate, during, 1)
	if !slices.Equal(all, arrivalTimes(rate, during, 1)) {
		t.Error("the same round has other times")
	}
	if slices.Equal(all, arrivalTimes(rate, during, 2)) {
		t.Error("another round has the same times")
	}
	if !slices.IsSorted(all) || all[0] < 0 || all[len(all)-1] >= during {
		t.Errorf("times go from %v to %v, or are not sorted", all[0], all[len(all)-1])
	}
	// The standard deviation of 20,000 arrivals is 141; that of the gaps of a Poisson process
	// equals their mean.
	if n := float64(len(all)); math.Abs(n-rate*during.Seconds()) > 800 {
		t.Errorf("%v arrivals, want about %v", n, rate*during.Seconds())
	}
	var sum, squares float64
	for i := range all[1:] {
		gap := (all[i+1] - all[i]).Seconds()
		sum, squares = sum+gap, squares+gap*gap
	}
	n := float64(len(all) - 1)
	mean := sum / n
	if deviation := math.Sqrt(squares/n - mean*mean); math.Abs(deviation/mean-1) > 0.05 {
		t.Errorf("the gaps have mean %v and standard deviation %v, want equal values", mean, deviation)
	}
}

func TestRate_ComputesLatenciesAndCompletedShare(t *testing.T) {
	t.Parallel()
	// One task arrives every 10 ms for two seconds; the first second is the warm-up.
	plan := make([]time.Duration, 200)
	for i := range plan {
		plan[i] = time.Duration(i) * 10 * time.Millisecond
	}
	for name, test := range map[string]struct {
		took  func(i int) time.Duration
		share float64
	}{
		"fast":               {func(int) time.Duration { return 5 * time.Millisecond }, 1},
		"slow but sustained": {func(int) time.Duration { return 300 * time.Millisecond }, 1},
		"at 90 %":            {func(i int) time.Duration { return time.Duration(i) * 10 * time.Millisecond / 9 }, 0.9},
	} {
		r := openLoop{Recorder: system.NewRecorder(len(plan)), arrivals: plan, startedAt: time.Now()}
		for i, at := range plan {
			r.Observe(system.Observation{
				Task: int64(i), Stage: system.Publish, Kind: system.Completed, At: r.startedAt.Add(at + test.took(i)),
			})
		}
		latencies, share := r.figures(time.Second, 2*time.Second, 0)
		if math.Abs(share-test.share) > 0.011 {
			t.Errorf("%s: share %v, want %v", name, share, test.share)
		}
		if len(latencies) != 100 || latencies[0] != test.took(100) {
			t.Errorf("%s: %d latencies from %v, want 100 from %v", name, len(latencies), latencies[0], test.took(100))
		}
	}
}

func TestOpenLoop_CountsUnfinishedTasksAndOmitsFailingOnes(t *testing.T) {
	t.Parallel()
	arrivals := []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}
	r := openLoop{Recorder: system.NewRecorder(len(arrivals)), arrivals: arrivals, startedAt: time.Now().Add(-time.Minute)}
	for task, end := range []time.Duration{5 * time.Second, 4 * time.Second, 0, 3500 * time.Millisecond} {
		if end > 0 {
			r.Observe(system.Observation{
				Task: int64(task), Stage: system.Publish, Kind: system.Completed, At: r.startedAt.Add(end),
			})
		}
	}
	latencies, share := r.figures(0, 4500*time.Millisecond, 2) // tasks 0 and 2 fail first
	if len(latencies) != 2 || latencies[0] != 3*time.Second || latencies[1] != 500*time.Millisecond || share != 0.5 {
		t.Errorf("latencies %v, share %v", latencies, share)
	}
	latencies, share = r.figures(1500*time.Millisecond, 2500*time.Millisecond, 0)
	if len(latencies) != 1 || latencies[0] < 58*time.Second || share != 0 {
		t.Errorf("latencies %v, share %v of a task that is not completed after a minute", latencies, share)
	}
}

func TestMaxOvertaking_CountsLaterTasksStartedEarlier(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		order []int // of the starts
		want  int
	}{
		{nil, 0},
		{[]int{0, 1, 2, 3}, 0},
		{[]int{1, 0, 3, 2}, 1},
		{[]int{4, 5, 6, 7, 2, 0, 1, 3}, 5},
		{[]int{3, 2, 1, 0}, 3},
	} {
		started := make([]time.Time, len(c.order))
		for i, task := range c.order {
			started[task] = time.UnixMilli(int64(i))
		}
		if got := maxOvertaking(started); got != c.want {
			t.Errorf("%v: %d, want %d", c.order, got, c.want)
		}
	}
}
