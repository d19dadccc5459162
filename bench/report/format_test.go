package report

import (
	"testing"

	"github.com/cuelight/cuelight/bench/result"
)

func TestFormatNumber_KeepsSignificantDigits(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0", 0.00712: "0.0071", 0.3517: "0.35", 0.9949: "0.99", 0.996: "1.00", 2.4149: "2.41", 9.996: "10.0",
		99.94: "99.9", 99.96: "100", 998: "998", 1234.4: "1,234", 21_034_567: "21,034,567",
		-0.0347: "-0.035", -1500: "-1,500",
	} {
		if got := formatNumber(v); got != want {
			t.Errorf("number(%v) is %q, want %q", v, got, want)
		}
	}
}

func TestFormatWithUnit_ChoosesTheUnit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		v          float64
		unit, want string
	}{
		{12_480, "ms", "12.5 s"}, {2.41, "ms", "2.41 ms"}, {0.0071, "ms", "7.10 µs"}, {410, "tasks/s", "410 tasks/s"},
		{21_340, "tasks/s", "21.3k tasks/s"}, {0.93, "share of the ideal", "93.0 %"}, {31, "MiB", "31.0 MiB"},
	} {
		if got := formatWithUnit(c.v, c.unit); got != c.want {
			t.Errorf("%v %s is %q, want %q", c.v, c.unit, got, c.want)
		}
	}
}

func TestCaseLabel_IsReadable(t *testing.T) {
	t.Parallel()
	for caseName, want := range map[string]string{
		"": "", "idle": "idle", "tasks=5000": "5k tasks", "finished=1000000": "1M finished", "processes=1": "1 process",
		"processes=8": "8 processes", "commit_delay=2ms": "commit delay 2ms", "rate=1500": "1,500 rate", "held": "with a snapshot held",
		"clip=bunny,cpu": "clip bunny, CPU",
	} {
		if got := caseLabel(caseName); got != want {
			t.Errorf("label of %q is %q, want %q", caseName, got, want)
		}
	}
}

func TestFormatSpread_ShowsTheRange(t *testing.T) {
	t.Parallel()
	if got := formatSpread(result.Spread{Median: 1.4, Min: 1.3, Max: 1.5, Rounds: 3}); got != "1.40 (1.30–1.50)" {
		t.Error(got)
	}
	for _, rounds := range []int{0, 1} {
		if got := formatSpread(result.Spread{Median: 1.4, Min: 1.4, Max: 1.4, Rounds: rounds}); got != "1.40" {
			t.Errorf("%d rounds: %s", rounds, got)
		}
	}
}
