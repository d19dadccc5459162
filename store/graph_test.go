package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func TestNewGraph_RejectsInvalidGraphs(t *testing.T) {
	t.Parallel()
	node := func(name string, needs ...string) store.Node { return store.Node{Name: name, Needs: needs} }
	many := make([]store.Node, 101)
	for i := range many {
		many[i] = node("s" + strings.Repeat("x", i))
	}
	for name, c := range map[string]struct {
		pipeline string
		nodes    []store.Node
		message  string
	}{
		"no stages":    {"p", nil, "no stages"},
		"unknown need": {"p", []store.Node{node("a", "b")}, `needs "b", which is not a stage`},
		"itself":       {"p", []store.Node{node("a", "a")}, "needs itself"},
		"circle": {
			"p", []store.Node{node("a", "c"), node("b", "a"), node("c", "b")}, "circle: a needs c needs b needs a",
		},
		"same need twice":   {"p", []store.Node{node("a"), node("b", "a", "a")}, "twice"},
		"duplicate":         {"p", []store.Node{node("a"), node("a")}, `two stages are named "a"`},
		"empty name":        {"p", []store.Node{node("")}, "lower-case"},
		"capital":           {"p", []store.Node{node("Probe")}, "lower-case"},
		"space":             {"p", []store.Node{node("a b")}, "lower-case"},
		"quote":             {"p", []store.Node{node(`a"b`)}, "lower-case"},
		"digit first":       {"p", []store.Node{node("1a")}, "lower-case"},
		"pipeline name":     {"p;", []store.Node{node("a")}, "lower-case"},
		"too long":          {"p", []store.Node{node(strings.Repeat("a", 60))}, "63 bytes"},
		"too many":          {"p", many, "the maximum is 100"},
		"no pipeline name":  {"", []store.Node{node("a")}, "lower-case"},
		"long with a table": {strings.Repeat("p", 40), []store.Node{node("transcription")}, "63 bytes"},
	} {
		_, err := store.NewGraph(c.pipeline, c.nodes...)
		if !errors.Is(err, store.ErrGraph) || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: error is %v, want one that contains %q", name, err, c.message)
		}
	}
}

func TestGraphWithTablePrefix_NamesTablesAndRejectsInvalidPrefixes(t *testing.T) {
	t.Parallel()
	g, err := store.NewGraph("podcast", store.Node{Name: "fetch"})
	if err != nil {
		t.Fatal(err)
	}
	for prefix, accepted := range map[string]bool{
		"": true, "media_": true, "m2": true,
		"Media": false, "2m": false, "a b": false, `a"; --`: false, strings.Repeat("p", 60): false,
	} {
		other, err := g.WithTablePrefix(prefix)
		switch {
		case !accepted && !errors.Is(err, store.ErrGraph):
			t.Errorf("%q: error is %v, want ErrGraph", prefix, err)
		case accepted && (err != nil || other.TablePrefix() != prefix):
			t.Errorf("%q: prefix is %q, error %v", prefix, other.TablePrefix(), err)
		}
	}
	if g.TablePrefix() != "podcast_" {
		t.Errorf("prefix of the first graph is %q now, want %q", g.TablePrefix(), "podcast_")
	}
	other, err := g.WithTablePrefix("media_")
	if err != nil {
		t.Fatal(err)
	}
	checkCompletesTask(t, other)
}

func TestNewGraph_AcceptsSQLKeywordsAsStageNames(t *testing.T) {
	t.Parallel()
	g, err := store.NewGraph("order",
		store.Node{Name: "select"}, store.Node{Name: "select_wake", Needs: []string{"select"}},
		store.Node{Name: "select_insert", Needs: []string{"select"}}, store.Node{Name: "from", Needs: []string{"select"}},
		store.Node{Name: "end", Needs: []string{"from", "select"}})
	if err != nil {
		t.Fatal(err)
	}
	checkCompletesTask(t, g)
}

// The graph has seven stages, and two that no other stage needs.
func TestMigrate_CreatesTablesOfACustomPipeline(t *testing.T) {
	t.Parallel()
	g, err := store.NewGraph("podcast",
		store.Node{Name: "fetch"},
		store.Node{Name: "left", Needs: []string{"fetch"}},
		store.Node{Name: "middle", Needs: []string{"fetch"}},
		store.Node{Name: "right", Needs: []string{"fetch"}},
		store.Node{Name: "join", Needs: []string{"left", "middle", "right"}},
		store.Node{Name: "announce", Needs: []string{"join"}},
		store.Node{Name: "archive", Needs: []string{"join"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	checkCompletesTask(t, g)
}

// checkCompletesTask creates the pipeline's tables in the database of the video pipeline,
// and takes a task through all stages.
func checkCompletesTask(t *testing.T, g store.Graph) {
	t.Helper()
	b := setup(t)
	s, e := store.New(b.pool, g), engine.New(b.pool, g)
	if r, err := s.Migrate(t.Context()); err != nil || r.From != 0 {
		t.Fatal(r, err)
	}
	r, err := s.Submit(t.Context(), store.Submission{Source: "a"})
	if err != nil {
		t.Fatal(err)
	}
	w, err := e.RegisterWorker(t.Context(), store.Worker{Host: "test", PID: 1})
	if err != nil {
		t.Fatal(err)
	}
	n := len(g.Stages())
	in := engine.ExchangeRequest{Worker: w, FreeSlots: make([]int, n), ClaimFrom: make([]bool, n)}
	for i := range n {
		in.FreeSlots[i], in.ClaimFrom[i] = 2, true
	}
	claimed := 0
	for {
		out, err := e.Exchange(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		in.Reports = nil
		for _, c := range out.Claims {
			claimed++
			in.Reports = append(in.Reports, engine.Report{
				Task: c.Task, Stage: c.Stage, Token: c.Token, Outcome: engine.Completed,
			})
		}
		if len(in.Reports) == 0 {
			break
		}
	}
	task, err := s.Get(t.Context(), r.ID)
	if err != nil || task.Status != store.StatusCompleted || claimed != n {
		t.Errorf("task is %s after %d claims, want completed after %d: %v", task.Status, claimed, n, err)
	}
}
