package scenario_test

import (
	"context"
	"sync"
	"time"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/bench/result"
	"github.com/cuelight/cuelight/bench/scenario"
)

// fakeSystem performs each stage in memory.
type fakeSystem struct {
	name     string
	duration time.Duration // of a task
	distort  func(observe func(harness.Observation), m harness.Observation)
	setup    func() error
	onStart  func() // called for each start
}

func (f fakeSystem) system() harness.System {
	return harness.System{
		Name: f.name, Settings: "in memory",
		Setup: func(context.Context, string) error {
			if f.setup != nil {
				return f.setup()
			}
			return nil
		},
		Start: func(_ context.Context, _ string, o harness.Options) (harness.Workers, error) {
			if f.onStart != nil {
				f.onStart()
			}
			if f.distort == nil {
				f.distort = func(observe func(harness.Observation), m harness.Observation) { observe(m) }
			}
			return &fakeWorkers{fakeSystem: f, options: o}, nil
		},
	}
}

type fakeWorkers struct {
	fakeSystem
	options harness.Options
	all     sync.WaitGroup
}

// Submit runs all stages of a task.
func (c *fakeWorkers) Submit(_ context.Context, task int64) error {
	c.all.Go(func() {
		time.Sleep(c.duration)
		for s := harness.Ingest; s < harness.Stage(harness.StageCount); s++ {
			for w := harness.Started; w <= harness.Completed; w++ {
				c.distort(c.options.Observe, harness.Observation{Task: task, Stage: s, Kind: w, At: time.Now()})
			}
		}
	})
	return nil
}

// SubmitAll submits n tasks one by one.
func (c *fakeWorkers) SubmitAll(ctx context.Context, first int64, n int) error {
	for i := range n {
		_ = c.Submit(ctx, first+int64(i))
	}
	return nil
}

// Stop waits for all tasks.
func (c *fakeWorkers) Stop(context.Context) error {
	c.all.Wait()
	return nil
}

// duplicate sends one observation of a kind twice.
func duplicate(what harness.Kind) func(func(harness.Observation), harness.Observation) {
	return func(observe func(harness.Observation), m harness.Observation) {
		observe(m)
		if m.Kind == what && m.Stage == harness.Metadata && m.Task == 3 {
			observe(m)
		}
	}
}

// newTrial returns a trial without a database.
func newTrial(f fakeSystem) (*scenario.Trial, *result.Result) {
	r := result.New("test")
	return scenario.NewTrial(f.system(), &scenario.Session{Result: r, Logf: func(string, ...any) {}, Slots: 5}), r
}
