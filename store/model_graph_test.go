package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/proof/invariant"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// PostgreSQL accepts the tables of every graph that NewGraph accepts, several in one
// database, and they work.
func TestMigrate_CreatesWorkingTablesForRandomGraphs(t *testing.T) {
	t.Parallel()
	rng, seed := modelRand()
	t.Logf("repeat with: -seed %d", seed)
	pool := pgtest.New(t, pgtest.Schema{})
	for i := range 4 * *roundsFlag {
		name, nodes := randomGraph(rng, i)
		g, err := store.NewGraph(name, nodes...)
		if err != nil {
			t.Fatal(err)
		}
		s := newTables(pool, g)
		if _, err := s.Migrate(t.Context()); err != nil {
			t.Fatalf("%s: %s: %v", name, g, err)
		}
		checkOperations(t, s)
		found, err := invariant.Check(t.Context(), pool, g, invariant.Options{Settled: true})
		if err != nil || len(found) > 0 {
			t.Errorf("%s: %s: %v, %v", name, g, found, err)
		}
	}
}

// randomGraph returns a graph of up to 31 stages. Their names are SQL keywords, columns of
// other stages, or of the maximum length.
func randomGraph(rng *rand.Rand, i int) (string, []store.Node) {
	name := fmt.Sprintf("p%d", i)
	if rng.IntN(2) == 0 {
		name += strings.Repeat("x", 63-len("cuelight__event_watermark")-len(name))
	}
	words := []string{
		"select", "from", "a", "a_locked", "a_run", "a_done", "a_status", "task", "order", "id", "t", "done", "locked",
		"next", "open", "request", "overridden", "held", "dead", "source", "x", "user", "table", "case", "null",
		"true", "wake", "end",
	}
	rng.Shuffle(len(words), func(i, j int) { words[i], words[j] = words[j], words[i] })
	var nodes []store.Node
	for range 1 + rng.IntN(31) {
		n := store.Node{Name: fmt.Sprintf("s%d", len(nodes)), Divides: rng.IntN(4) == 0}
		if len(nodes) < len(words) {
			n.Name = words[len(nodes)]
		}
		if room := 63 - len(name+"_tasks_"+n.Name+"_waiting"); room > 0 && rng.IntN(5) == 0 {
			n.Name += strings.Repeat("z", room)
		}
		if len(name+"_tasks_"+n.Name+"_waiting") > 63 {
			n.Name = fmt.Sprintf("s%d", len(nodes))
		}
		for _, other := range nodes {
			if rng.IntN(1+len(nodes)) < 2 {
				n.Needs = append(n.Needs, other.Name)
			}
		}
		nodes = append(nodes, n)
	}
	rng.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	return name, nodes
}

// checkOperations takes a task through all stages, and then retries, cancels and
// overrides it.
func checkOperations(t *testing.T, s tables) {
	t.Helper()
	ctx := t.Context()
	r, err := s.Submit(ctx, store.Submission{Source: "a"})
	if err != nil {
		t.Fatal(err)
	}
	w, err := modelRegister(ctx, s.Engine)
	if err != nil {
		t.Fatal(err)
	}
	n := s.Graph().Queues()
	in := engine.ExchangeRequest{
		Worker: w, FreeSlots: slices.Repeat([]int{2}, n), ClaimFrom: slices.Repeat([]bool{true}, n),
	}
	for {
		out, err := s.Exchange(ctx, in)
		if err != nil {
			t.Fatalf("%s: %v", s.Graph(), err)
		}
		in.Reports = nil
		for _, c := range out.Claims {
			if s.Graph().Divides(c.Stage) && c.Parts == 0 {
				in.Reports = append(in.Reports, division(c, 2))
				continue
			}
			in.Reports = append(in.Reports, completed(c))
		}
		if len(in.Reports) == 0 {
			break
		}
	}
	task, err := s.Get(ctx, r.ID)
	if err != nil || task.Status != done {
		t.Errorf("%s: the task is %s, %v", s.Graph(), task.Status, err)
	}
	if err := s.Retry(ctx, r.ID, s.Graph().Stages()[0]); err != nil {
		t.Error(err)
	}
	if err := s.Cancel(ctx, r.ID); err != nil {
		t.Error(err)
	}
	by, err := s.Override(ctx, []store.ID{r.ID}, store.Submission{Source: "b"})
	if err != nil {
		t.Error(err)
	}
	if err := s.Cancel(ctx, by.ID); err != nil {
		t.Error(err)
	}
}
