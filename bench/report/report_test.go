package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/bench/result"
)

func TestWrite_LinksExistingPlots(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	path, err := Write(sample(), Options{Dir: dir, Latest: true})
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(path) != "2026-11-20T1805Z-full.md" {
		t.Errorf("the file name is %s", filepath.Base(path))
	}
	for _, name := range []string{path, filepath.Join(dir, "latest.md")} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		shown := regexp.MustCompile(`!\[[^]]+\]\(([^)]+)\)`).FindAllSubmatch(text, -1)
		if len(shown) != 6 {
			t.Errorf("%s shows %d plots, want 6", name, len(shown))
		}
		for _, s := range shown {
			if _, err := os.Stat(filepath.Join(dir, string(s[1]))); err != nil {
				t.Error(err)
			}
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 2*(1+6) {
		t.Errorf("there are %d files, want two reports with six plots each", len(entries))
	}
}

func TestReport_IsReproducibleFromJSON(t *testing.T) {
	t.Parallel()
	path, err := sample().Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	read, err := result.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(renderAll(read), renderAll(sample())) {
		t.Error("the report of the JSON differs")
	}
}

func renderAll(r *result.Result) []byte {
	drawn := plots(r)
	text := markdown(r, drawn, "x")
	for _, d := range drawn {
		text = append(text, d.svg...)
	}
	return text
}

func TestReport_ContainsEveryFigure(t *testing.T) {
	t.Parallel()
	r := sample()
	r.Add(result.Key{Scenario: "brand_new", System: "some|body", Case: "deep=7"}, "widgets", result.FromValue(31_337))
	whole, tables := string(renderAll(r)), markdown(r, nil, "x")
	for i := range r.Figures {
		without := *r
		without.Figures = slices.Delete(slices.Clone(r.Figures), i, i+1)
		if bytes.Equal(markdown(&without, nil, "x"), tables) {
			t.Errorf("%s is not in the report", r.Figures[i].Key())
		}
	}
	for _, want := range []string{`| brand_new | 7 deep | some\|body | 31,337 | widgets |`, "| pgboss | no node |"} {
		if !strings.Contains(whole, want) {
			t.Errorf("missing: %q", want)
		}
	}
	if strings.Contains(whole, "%!") || strings.Contains(whole, "NaN") || strings.Contains(whole, "Inf") {
		t.Error("the report has invalid text")
	}
}

// Runs end early, systems fail, and machines lack programs.
func TestReport_AcceptsPartialResults(t *testing.T) {
	t.Parallel()
	whole := sample()
	var scenarios []string
	for _, f := range whole.Figures {
		if !slices.Contains(scenarios, f.Scenario) {
			scenarios = append(scenarios, f.Scenario)
		}
	}
	for _, s := range scenarios {
		for _, keep := range []bool{false, true} {
			part := *whole
			part.Figures = slices.DeleteFunc(slices.Clone(whole.Figures),
				func(f result.Figure) bool { return (f.Scenario == s) != keep })
			renderAll(&part)
			if !json.Valid(Summary(&part)) {
				t.Errorf("the summary with or without only %s is not JSON", s)
			}
		}
	}
	for i := range whole.Figures {
		part := *whole
		part.Figures = whole.Figures[i : i+1]
		markdown(&part, nil, "x")
		if s := whole.Figures[i].Scenario; slices.Contains(scenarios, s) { // one of each
			scenarios = slices.DeleteFunc(scenarios, func(other string) bool { return other == s })
			plots(&part)
		}
	}
}

func TestReport_AcceptsZeroAndNegativeFigures(t *testing.T) {
	t.Parallel()
	for _, v := range []float64{0, -1} {
		r := sample()
		for i := range r.Figures {
			for j := range r.Figures[i].Rounds {
				r.Figures[i].Rounds[j] = result.FromValue(v)
				if j%2 == 0 {
					r.Figures[i].Rounds[j] = result.FromSamples([]float64{v, v, v})
				}
			}
		}
		text := string(renderAll(r))
		if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
			t.Errorf("values of %v give invalid numbers", v)
		}
	}
}

func TestReport_OfAnEmptyResultHasNoTablesOrPlots(t *testing.T) {
	t.Parallel()
	r := result.New("once")
	text := string(renderAll(r))
	if strings.Contains(text, "![") || strings.Contains(text, "## 1.") || strings.Contains(text, "## Plots") {
		t.Error(text)
	}
	for _, v := range checkTargets(r) {
		if v.status != notMeasured || v.measured != "" {
			t.Errorf("%+v, want not measured", v)
		}
	}
}

func TestIsPercentileSupported_NeedsASampleBeyondIt(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{19: "–", 20: "seen", 100: "seen"} {
		f := &result.Figure{
			Rounds: []result.Round{result.FromSamples(make([]float64, 5000)), result.FromSamples(make([]float64, n))},
		}
		got := "–"
		if isPercentileSupported(f, 95) {
			got = "seen"
		}
		if got != want {
			t.Errorf("p95 of %d samples in one of the rounds: %s, want %s", n, got, want)
		}
	}
}

func TestPlots_AreWellFormedAndTransparent(t *testing.T) {
	t.Parallel()
	for _, d := range plots(sample()) {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			for decoder := xml.NewDecoder(bytes.NewReader(d.svg)); ; {
				if _, err := decoder.Token(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatal(err)
				}
			}
			text := string(d.svg)
			if strings.Contains(strings.ToUpper(text), "#FFFFFF") || strings.Contains(text, "Liberation") {
				t.Error("the plot has a white background or a font name")
			}
			if len(text) > 40_000 {
				t.Errorf("it has %d bytes", len(text))
			}
			if n, m := strings.Count(text, "<text "), strings.Count(text, "textLength="); n == 0 || n != m {
				t.Errorf("%d texts, %d of them with a length", n, m)
			}
		})
	}
}

func TestPlots_HaveADarkColourForEveryColour(t *testing.T) {
	t.Parallel()
	for _, d := range plots(sample()) {
		style, body, _ := strings.Cut(string(d.svg), "</style>")
		used := regexp.MustCompile(`(fill|stroke):(#[0-9A-F]{6})`).FindAllString(body, -1)
		if len(used) == 0 {
			t.Errorf("%s has no colours", d.name)
		}
		for _, u := range slices.Compact(slices.Sorted(slices.Values(used))) {
			if !strings.Contains(style, fmt.Sprintf("[style*=%q]{", u)) {
				t.Errorf("%s: %s has no dark colour", d.name, u)
			}
		}
		for _, element := range regexp.MustCompile(`<(path|text)[^>]*>`).FindAllString(body, -1) {
			if !strings.Contains(element, "fill:#") && !strings.Contains(element, "stroke:#") {
				t.Errorf("%s: %s has no colour", d.name, element)
			}
		}
	}
}

func TestPlots_FitTheirTitles(t *testing.T) {
	t.Parallel()
	for _, d := range plots(sample()) {
		for _, text := range []string{d.title, d.subtitle} {
			if w := textStyle(ink, text == d.title, 0, 0).Width(text); w > width-8 {
				t.Errorf("%s: %q is %v wide", d.name, text, w)
			}
		}
	}
}
