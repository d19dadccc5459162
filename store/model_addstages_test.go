package store_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// loseWorkers makes all workers lost, with the claims that they hold.
func loseWorkers(t *testing.T, pool *pgxpool.Pool, g store.Graph) {
	t.Helper()
	_, err := pool.Exec(t.Context(), g.SQL("update {workers} set lost_at = now() where stopped_at is null"))
	must(t, err)
}

// Tasks that random operations left in any state go on after random stages were added.
func TestMigrate_AddsRandomStagesToTasksInAnyState(t *testing.T) {
	t.Parallel()
	_, first := modelRand()
	for i := range 4 * *roundsFlag {
		seed := first + int64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(uint64(seed), 2))
			name, nodes := randomGraph(rng, i)
			nodes = nodes[:min(len(nodes), 12)]
			nodes = withoutStages(nodes, missingNeeds(nodes)...)
			var added []string
			for _, n := range nodes {
				if rng.IntN(3) == 0 && len(added) < len(nodes)-1 {
					added = append(added, n.Name)
				}
			}
			before := mustGraph(t, name, withoutStages(nodes, added...)...)
			after := mustGraph(t, name, nodes...)
			p := newSimulation(t, before, seed)
			steps := p.steps()
			for p.step = range *stepsFlag {
				p.pickStep(steps)()
			}
			loseWorkers(t, p.pool, before)
			r, err := store.New(p.pool, after).Migrate(t.Context())
			must(t, err)
			slices.Sort(r.Added)
			if slices.Sort(added); !slices.Equal(r.Added, added) || r.From != store.SchemaVersion {
				t.Errorf("%s: Migrate returned %+v, want the added stages %v", after, r, added)
			}
			wantCatalogOf(t, p.pool, after)
			completeRemaining(t, newTables(p.pool, after))
		})
	}
}

// missingNeeds returns the needs that are not among the nodes.
func missingNeeds(nodes []store.Node) (missing []string) {
	for _, n := range nodes {
		for _, need := range n.Needs {
			if !slices.ContainsFunc(nodes, func(n store.Node) bool { return n.Name == need }) {
				missing = append(missing, need)
			}
		}
	}
	return missing
}

// completeRemaining lets a worker complete all stages that can be claimed, and checks that
// no task is left unfinished.
func completeRemaining(t *testing.T, s tables) {
	t.Helper()
	ctx := t.Context()
	w, err := modelRegister(ctx, s.Engine)
	must(t, err)
	n := s.Graph().Queues()
	in := engine.ExchangeRequest{
		Worker: w, FreeSlots: slices.Repeat([]int{100}, n), ClaimFrom: slices.Repeat([]bool{true}, n), PromoteDue: true,
	}
	for range 20 * n {
		_, err := s.DB().Exec(ctx, s.Graph().SQL("update {steps} set run_at = now() where status = 'waiting'"))
		must(t, err)
		_, err = modelSweep(ctx, s.Engine, w, &engine.OutageCredit{})
		must(t, err)
		out, err := s.Exchange(ctx, in)
		must(t, err)
		in.Reports = nil
		for _, c := range out.Claims {
			in.Reports = append(in.Reports, completed(c))
		}
	}
	tasks, err := s.List(ctx, store.ListQuery{Filter: store.Filter{Limit: 10000}})
	must(t, err)
	for _, task := range tasks {
		if !slices.Contains([]store.Status{done, store.StatusDead, store.StatusCancelled}, task.Status) {
			t.Errorf("%s: task %s is %s", s.Graph(), task.ID, task.Status)
		}
	}
}
