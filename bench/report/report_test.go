package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestWrite_LinksExistingCharts(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	paths, err := Write(sample(), dir, true)
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(paths[0]) != "2026-11-20T1805Z-full.json" || filepath.Base(paths[1]) != "2026-11-20T1805Z-full.md" {
		t.Errorf("the files are %s", paths)
	}
	for _, name := range []string{paths[1], filepath.Join(dir, "latest.md")} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		shown := regexp.MustCompile(`!\[[^]]+\]\(([^)]+)\)`).FindAllSubmatch(text, -1)
		if len(shown) != 2 {
			t.Errorf("%s shows %d charts, want 2", name, len(shown))
		}
		for _, s := range shown {
			if _, err := os.Stat(filepath.Join(dir, string(s[1]))); err != nil {
				t.Error(err)
			}
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1+2*(1+2) {
		t.Errorf("there are %d files, want a result, and two reports with two charts each", len(entries))
	}
}

func TestRead_ReturnsWhatWriteWrote(t *testing.T) {
	t.Parallel()
	paths, err := Write(sample(), t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	read, err := Read(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(), read); diff != "" {
		t.Error(diff)
	}
	text, err := os.ReadFile(paths[0])
	if n := bytes.Count(text, []byte("\n")); err != nil || n != 1+len(read.Figures) || len(text) > 100_000 {
		t.Errorf("%d lines with %d bytes, %v; want one for each of %d figures", n, len(text), err, len(read.Figures))
	}
}

func TestRead_RejectsOtherFormats(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "1.json")
	for text, want := range map[string]string{`{"format": 1}`: "unknown format 1", `{`: "read the result"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestFromDurations_InterpolatesPercentiles(t *testing.T) {
	t.Parallel()
	var samples []time.Duration
	for i := range 201 { // 200, 199, … ms
		samples = append(samples, time.Duration(200-i)*time.Millisecond)
	}
	got, want := FromDurations(samples), Round{Value: 100, N: 201, P95: 190, P99: 198, P999: 199.8, Max: 200}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if v := got.Percentile(99); v != 198 {
		t.Errorf("p99 is %v", v)
	}
	if v := FromValue(3).Percentile(99); v != 3 {
		t.Errorf("p99 of a number is %v", v)
	}
}

func TestAdd_CollectsRoundsAndSkipsThoseWithoutANumber(t *testing.T) {
	t.Parallel()
	r := New("quick")
	k := Key{"drain", "cuelight", "tasks=5"}
	for _, v := range []float64{3, math.NaN(), 1, math.Inf(1), 2} {
		r.Add(k, "tasks/s", FromValue(v))
	}
	f, ok := r.Find(k)
	if !ok || f.Percentile(50) != (Spread{Median: 2, Min: 1, Max: 3, Rounds: 3}) {
		t.Errorf("%+v", f)
	}
	if got := r.Skipped["drain/cuelight/tasks=5"]; got != "a round without a number" {
		t.Errorf("skipped: %q", got)
	}
}

func TestRatio_ComparesRoundWithRound(t *testing.T) {
	t.Parallel()
	figure := func(values ...float64) *Figure {
		f := &Figure{}
		for _, v := range values {
			f.Rounds = append(f.Rounds, FromValue(v))
		}
		return f
	}
	for name, c := range map[string]struct {
		a, b *Figure
		want Spread
		ok   bool
	}{
		"as many":   {figure(10, 40, 60), figure(10, 20, 20), Spread{Median: 2, Min: 1, Max: 3, Rounds: 3}, true},
		"more":      {figure(10, 40, 60), figure(20, 20), Spread{Median: 2, Min: 2, Max: 2}, true},
		"to zero":   {figure(1), figure(0), Spread{}, false},
		"of a zero": {figure(0), figure(2), Spread{Rounds: 1}, true},
	} {
		if got, ok := ratio(c.a, 50, c.b, 50); got != c.want || ok != c.ok {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
	}
}

func TestReport_ContainsEveryFigure(t *testing.T) {
	t.Parallel()
	r := sample()
	r.Add(Key{"brand_new", "some|body", "deep=7"}, "widgets", FromValue(31_337))
	whole := markdown(r, nil, "x")
	for i := range r.Figures {
		without := *r
		without.Figures = slices.Delete(slices.Clone(r.Figures), i, i+1)
		if bytes.Equal(markdown(&without, nil, "x"), whole) {
			t.Errorf("%s is not in the report", r.Figures[i].Key)
		}
	}
	for _, want := range []string{`| brand_new | deep=7 | some\|body | 31,337 | widgets |`, "| transcode/cuelight | no ffmpeg |"} {
		if !strings.Contains(string(whole), want) {
			t.Errorf("missing: %q", want)
		}
	}
	if regexp.MustCompile(`%!|NaN|Inf`).Match(whole) {
		t.Error("the report has invalid text")
	}
}

// Runs end early, systems fail, and machines lack programs.
func TestReport_AcceptsPartialResults(t *testing.T) {
	t.Parallel()
	whole := sample()
	for i := range whole.Figures {
		for _, figures := range [][]Figure{whole.Figures[i : i+1], slices.Delete(slices.Clone(whole.Figures), i, i+1)} {
			part := *whole
			part.Figures = figures
			if text := markdown(&part, charts(&part), "x"); regexp.MustCompile(`%!|NaN|Inf`).Match(text) {
				t.Errorf("the report with or without only %s has invalid text", whole.Figures[i].Key)
			}
			if !json.Valid(Summary(&part)) {
				t.Errorf("the summary with or without only %s is not JSON", whole.Figures[i].Key)
			}
		}
	}
}

func TestReport_AcceptsZeroAndNegativeFigures(t *testing.T) {
	t.Parallel()
	for _, v := range []float64{0, -1} {
		r := sample()
		for i := range r.Figures {
			for j := range r.Figures[i].Rounds {
				r.Figures[i].Rounds[j] = Round{Value: v, N: j % 2 * 120, P95: v, P99: v, P999: v, Max: v}
			}
		}
		if text := markdown(r, charts(r), "x"); regexp.MustCompile(`%!|NaN|Inf`).Match(text) {
			t.Errorf("values of %v give invalid numbers", v)
		}
	}
}

func TestReport_OfAnEmptyResultHasNoTablesOrCharts(t *testing.T) {
	t.Parallel()
	r := New("once")
	if text := string(markdown(r, charts(r), "x")); strings.Contains(text, "![") || strings.Contains(text, "## ") {
		t.Error(text)
	}
	r.Mode = "quick"
	for _, v := range checkTargets(r) {
		if v.status != notMeasured || v.measured != "" {
			t.Errorf("%+v, want not measured", v)
		}
	}
}

func TestFigure_SupportsAPercentileWithASampleBeyondIt(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]bool{19: false, 20: true, 100: true} {
		f := &Figure{Rounds: []Round{{N: 5000}, {N: n}}}
		if got := f.supports(95); got != want {
			t.Errorf("p95 of %d samples in one of the rounds: %v, want %v", n, got, want)
		}
	}
}

func TestCharts_AreWellFormed(t *testing.T) {
	t.Parallel()
	for _, c := range charts(sample()) {
		text := c.svg()
		for decoder := xml.NewDecoder(bytes.NewReader(text)); ; {
			if _, err := decoder.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
		if n := bytes.Count(text, []byte("<rect ")); n != len(c.bars) || n < 3 || bytes.Count(text, []byte(`class="ours"`)) != 1 {
			t.Errorf("%s has %d bars of %d:\n%s", c.name, n, len(c.bars), text)
		}
	}
}
