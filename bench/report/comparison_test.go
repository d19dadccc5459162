package report

import (
	"strings"
	"testing"
)

func TestPrintComparison_ShowsRatiosOfFiguresThatBothHave(t *testing.T) {
	t.Parallel()
	r := New("quick")
	add := func(scenario, system, caseName, unit string, values ...float64) {
		for _, v := range values {
			r.Add(Key{Scenario: scenario, System: system, Case: caseName}, unit, FromValue(v))
		}
	}
	add("drain", "cuelight", "tasks=5000", "tasks/s", 300, 440)
	add("drain", "cuelight_before", "tasks=5000", "tasks/s", 200, 200)
	add("drain", "cuelight", "tasks=1", "tasks/s", 1)
	for _, system := range []string{"cuelight_before", "cuelight"} {
		r.Add(Key{Scenario: "e2e", System: system, Case: "idle"}, "ms", fromSamples(numbersUpTo(200)))
	}
	var text strings.Builder
	if err := PrintComparison(&text, r, "cuelight_before", "v1"); err != nil {
		t.Fatal(err)
	}
	want := `
| figure | case | | unit | v1 | now | now / v1 |
| --- | --- | --- | --- | --: | --: | --: |
| drain | tasks=5000 | | tasks/s | 200 | 370 | 1.85 (1.50–2.20) |
| e2e | idle | p50 | ms | 100 | 100 | 1.00 |
| e2e | idle | p99 | ms | 198 | 198 | 1.00 |
`
	normalize := func(s string) string { return strings.Join(strings.Fields(strings.ReplaceAll(s, "|", " | ")), " ") }
	if normalize(text.String()) != normalize(want) {
		t.Errorf("it prints\n%s\nwant\n%s", text.String(), want)
	}
}
