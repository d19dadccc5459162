package store_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/internal/proof/invariant"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// A failed run prints its seed, and -seed plays it again; -rounds plays more of
// them, each with another seed.
var (
	seedFlag   = flag.Int64("seed", 0, "seed of the first round of the model tests; 0 for one made of the time")
	roundsFlag = flag.Int("rounds", 2, "rounds of the model tests, for each graph")
	stepsFlag  = flag.Int("steps", 250, "steps per round")
)

const (
	modelWorkers  = 6
	modelAttempts = 2
	modelLease    = time.Minute
)

// modelRand is the source of all choices, and its seed.
func modelRand() (*rand.Rand, int64) {
	seed := *seedFlag
	if seed == 0 {
		seed = time.Now().UnixNano() % 1e9
	}
	return rand.New(rand.NewPCG(uint64(seed), 0)), seed
}

// graphs are the shapes the model is played on.
func graphs(t *testing.T) []store.Graph {
	t.Helper()
	diamond, err := store.NewGraph("diamond",
		store.Node{Name: "fetch"},
		store.Node{Name: "left", Needs: []string{"fetch"}},
		store.Node{Name: "middle", Needs: []string{"fetch"}},
		store.Node{Name: "right", Needs: []string{"fetch"}},
		store.Node{Name: "join", Needs: []string{"left", "middle", "right"}},
		store.Node{Name: "announce", Needs: []string{"join"}},
		store.Node{Name: "archive", Needs: []string{"join", "fetch"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	return []store.Graph{store.Video(), diamond}
}

// rounds calls play in a parallel subtest for each graph and seed.
func rounds(t *testing.T, play func(t *testing.T, g store.Graph, seed int64)) {
	t.Helper()
	_, first := modelRand()
	for _, g := range graphs(t) {
		for i := range *roundsFlag {
			seed := first + int64(i)
			t.Run(fmt.Sprintf("%s/%d", g.Name(), seed), func(t *testing.T) {
				t.Parallel()
				t.Cleanup(func() {
					if t.Failed() {
						t.Logf("again: go test ./store -run '^%s$' -seed %d -rounds 1 -steps %d",
							strings.SplitN(t.Name(), "/", 2)[0], seed, *stepsFlag)
					}
				})
				play(t, g, seed)
			})
		}
	}
}

func TestStoreDoesWhatTheModelDoes(t *testing.T) {
	t.Parallel()
	rounds(t, func(t *testing.T, g store.Graph, seed int64) {
		p := newPlay(t, g, seed)
		moves := p.moves()
		for p.step = range *stepsFlag {
			p.pick(moves)()
			p.compare()
			if p.step%20 == 0 {
				p.compareHistory()
			}
		}
		p.drain()
		p.compareHistory()
		p.checkInvariants()
	})
}

// play is one round: the model, the store, and what has been done to both.
type play struct {
	tables
	t       *testing.T
	pool    *pgxpool.Pool
	rng     *rand.Rand
	m       *model
	workers []*modelWorker // those of now; the model remembers all
	careful bool           // no operator retries anything
	prefix  string
	step    int
	count   int // of tasks ever
	log     []string
	claims  []engine.Claim // every claim there ever was
	tokens  map[store.ID]bool

	committed, rolledBack []string // request ids
}

func newPlay(t *testing.T, g store.Graph, seed int64) *play {
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
	p := &play{
		tables: newTables(pool, g), t: t, pool: pool, m: newModel(g, modelAttempts), prefix: modelPrefix(g),
		rng: rand.New(rand.NewPCG(uint64(seed), 1)), careful: seed%2 == 0, tokens: make(map[store.ID]bool),
	}
	for i := range modelWorkers {
		p.workers = append(p.workers, p.join(fmt.Sprint("w", i)))
	}
	return p
}

// modelPrefix is what the names of the pipeline's tables begin with.
func modelPrefix(g store.Graph) string {
	if g.Name() == "video" {
		return ""
	}
	return g.Name() + "_"
}

// The calls that say who is there, as the model tests make them.

func modelRegister(ctx context.Context, s *engine.Engine) (store.ID, error) {
	return s.RegisterWorker(ctx, store.Worker{Host: "test", PID: 1, Lease: modelLease})
}

func modelBeat(ctx context.Context, s *engine.Engine, worker store.ID, claims []engine.Claim) ([]store.ID, error) {
	out, err := s.Heartbeat(ctx, engine.HeartbeatRequest{Worker: worker, Claims: claims, Credit: &engine.OutageCredit{}})
	return tokensOfLost(out.LostClaims), err
}

func modelSweep(ctx context.Context, s *engine.Engine, worker store.ID, judge *engine.OutageCredit) (engine.SweepResult, error) {
	return s.Sweep(ctx, engine.SweepRequest{
		Worker: worker, Credit: judge, MaxAttempts: slices.Repeat([]int{modelAttempts}, len(s.Graph().Stages())),
	})
}

// say writes down what is done; the end of it is shown when a round fails.
func (p *play) say(format string, args ...any) {
	p.log = append(p.log, fmt.Sprintf("%4d ", p.step)+fmt.Sprintf(format, args...))
}

func (p *play) fatalf(format string, args ...any) {
	p.t.Helper()
	p.t.Fatalf("%s\nafter:\n%s", fmt.Sprintf(format, args...), strings.Join(p.log[max(0, len(p.log)-30):], "\n"))
}

func (p *play) must(err error) {
	p.t.Helper()
	if err != nil {
		p.fatalf("%v", err)
	}
}

func (p *play) exec(sql string, args ...any) {
	p.t.Helper()
	_, err := p.pool.Exec(p.t.Context(), strings.ReplaceAll(sql, "PREFIX_", p.prefix), args...)
	p.must(err)
}

// move is something that may be done next.
type move struct {
	weight int
	do     func()
}

func (p *play) pick(moves []move) func() {
	sum := 0
	for _, m := range moves {
		sum += m.weight
	}
	n := p.rng.IntN(sum)
	for _, m := range moves {
		if n -= m.weight; n < 0 {
			return m.do
		}
	}
	panic("unreachable")
}

// compare reads all tasks and looks for a difference.
func (p *play) compare() {
	p.t.Helper()
	tasks, err := p.List(p.t.Context(), store.ListQuery{Filter: store.Filter{Limit: 10000}})
	p.must(err)
	if len(tasks) != len(p.m.tasks) {
		p.fatalf("there are %d tasks, want %d", len(tasks), len(p.m.tasks))
	}
	slices.Reverse(tasks)
	for i, want := range p.m.tasks {
		got := tasks[i]
		if got.ID != want.id || got.OverriddenBy != want.by || got.Priority != want.priority || got.RequestID != want.request {
			p.fatalf("task %s is %+v, want %+v", want.name, got, want)
		}
		if status := p.m.status(want); got.Status != status {
			p.fatalf("%s is %s, want %s", want.name, got.Status, status)
		}
		for j, s := range got.Stages {
			if a, b := p.describe(s), want.stages[j].describe(); a != b {
				p.fatalf("stage %s of %s is\n  %s, want\n  %s", s.Name, want.name, a, b)
			}
		}
	}
}

func (p *play) describe(s store.StageState) string {
	wait := noWait
	if s.RunAt != nil {
		wait = waiting
		if s.RunAt.Before(time.Now()) {
			wait = waitOver
		}
	}
	return fmt.Sprintf("%s, %d attempts, claim %s of %s, wait %d", s.Status, s.Attempts, s.Token, s.LockedBy, wait)
}

func (s *modelStage) describe() string {
	return fmt.Sprintf("%s, %d attempts, claim %s of %s, wait %d", s.status, s.attempts, s.token, s.worker, s.wait)
}

// compareHistory reads all attempts and looks for a difference.
func (p *play) compareHistory() {
	p.t.Helper()
	for _, task := range p.m.tasks {
		got, err := p.History(p.t.Context(), task.id)
		p.must(err)
		if len(got) != len(task.history) {
			p.fatalf("history of %s is %+v, want %+v", task.name, got, task.history)
		}
		for _, a := range got {
			if try := (modelTry{a.Stage, a.Attempt, a.Outcome, a.Worker}); try != task.history[a.Token] {
				p.fatalf("in the history of %s, %s is %+v, want %+v", task.name, a.Token, try, task.history[a.Token])
			}
		}
		for i := range task.stages {
			p.compareResult(task, i)
		}
	}
}

func (p *play) compareResult(task *modelTask, stage int) {
	p.t.Helper()
	raw, err := p.Result(p.t.Context(), task.id, p.m.stages[stage])
	if want := task.stages[stage].result; string(raw) != want || (err == nil) != (want != "") {
		p.fatalf("result of stage %s of %s is %s, %v; want %q", p.m.stages[stage], task.name, raw, err, want)
	}
}

// checkInvariants asks the rules, which know nothing of the model. Claims were
// made to look older than they are, so their beginnings say nothing.
func (p *play) checkInvariants() {
	p.t.Helper()
	found, err := invariant.Check(p.t.Context(), p.pool, p.Graph(), invariant.Options{
		Settled: true, NoRetries: p.careful, MaxOrphanTime: time.Second, MaxTransactionTime: 24 * time.Hour,
		MaxAttempts: slices.Repeat([]int{modelAttempts}, len(p.m.stages)),
		Committed:   p.committed, RolledBack: p.rolledBack,
	})
	p.must(err)
	for _, v := range found {
		p.t.Error(v)
	}
}
