package report

import (
	"strings"
	"testing"

	"github.com/cuelight/cuelight/bench/result"
)

func TestPrintComparison_ShowsRatiosOfFiguresThatBothHave(t *testing.T) {
	t.Parallel()
	r := result.New("quick")
	add := func(scenario, system, caseName, unit string, values ...float64) {
		for _, v := range values {
			r.Add(result.Key{Scenario: scenario, System: system, Case: caseName}, unit, result.FromValue(v))
		}
	}
	add("drain", "cuelight", "tasks=5000", "tasks/s", 300, 440)
	add("drain", "cuelight_before", "tasks=5000", "tasks/s", 200, 200)
	add("drain", "cuelight", "tasks=1", "tasks/s", 1)
	samples := make([]float64, 200)
	for i := range samples {
		samples[i] = float64(i)
	}
	for _, system := range []string{"cuelight_before", "cuelight"} {
		r.Add(result.Key{Scenario: "e2e", System: system, Case: "idle"}, "ms", result.FromSamples(samples))
	}
	var text strings.Builder
	if err := PrintComparison(&text, r, "cuelight_before", "v1"); err != nil {
		t.Fatal(err)
	}
	want := `
| figure                                     | unit    | v1   | now  | now / v1         |
|---                                         |---      |--:   |--:   |--:               |
| waiting tasks drained, 5k tasks            | tasks/s | 200  | 370  | 1.85 (1.50–2.20) |
| one task through the five stages, idle, p50 | ms      | 99.5 | 99.5 | 1.00             |
| one task through the five stages, idle, p99 | ms      | 197  | 197  | 1.00             |
`
	normalize := func(s string) string { return strings.Join(strings.Fields(strings.ReplaceAll(s, "|", " | ")), " ") }
	if normalize(text.String()) != normalize(want) {
		t.Errorf("it prints\n%s\nwant\n%s", text.String(), want)
	}
}
