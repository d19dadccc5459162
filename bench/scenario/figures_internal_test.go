package scenario

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
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

// at returns a time in ms.
func at(ms int) time.Time { return time.Unix(1_000_000, 0).Add(time.Duration(ms) * time.Millisecond) }

func TestTimeline_CountsHopsFromTheLastDependency(t *testing.T) {
	t.Parallel()
	s := newTimelines(1)
	for stage, times := range map[harness.Stage][3]int{
		harness.Ingest:    {0, 10, 11},
		harness.Transcode: {15, 30, 31},
		harness.Metadata:  {16, 20, 29},
		harness.Assemble:  {32, 40, 41},
		harness.Publish:   {47, 50, 51},
	} {
		for kind, ms := range times {
			s.observe(harness.Observation{Stage: stage, Kind: harness.Kind(kind), At: at(ms)})
		}
	}
	select {
	case <-s.tasks[0].done:
	default:
		t.Fatalf("the task is not done: %s", s.tasks[0].missing())
	}
	ms := func(all ...int) (d []time.Duration) {
		for _, n := range all {
			d = append(d, time.Duration(n)*time.Millisecond)
		}
		return d
	}
	if got, want := s.tasks[0].hops(harness.Ended), ms(5, 6, 2, 7); !slices.Equal(got, want) {
		t.Errorf("hops from the end of the work are %v, want %v", got, want)
	}
	if got, want := s.tasks[0].hops(harness.Completed), ms(4, 5, 1, 6); !slices.Equal(got, want) {
		t.Errorf("hops from the completion are %v, want %v", got, want)
	}
}

func TestTimelines_RequireEveryObservationOnce(t *testing.T) {
	t.Parallel()
	s := newTimelines(1)
	s.observe(harness.Observation{Stage: harness.Ingest, Kind: harness.Ended, At: at(1)})
	if got, want := s.tasks[0].missing(), "not observed: ingest started"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	s.observe(harness.Observation{Stage: harness.Ingest, Kind: harness.Ended, At: at(2)})
	if err := s.err(); err == nil || !strings.Contains(err.Error(), "ingest of task 0 ended twice") {
		t.Errorf("error for a duplicate observation: %v", err)
	}
	s = newTimelines(1)
	s.observe(harness.Observation{Task: 1})
	if s.err() == nil {
		t.Error("no error for an unknown task")
	}
}

func TestStageCounter_MeasuresFromFirstWorkToLastCompletion(t *testing.T) {
	t.Parallel()
	const tasks = 3
	c := newStageCounter(tasks)
	ms := func(n int) time.Time { return c.base.Add(time.Duration(n) * time.Millisecond) }
	for task := range int64(tasks) {
		for stage := range harness.Stage(harness.StageCount) {
			i := int(task)*harness.StageCount + int(stage)
			c.observe(harness.Observation{Task: task, Stage: stage, Kind: harness.Started, At: ms(100 - i)})
			c.observe(harness.Observation{Task: task, Stage: stage, Kind: harness.Ended, At: ms(1000)})
			c.observe(harness.Observation{Task: task, Stage: stage, Kind: harness.Completed, At: ms(200 - i)})
		}
	}
	if err := c.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.check(); err != nil {
		t.Error(err)
	}
	if got, want := c.took(), (200-86)*time.Millisecond; got != want {
		t.Errorf("took %v, want %v", got, want)
	}
	c.observe(harness.Observation{Task: 2, Stage: harness.Publish, Kind: harness.Completed, At: ms(300)})
	err := c.check()
	if err == nil || !strings.Contains(err.Error(), "publish of task 2 started 1 times and was completed 2 times") {
		t.Errorf("error for a duplicate completion: %v", err)
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
		r := rateRun{
			Rate:      Rate{Warmup: time.Second, For: time.Second},
			timelines: newTimelines(len(plan)), arrivals: plan, startedAt: at(0),
		}
		for i, at := range plan {
			r.timelines.observe(harness.Observation{
				Task: int64(i), Stage: harness.Publish, Kind: harness.Completed, At: r.startedAt.Add(at + test.took(i)),
			})
		}
		latencies, share := r.latenciesAndShare()
		if math.Abs(share-test.share) > 0.011 {
			t.Errorf("%s: share %v, want %v", name, share, test.share)
		}
		if len(latencies) != 100 || latencies[0] != test.took(100) {
			t.Errorf("%s: %d latencies from %v, want 100 from %v", name, len(latencies), latencies[0], test.took(100))
		}
	}
}

func TestWorkShare_IdealKeepsAllSlotsBusy(t *testing.T) {
	t.Parallel()
	w := WorkShare{Tasks: 3200, Slots: 32, Work: 20 * time.Millisecond}
	if got, want := w.ideal(), 2*time.Second; got != want {
		t.Errorf("%v, want %v", got, want)
	}
	if got, want := w.name(), "work20ms"; got != want {
		t.Errorf("name %q, want %q", got, want)
	}
}

func TestMaxDisplacement_CountsLaterTasksStartedEarlier(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		started []int64
		want    int
	}{
		{nil, 0},
		{[]int64{0, 1, 2, 3}, 0},
		{[]int64{1, 0, 3, 2}, 1},
		{[]int64{4, 7, 14, 18, 29, 0, 1, 47}, 5},
		{[]int64{3, 2, 1, 0}, 3},
	} {
		if got := maxDisplacement(c.started); got != c.want {
			t.Errorf("%v: %d, want %d", c.started, got, c.want)
		}
	}
}

func TestRotation_StartsEachRoundWithAnotherRun(t *testing.T) {
	t.Parallel()
	var got [][]int
	for round := range 4 {
		got = append(got, rotation(round, 3))
	}
	want := [][]int{{0, 1, 2}, {1, 2, 0}, {2, 0, 1}, {0, 1, 2}}
	for i := range want {
		if !slices.Equal(got[i], want[i]) {
			t.Errorf("round %d is %v, want %v", i, got[i], want[i])
		}
	}
}
