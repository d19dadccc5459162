package simulation

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/bench/result"
)

const microsecond, millisecond = time.Microsecond, time.Millisecond

func TestRun_OneProcessIsAsFastAsItsSteps(t *testing.T) {
	t.Parallel()
	f := Farm{
		Costs: Costs{
			Exchange: Pace{millisecond, millisecond}, MixedExchange: millisecond, Report: 10 * microsecond, Attempt: 5 * microsecond,
			Flush: millisecond,
		},
		Processes: 1, Slots: SameSlots(100), DatabaseCores: 4, Tasks: 20_000,
	}
	// 500 stages of a hundred tasks take 500 × 15 µs, an exchange and a flush: 9.5 ms.
	if got := f.Run().Throughput; math.Abs(got/10_526-1) > 0.05 {
		t.Errorf("%.0f tasks/s, want 10,526", got)
	}
	if a, b := f.Run(), f.Run(); a.Throughput != b.Throughput || !slices.Equal(a.Latencies, b.Latencies) {
		t.Error("two runs differ")
	}
}

func TestRun_SlotsLimitTheThroughput(t *testing.T) {
	t.Parallel()
	f := Farm{Processes: 3, Slots: SameSlots(2), DatabaseCores: 1, Tasks: 3000}
	for i := range f.Work {
		f.Work[i] = 10 * millisecond
	}
	if got := f.Run().Throughput; math.Abs(got/600-1) > 0.1 { // 6 slots of 10 ms
		t.Errorf("%.0f tasks/s, want 600", got)
	}
}

func TestRun_CommitsThatNotifyWaitForEachOther(t *testing.T) {
	t.Parallel()
	f := Farm{
		Costs:     Costs{Flush: millisecond},
		Processes: 1, Slots: SameSlots(1000), DatabaseCores: 100, Tasks: 5000, Rate: 2000,
	}
	if got := f.Run().Throughput; got > 1001 || got < 900 {
		t.Errorf("%.0f tasks/s with flushes of 1 ms, want 1,000 at most", got)
	}
}

func TestRun_ANotificationWakesEveryProcess(t *testing.T) {
	t.Parallel()
	f := Farm{
		Costs:     Costs{ClaimExchange: Pace{microsecond, microsecond}, Listener: microsecond},
		Processes: 20, Slots: SameSlots(1), DatabaseCores: 4, Tasks: 500, Rate: 10,
	}
	f.Work[0] = millisecond
	if got := f.Run().Exchanges; got < 200 || got > 260 { // 10/s × (20 claims and some 4 reports)
		t.Errorf("%.0f exchanges/s, want 240", got)
	}
}

func TestRun_ProcessorsAreShared(t *testing.T) {
	t.Parallel()
	f := Farm{
		Costs:     Costs{Report: 10 * microsecond, Attempt: 10 * microsecond},
		Processes: 4, Slots: SameSlots(100), DatabaseCores: 2, SharedCores: true, Tasks: 20_000,
	}
	if got := f.Run().Throughput; math.Abs(got/20_000-1) > 0.05 { // two cores, 5 × 20 µs
		t.Errorf("%.0f tasks/s, want 20,000", got)
	}
	f.SharedCores = false
	if got := f.Run().Throughput; got < 30_000 {
		t.Errorf("%.0f tasks/s where the processes have other cores, want up to 40,000", got)
	}
}

func TestContention_InterpolatesAndGoesOn(t *testing.T) {
	t.Parallel()
	f := Farm{DatabaseCores: 2}
	f.Costs.Contention = []Contention{{0.5, 0}, {1, 10}, {4, 40}}
	for processes, want := range map[int]time.Duration{1: 0, 2: 10, 5: 25, 8: 40, 12: 60} {
		f.Processes = processes
		if got := f.contention(); got != want {
			t.Errorf("%d processes: %d, want %d", processes, got, want)
		}
	}
}

// measured returns the medians of a run of `bench -only cost,cpu,rate,growth_processes`, and the costs in it.
func measured(t *testing.T) (*result.Result, Costs) {
	t.Helper()
	r, err := result.Read("testdata/measured.json")
	if err != nil {
		t.Fatal(err)
	}
	costs, err := NewCosts(r)
	if err != nil {
		t.Fatal(err)
	}
	return r, costs
}

// All points but one must be within 20 %. At 1,500 tasks/s, the highest rate that its
// machine sustained, latencies are those of a queue that the simulation has shorter.
func TestPoints_AreNearTheMeasuredFigures(t *testing.T) {
	t.Parallel()
	r, costs := measured(t)
	points := Points(r, costs)
	if len(points) != 18 {
		t.Errorf("%d points, want 18", len(points))
	}
	for _, p := range points {
		least := 0.8
		if p.Name == "rate=1500" {
			least = 0.7
		}
		if p.Ratio() < least || p.Ratio() > 1.2 {
			t.Errorf("%s: measured %.4g %s, predicted %.4g: %.2f", p.Name, p.Measured, p.Unit, p.Predicted, p.Ratio())
		}
	}
}

func TestNewCosts_NamesTheFigureThatIsMissing(t *testing.T) {
	t.Parallel()
	if _, err := NewCosts(result.New("full")); err == nil || !strings.Contains(err.Error(), "cuelight") {
		t.Errorf("error %v", err)
	}
}

func TestWriteHosts_PredictsFarms(t *testing.T) {
	t.Parallel()
	_, costs := measured(t)
	var text strings.Builder
	writeHosts(&text, costs, 20_000)
	for _, want := range []string{"| 10\t| films\t| each to the database", "| 1000\t| clips\t| to 10 coordinators"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in\n%s", want, text.String())
		}
	}
}
