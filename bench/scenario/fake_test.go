package scenario_test

import (
	"context"
	"sync"
	"time"

	"github.com/cuelight/cuelight/bench/report"
	"github.com/cuelight/cuelight/bench/scenario"
	"github.com/cuelight/cuelight/bench/system"
)

// fakeSystem performs each stage in memory.
type fakeSystem struct {
	name     string
	duration time.Duration // of a task
	waiting  int           // tasks before the start
	distort  func(observe func(system.Observation), m system.Observation)
	onStart  func() // called for each start
}

func (f fakeSystem) system() system.System { return &f }

func (f *fakeSystem) Name() string                      { return f.name }
func (*fakeSystem) Settings() string                    { return "in memory" }
func (*fakeSystem) SetUp(context.Context, string) error { return nil }

// Preload keeps tasks for Start.
func (f *fakeSystem) Preload(_ context.Context, _ string, _ int64, n int) error {
	f.waiting = n
	return nil
}

// Start starts with the tasks that wait.
func (f *fakeSystem) Start(ctx context.Context, _ string, o system.Options) (system.Workers, error) {
	if f.onStart != nil {
		f.onStart()
	}
	if f.distort == nil {
		f.distort = func(observe func(system.Observation), m system.Observation) { observe(m) }
	}
	w := &fakeWorkers{fakeSystem: *f, options: o}
	return w, w.SubmitAll(ctx, 0, f.waiting)
}

type fakeWorkers struct {
	fakeSystem
	options system.Options
	all     sync.WaitGroup
}

// Submit runs all stages of a task.
func (c *fakeWorkers) Submit(_ context.Context, task int64) error {
	c.all.Go(func() {
		time.Sleep(c.duration)
		for _, s := range system.Stages {
			for w := system.Started; w <= system.Completed; w++ {
				c.distort(c.options.Observe, system.Observation{Task: task, Stage: s, Kind: w, At: time.Now()})
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
func duplicate(what system.Kind) func(func(system.Observation), system.Observation) {
	return func(observe func(system.Observation), m system.Observation) {
		observe(m)
		if m.Kind == what && m.Stage == system.Metadata && m.Task == 3 {
			observe(m)
		}
	}
}

// newTrial returns a trial without a database.
func newTrial(f fakeSystem) (*scenario.Trial, *report.Result) {
	r := report.New("test")
	session := &scenario.Session{Result: r, Logf: func(string, ...any) {}, Slots: 5}
	return &scenario.Trial{Run: scenario.Run{System: f.system()}, Session: session}, r
}
