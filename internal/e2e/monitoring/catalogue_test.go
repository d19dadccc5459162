package monitoring

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/cuelight/cuelight/internal/metrics"
	"github.com/cuelight/cuelight/internal/operators"
	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/store"
)

// catalogue has the metric families of a process that exports everything.
type catalogue struct {
	parser   parser.Parser
	families map[string]*dto.MetricFamily
}

func newCatalogue(t *testing.T) catalogue {
	t.Helper()
	g := store.Video()
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL(), operators.SQL))
	if _, err := pool.Exec(t.Context(), `insert into workers (name, host, pid) values ('h', 'h', 1)`); err != nil {
		t.Fatal(err)
	}
	m := metrics.New(metrics.Options{
		Graph: g, Slots: map[string]int{"ingest": 2}, Version: "1.2.3", Pool: pool, Dirs: []string{t.TempDir()},
		Database: metrics.NewDatabase(pool, g), KeepEvents: time.Hour,
	})
	m.ExportHTTPStreams(func() int { return 3 })
	m.ExportStandby(func() (time.Duration, bool) { return time.Second, true })
	for _, status := range []int{200, 301, 404, 500} { // the series of a status begin with the first such response
		m.ObserveHTTPRequest("GET /api/v1/tasks", status, time.Millisecond, false)
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	text := expfmt.NewTextParser(model.UTF8Validation)
	families, err := text.TextToMetricFamilies(w.Body)
	if err != nil || w.Code != http.StatusOK {
		t.Fatalf("status %d, %v", w.Code, err)
	}
	return catalogue{parser.NewParser(parser.Options{}), families}
}

// label returns the value of a label.
func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// family returns the family of a series in an expression, and whether the series is a
// histogram's bucket.
func (c catalogue) family(series string) (f *dto.MetricFamily, bucket bool) {
	if f := c.families[series]; f != nil && f.GetType() != dto.MetricType_HISTOGRAM {
		return f, false
	}
	for _, part := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(series, part); ok {
			if f := c.families[base]; f != nil && f.GetType() == dto.MetricType_HISTOGRAM {
				return f, part == "_bucket"
			}
		}
	}
	return nil, false
}

func (c catalogue) labels(family string) (names []string) {
	for _, l := range c.families[family].GetMetric()[0].GetLabel() {
		names = append(names, l.GetName())
	}
	slices.Sort(names)
	return names
}

func (c catalogue) check(t *testing.T, where, expr string) {
	t.Helper()
	for _, p := range c.problems(expr) {
		t.Errorf("%s: %s\n%s", where, p, expr)
	}
}

// problems lists the errors of an expression: syntax, unknown series, labels and values,
// a rate of a gauge, and a counter without a rate.
func (c catalogue) problems(expr string) (all []string) {
	tree, err := c.parser.ParseExpr(expr)
	if err != nil {
		return []string{err.Error()}
	}
	added := []string{"job", "instance"} // by Prometheus
	known := added
	used := 0
	parser.Inspect(tree, func(node parser.Node, path []parser.Node) error {
		s, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		used++
		f, bucket := c.family(s.Name)
		if f == nil {
			all = append(all, fmt.Sprintf("there is no %s", s.Name))
			return nil
		}
		has := append(c.labels(f.GetName()), added...)
		if bucket {
			has = append(has, "le")
		}
		known = append(known, has...)
		for _, m := range s.LabelMatchers {
			if m.Name != model.MetricNameLabel && !slices.Contains(has, m.Name) {
				all = append(all, fmt.Sprintf("%s has no label %s", s.Name, m.Name))
			}
			all = append(all, valueProblems(f, m)...)
		}
		all = append(all, callProblems(f, path)...)
		return nil
	})
	if used == 0 {
		all = append(all, "it uses no series")
	}
	parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
		for _, l := range matched(node) {
			if !slices.Contains(known, l) {
				all = append(all, fmt.Sprintf("no series in it has a label %s", l))
			}
		}
		return nil
	})
	return all
}

// matched returns the labels by which a node groups or joins series.
func matched(node parser.Node) []string {
	switch n := node.(type) {
	case *parser.AggregateExpr:
		return n.Grouping
	case *parser.BinaryExpr:
		if n.VectorMatching != nil {
			return n.VectorMatching.MatchingLabels
		}
	}
	return nil
}

// valueProblems lists the values of a matcher that no series has, for labels with fixed values.
func valueProblems(f *dto.MetricFamily, m *labels.Matcher) (all []string) {
	if m.Value == ".*" || !slices.Contains([]string{"stage", "outcome", "status", "state", "type"}, m.Name) {
		return nil
	}
	for _, value := range strings.Split(m.Value, "|") {
		if !slices.ContainsFunc(f.GetMetric(), func(s *dto.Metric) bool { return label(s, m.Name) == value }) {
			all = append(all, fmt.Sprintf("no %s has %s %q", f.GetName(), m.Name, value))
		}
	}
	return all
}

// callProblems checks the function that is called with a range of a series.
func callProblems(f *dto.MetricFamily, path []parser.Node) []string {
	counts := f.GetType() == dto.MetricType_COUNTER || f.GetType() == dto.MetricType_HISTOGRAM
	for _, node := range slices.Backward(path) {
		call, ok := node.(*parser.Call)
		if !ok {
			continue
		}
		switch name := call.Func.Name; name {
		case "rate", "increase":
			if !counts {
				return []string{fmt.Sprintf("%s of %s, which is not a counter", name, f.GetName())}
			}
			return nil
		case "delta", "changes", "min_over_time":
			if counts {
				return []string{fmt.Sprintf("%s of %s, which is a counter", name, f.GetName())}
			}
			return nil
		}
	}
	if counts {
		return []string{f.GetName() + " is a counter, whose value means nothing without a rate"}
	}
	return nil
}

func TestCatalogue_FindsErrorsInExpressions(t *testing.T) {
	t.Parallel()
	c := newCatalogue(t)
	const goneAttempts = `rate(cuelight_stage_attempts_total{outcome=~"dead|gone"}[5m])`
	for expr, want := range map[string]string{
		`sum by (stage) (rate(cuelight_retries_total{stage=~".*"}[5m])) > 0`:                    "",
		`histogram_quantile(0.9, sum by (le) (rate(cuelight_wake_latency_seconds_bucket[5m])))`: "",
		`sum(cuelight_tasks`:                                 "parse error",
		`cuelight_taks > 1`:                                  "there is no cuelight_taks",
		`cuelight_wake_latency_seconds`:                      "there is no cuelight_wake_latency_seconds",
		`cuelight_tasks_bucket`:                              "there is no cuelight_tasks_bucket",
		`cuelight_tasks{state="ready"}`:                      "cuelight_tasks has no label state",
		`cuelight_tasks{status="redy"}`:                      `no cuelight_tasks has status "redy"`,
		goneAttempts:                                         `no cuelight_stage_attempts_total has outcome "gone"`,
		`rate(cuelight_dead_tasks[5m])`:                      "which is not a counter",
		`delta(cuelight_retries_total[5m])`:                  "which is a counter",
		`cuelight_retries_total > 0`:                         "means nothing without a rate",
		`sum by (worker) (cuelight_tasks)`:                   "no series in it has a label worker",
		`cuelight_tasks and on (worker) cuelight_dead_tasks`: "no series in it has a label worker",
		`vector(1)`:                                          "it uses no series",
	} {
		got := strings.Join(c.problems(expr), "\n")
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: found %q, want %q", expr, got, want)
		}
	}
}
