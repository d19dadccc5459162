package report

import (
	"testing"
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

func TestFormatSpread_ShowsTheRange(t *testing.T) {
	t.Parallel()
	if got := formatSpread(Spread{Median: 1.4, Min: 1.3, Max: 1.5, Rounds: 3}); got != "1.40 (1.30–1.50)" {
		t.Error(got)
	}
	for _, rounds := range []int{0, 1} {
		if got := formatSpread(Spread{Median: 1.4, Min: 1.4, Max: 1.4, Rounds: rounds}); got != "1.40" {
			t.Errorf("%d rounds: %s", rounds, got)
		}
	}
}
