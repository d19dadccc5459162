package scenario_test

import (
	"context"
	"sync"
	"time"

	"github.com/cuelight/cuelight/bench/contest"
	"github.com/cuelight/cuelight/bench/result"
	"github.com/cuelight/cuelight/bench/scenario"
)

// fake is a contestant that does each stage at once, in memory, and what else
// its fields say.
type fake struct {
	name   string
	takes  time.Duration // a task, as many at once as there are
	fault  func(observe func(contest.Moment), m contest.Moment)
	setup  func() error
	starts func() // is told of each start
}

func (f fake) Name() string     { return f.name }
func (f fake) Settings() string { return "in memory" }

func (f fake) Setup(context.Context, string) error {
	if f.setup != nil {
		return f.setup()
	}
	return nil
}

func (f fake) tell(o contest.Options, m contest.Moment) { f.fault(o.Observe, m) }

func (f fake) Start(_ context.Context, _ string, o contest.Options) (contest.Crew, error) {
	if f.starts != nil {
		f.starts()
	}
	if f.fault == nil {
		f.fault = func(observe func(contest.Moment), m contest.Moment) { observe(m) }
	}
	return &fakeCrew{fake: f, options: o}, nil
}

type fakeCrew struct {
	fake
	options contest.Options
	all     sync.WaitGroup
}

func (c *fakeCrew) Submit(_ context.Context, task int64) error {
	c.all.Go(func() {
		time.Sleep(c.takes)
		for s := contest.Ingest; s < contest.Stage(contest.Stages); s++ {
			for w := contest.Began; w <= contest.Completed; w++ {
				c.tell(c.options, contest.Moment{Task: task, Stage: s, What: w, At: time.Now()})
			}
		}
	})
	return nil
}

func (c *fakeCrew) SubmitAll(ctx context.Context, first int64, n int) error {
	for i := range n {
		_ = c.Submit(ctx, first+int64(i))
	}
	return nil
}

func (c *fakeCrew) Stop(context.Context) error {
	c.all.Wait()
	return nil
}

// twice tells of the end of a stage's work, its completion or its beginning two
// times.
func twice(what contest.What) func(func(contest.Moment), contest.Moment) {
	return func(observe func(contest.Moment), m contest.Moment) {
		observe(m)
		if m.What == what && m.Stage == contest.Metadata && m.Task == 3 {
			observe(m)
		}
	}
}

// trial is one without a database.
func trial(c contest.Contestant) (*scenario.Trial, *result.Result) {
	r := result.New("test")
	return scenario.NewTrial(c, &scenario.Meeting{Result: r, Say: func(string, ...any) {}}), r
}
