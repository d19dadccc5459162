package store_test

import (
	"context"
	"encoding/json"
	"errors"
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

// A failed run prints its seed, and -seed repeats it. -rounds sets the number of rounds,
// each with another seed.
var (
	seedFlag   = flag.Int64("seed", 0, "seed of the first round of the model tests; 0 for one from the clock")
	roundsFlag = flag.Int("rounds", 2, "rounds of the model tests, for each graph")
	stepsFlag  = flag.Int("steps", 250, "steps per round")
)

const (
	modelWorkers  = 6
	modelAttempts = 2
	modelLease    = 40 * time.Minute // a round ends within its grace, in which claims are recent
)

// modelRand returns the random generator of the tests, and its seed.
func modelRand() (*rand.Rand, int64) {
	seed := *seedFlag
	if seed == 0 {
		seed = time.Now().UnixNano() % 1e9
	}
	return rand.New(rand.NewPCG(uint64(seed), 0)), seed
}

// graphs returns the graphs of the model tests.
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
	film, err := store.NewGraph("film",
		store.Node{Name: "fetch"},
		store.Node{Name: "encode", Needs: []string{"fetch"}, Divides: true},
		store.Node{Name: "probe", Needs: []string{"fetch"}},
		store.Node{Name: "publish", Needs: []string{"encode", "probe"}},
	)
	if err != nil {
		t.Fatal(err)
	}
	return []store.Graph{store.Video(), diamond, film}
}

// runRounds calls run in a parallel sub-test for each graph and seed.
func runRounds(t *testing.T, run func(t *testing.T, g store.Graph, seed int64)) {
	t.Helper()
	_, first := modelRand()
	for _, g := range graphs(t) {
		for i := range *roundsFlag {
			seed := first + int64(i)
			t.Run(fmt.Sprintf("%s/%d", g.Name(), seed), func(t *testing.T) {
				t.Parallel()
				t.Cleanup(func() {
					if t.Failed() {
						t.Logf("repeat with: go test ./store -run '^%s$' -seed %d -rounds 1 -steps %d",
							strings.SplitN(t.Name(), "/", 2)[0], seed, *stepsFlag)
					}
				})
				run(t, g, seed)
			})
		}
	}
}

func TestStore_AgreesWithTheModel(t *testing.T) {
	t.Parallel()
	runRounds(t, func(t *testing.T, g store.Graph, seed int64) {
		p := newSimulation(t, g, seed)
		steps := p.steps()
		for p.step = range *stepsFlag {
			p.pickStep(steps)()
			p.compare()
			if p.step%20 == 0 {
				p.compareHistory()
			}
		}
		p.completeAll()
		p.compareHistory()
		p.checkInvariants()
	})
}

// simulation is one round: the model, the store, and what has been done to both.
type simulation struct {
	tables
	t         *testing.T
	pool      *pgxpool.Pool
	rng       *rand.Rand
	model     *model
	workers   []*modelWorker // the current ones; the model has all
	noRetries bool           // no step retries a task
	prefix    string
	step      int
	taskCount int // of all tasks ever submitted
	log       []string
	claims    []engine.Claim // all claims ever made
	tokens    map[store.ID]bool

	committed, rolledBack []string // request ids
}

func newSimulation(t *testing.T, g store.Graph, seed int64) *simulation {
	pool := pgtest.New(t, pgtest.SQL(g.SchemaSQL(), g.TriggersSQL()))
	p := &simulation{
		tables: newTables(pool, g), t: t, pool: pool, model: newModel(g, modelAttempts), prefix: modelPrefix(g),
		rng: rand.New(rand.NewPCG(uint64(seed), 1)), noRetries: seed%2 == 0, tokens: make(map[store.ID]bool),
	}
	for i := range modelWorkers {
		p.workers = append(p.workers, p.register(fmt.Sprint("w", i)))
	}
	return p
}

// modelPrefix returns the prefix of the names of the pipeline's tables.
func modelPrefix(g store.Graph) string {
	if g.Name() == "video" {
		return ""
	}
	return g.Name() + "_"
}

func modelRegister(ctx context.Context, s *engine.Engine) (store.ID, error) {
	return s.RegisterWorker(ctx, store.Worker{Host: "test", PID: 1, Lease: modelLease})
}

func modelHeartbeat(ctx context.Context, s *engine.Engine, worker store.ID, claims []engine.Claim) ([]store.ID, error) {
	out, err := s.Heartbeat(ctx, engine.HeartbeatRequest{Worker: worker, Claims: claims, Credit: &engine.OutageCredit{}})
	return tokensOfLost(out.LostClaims), err
}

func modelSweep(ctx context.Context, s *engine.Engine, worker store.ID,
	credit *engine.OutageCredit) (engine.SweepResult, error) {
	return s.Sweep(ctx, engine.SweepRequest{
		Worker: worker, Credit: credit, MaxAttempts: slices.Repeat([]int{modelAttempts}, len(s.Graph().Stages())),
	})
}

// logStep logs a step; the last of them are shown when a round fails.
func (p *simulation) logStep(format string, args ...any) {
	p.log = append(p.log, fmt.Sprintf("%4d ", p.step)+fmt.Sprintf(format, args...))
}

// fatalf fails the test with the last steps.
func (p *simulation) fatalf(format string, args ...any) {
	p.t.Helper()
	p.t.Fatalf("%s\nafter:\n%s", fmt.Sprintf(format, args...), strings.Join(p.log[max(0, len(p.log)-30):], "\n"))
}

func (p *simulation) must(err error) {
	p.t.Helper()
	if err != nil {
		p.fatalf("%v", err)
	}
}

func (p *simulation) exec(sql string, args ...any) {
	p.t.Helper()
	_, err := p.pool.Exec(p.t.Context(), strings.ReplaceAll(sql, "PREFIX_", p.prefix), args...)
	p.must(err)
}

// step is something that may be done next.
type step struct {
	weight int
	do     func()
}

func (p *simulation) pickStep(steps []step) func() {
	sum := 0
	for _, m := range steps {
		sum += m.weight
	}
	n := p.rng.IntN(sum)
	for _, m := range steps {
		if n -= m.weight; n < 0 {
			return m.do
		}
	}
	panic("unreachable")
}

// compare compares all tasks with the model.
func (p *simulation) compare() {
	p.t.Helper()
	tasks, err := p.List(p.t.Context(), store.ListQuery{Filter: store.Filter{Limit: 10000}})
	p.must(err)
	if len(tasks) != len(p.model.tasks) {
		p.fatalf("there are %d tasks, want %d", len(tasks), len(p.model.tasks))
	}
	slices.Reverse(tasks)
	for i, want := range p.model.tasks {
		got := tasks[i]
		if got.ID != want.id || got.OverriddenBy != want.overriddenBy || got.Priority != want.priority ||
			got.RequestID != want.request {
			p.fatalf("task %s is %+v, want %+v", want.name, got, want)
		}
		if status := p.model.status(want); got.Status != status {
			p.fatalf("%s is %s, want %s", want.name, got.Status, status)
		}
		for j, s := range got.Stages {
			if want.stages[j].status == cancelled || want.stages[j].status == dead {
				s.Attempts = want.stages[j].attempts // its step is gone, if it was not divided
			}
			if a, b := p.describe(s), want.stages[j].describe(); a != b {
				p.fatalf("stage %s of %s is\n  %s, want\n  %s", s.Name, want.name, a, b)
			}
		}
		p.compareParts(want)
	}
}

// compareParts compares the parts of a task with the model.
func (p *simulation) compareParts(task *modelTask) {
	p.t.Helper()
	got, err := p.Parts(p.t.Context(), task.id)
	p.must(err)
	var a, b []string
	for _, s := range got {
		wait := waitOf(s.RunAt)
		a = append(a, fmt.Sprintf("%s %d: %s, %d attempts, of %s, wait %d", s.Stage, s.Part, s.Status, s.Attempts, s.LockedBy, wait))
	}
	for i := range task.stages {
		for n, s := range task.stages[i].parts {
			status := s.status
			if s.isClaimable() { // a part has no other trace of a failure
				status = pending
				if s.attempts > 0 || s.wait != noWait {
					status = failing
				}
			}
			b = append(b, fmt.Sprintf("%s %d: %s, %d attempts, of %s, wait %d", p.model.stages[i], n+1, status, s.attempts, s.worker, s.wait))
		}
	}
	if !slices.Equal(a, b) {
		p.fatalf("the parts of %s are\n  %s\nwant\n  %s", task.name, strings.Join(a, "\n  "), strings.Join(b, "\n  "))
	}
}

func waitOf(runAt *time.Time) modelWait {
	switch {
	case runAt == nil:
		return noWait
	case runAt.Before(time.Now()):
		return waitDue
	}
	return waiting
}

func (p *simulation) describe(s store.StageState) string {
	open := "no"
	if s.OpenParts != nil {
		open = fmt.Sprint(*s.OpenParts)
	}
	return fmt.Sprintf("%s, %d attempts, claim %s of %s, wait %d, %s open parts",
		s.Status, s.Attempts, s.Token, s.LockedBy, waitOf(s.RunAt), open)
}

func (s *modelStage) describe() string {
	open := "no"
	if s.parts != nil {
		open = fmt.Sprint(s.openParts())
	}
	return fmt.Sprintf("%s, %d attempts, claim %s of %s, wait %d, %s open parts", s.status, s.attempts, s.token, s.worker, s.wait, open)
}

// compareHistory compares all attempts with the model.
func (p *simulation) compareHistory() {
	p.t.Helper()
	for _, task := range p.model.tasks {
		got, err := p.History(p.t.Context(), task.id)
		p.must(err)
		if len(got) != len(task.history) {
			p.fatalf("history of %s is %+v, want %+v", task.name, got, task.history)
		}
		for _, a := range got {
			if attempt := (modelAttempt{a.Stage, a.Part, a.Attempt, a.Outcome, a.Worker}); attempt != task.history[a.Token] {
				p.fatalf("in the history of %s, %s is %+v, want %+v", task.name, a.Token, attempt, task.history[a.Token])
			}
		}
		for i := range task.stages {
			p.compareResult(task, i)
		}
	}
}

func (p *simulation) compareResult(task *modelTask, stage int) {
	p.t.Helper()
	raw, err := p.Result(p.t.Context(), task.id, p.model.stages[stage])
	if want := task.stages[stage].result; string(raw) != want || (err == nil) != (want != "") {
		p.fatalf("result of stage %s of %s is %s, %v; want %q", p.model.stages[stage], task.name, raw, err, want)
	}
	results, err := p.PartResults(p.t.Context(), task.id, p.model.stages[stage])
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		p.fatalf("results of parts: %v", err)
	}
	var want []string
	for _, s := range task.stages[stage].parts {
		if s.status == done {
			want = append(want, s.result)
		}
	}
	if !slices.EqualFunc(results, want, func(a json.RawMessage, b string) bool { return string(a) == b }) {
		p.fatalf("the results of the parts of stage %s of %s are %s, want %s", p.model.stages[stage], task.name, results, want)
	}
}

// checkInvariants checks the rules of package invariant, which does not use the model. The
// test changed the times of claims, so their starts are not checked.
func (p *simulation) checkInvariants() {
	p.t.Helper()
	found, err := invariant.Check(p.t.Context(), p.pool, p.Graph(), invariant.Options{
		Settled: true, NoRetries: p.noRetries, MaxOrphanTime: time.Second, MaxTransactionTime: 24 * time.Hour,
		MaxAttempts: slices.Repeat([]int{modelAttempts}, len(p.model.stages)),
		Committed:   p.committed, RolledBack: p.rolledBack,
	})
	p.must(err)
	for _, v := range found {
		p.t.Error(v)
	}
}
