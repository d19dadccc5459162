package monitoring

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "monitoring", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// ruleFile is a file of Prometheus rules, with the fields that ours use.
type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert               string
			Expr                string
			For                 string
			Labels, Annotations map[string]string
		}
	}
}

func alerts(t *testing.T) (f ruleFile) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(document(t, "rules.yml")))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestAlerts_UseExistingMetrics(t *testing.T) {
	t.Parallel()
	c := newCatalogue(t)
	n := 0
	for _, g := range alerts(t).Groups {
		for _, r := range g.Rules {
			n++
			c.check(t, r.Alert, r.Expr)
		}
	}
	if n < 9 {
		t.Errorf("there are %d alerts", n)
	}
}

// The autoscaler of docs/deploy/kubernetes reads the backlog from Prometheus.
func TestAutoscaler_UsesExistingMetrics(t *testing.T) {
	t.Parallel()
	var manifest struct {
		Spec struct {
			Triggers []struct{ Metadata map[string]string }
		}
	}
	if err := yaml.Unmarshal([]byte(document(t, "../deploy/kubernetes/scaledobject.yaml")), &manifest); err != nil {
		t.Fatal(err)
	}
	c := newCatalogue(t)
	for _, trigger := range manifest.Spec.Triggers {
		c.check(t, "scaledobject.yaml", trigger.Metadata["query"])
	}
	if len(manifest.Spec.Triggers) == 0 {
		t.Error("scaledobject.yaml has no trigger")
	}
}

func TestAlerts_AreDescribed(t *testing.T) {
	t.Parallel()
	readme := document(t, "README.md")
	known := make(map[string]bool)
	for _, g := range alerts(t).Groups {
		for _, r := range g.Rules {
			if known[r.Alert] {
				t.Errorf("two alerts are named %s", r.Alert)
			}
			known[r.Alert] = true
			if !strings.Contains(readme, "\n| `"+r.Alert+"` |") {
				t.Errorf("the README does not describe %s", r.Alert)
			}
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.Labels["severity"] == "" {
				t.Errorf("%s lacks a summary, a description or a severity", r.Alert)
			}
		}
	}
	for _, name := range regexp.MustCompile("`(Cuelight[A-Z]\\w*)`").FindAllStringSubmatch(readme, -1) {
		if !known[name[1]] {
			t.Errorf("the README describes %s, which does not exist", name[1])
		}
	}
}

type dashboard struct {
	UID         string
	Templating  struct{ List []variable }
	Panels      []panel
	Annotations struct {
		List []struct{ Name, Expr string }
	}
}

type variable struct {
	Name, Type string
	Query      any
}

type panel struct {
	ID      int
	Type    string
	Title   string
	GridPos struct{ H, W, X, Y int }
	Targets []struct{ RefID, Expr string }
	Panels  []panel
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(document(t, "grafana.json")), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// variables replaces the variables of Grafana.
var variables = strings.NewReplacer(
	"$__rate_interval", "5m", `="$job"`, `=~".*"`, `=~"$instance"`, `=~".*"`, `=~"$stage"`, `=~".*"`,
)

func TestDashboard_UsesExistingMetrics(t *testing.T) {
	t.Parallel()
	c := newCatalogue(t)
	d := readDashboard(t)
	for _, p := range d.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %s has no query", p.Title)
		}
		for _, q := range p.Targets {
			c.check(t, p.Title, variables.Replace(q.Expr))
		}
	}
	for _, a := range d.Annotations.List {
		c.check(t, a.Name, variables.Replace(a.Expr))
	}
	values := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
	for _, v := range d.Templating.List {
		q, ok := v.Query.(map[string]any)
		if !ok {
			continue // a data source
		}
		text, _ := q["query"].(string)
		m := values.FindStringSubmatch(text)
		if m == nil {
			t.Errorf("variable %s has the query %q", v.Name, text)
			continue
		}
		c.check(t, v.Name, "sum by ("+m[2]+") ("+variables.Replace(m[1])+")")
	}
}

func TestDashboard_HasItsRowsWithoutOverlap(t *testing.T) {
	t.Parallel()
	var rows []string
	ids := make(map[int]bool)
	taken := make(map[[2]int]string)
	for _, p := range readDashboard(t).Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			rows = append(rows, p.Title)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if taken[at] != "" || at[0] >= 24 {
					t.Fatalf("panel %s overlaps another or the edge", p.Title)
				}
				taken[at] = p.Title
			}
		}
	}
	want := []string{"Pipeline", "Latency", "Workers", "Listener and sweep", "Outbox and webhooks", "HTTP", "Storage"}
	if !slices.Equal(rows, want) {
		t.Errorf("rows are %q, want %q", rows, want)
	}
}

func TestMetrics_AreShownAndDescribed(t *testing.T) {
	t.Parallel()
	c := newCatalogue(t)
	readme, shown := document(t, "README.md"), document(t, "grafana.json")+document(t, "rules.yml")
	for name, f := range c.families {
		if !strings.HasPrefix(name, "cuelight") {
			continue
		}
		row := regexp.MustCompile("(?m)^\\| `" + name + "` \\| (\\w+) \\| ([^|]*)\\|").FindStringSubmatch(readme)
		if row == nil {
			t.Errorf("the README does not describe %s", name)
			continue
		}
		if kind := strings.ToLower(f.GetType().String()); row[1] != kind {
			t.Errorf("%s is a %s; the README says %s", name, kind, row[1])
		}
		described := strings.FieldsFunc(row[2], func(r rune) bool { return strings.ContainsRune("`, ", r) })
		slices.Sort(described)
		if !slices.Equal(described, c.labels(name)) {
			t.Errorf("%s has the labels %q; the README says %q", name, c.labels(name), described)
		}
		if !regexp.MustCompile(name + `(_bucket|_sum|_count)?\b`).MatchString(shown) {
			t.Errorf("neither the dashboard nor an alert uses %s", name)
		}
	}
	for _, name := range regexp.MustCompile(`\bcuelight_\w+`).FindAllString(readme, -1) {
		if c.families[name] == nil {
			t.Errorf("the README names %s, which is not exported", name)
		}
	}
}
