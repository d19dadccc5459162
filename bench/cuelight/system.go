// Package cuelight has Cuelight as a system of the benchmark.
//
// It works as a program that embeds Cuelight: the graph of the built-in pipeline with stages
// that do nothing, one Runner with its listener, and a pool as pgxpool creates it. History,
// fencing and retries are on; they cannot be turned off. Submissions have a pool of their
// own, because in practice another program submits.
package cuelight

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/bench/harness"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// System is Cuelight.
var System = harness.System{
	Name: systemName,
	Settings: fmt.Sprintf("this commit, schema version %d; one Runner and one notify.Listener per process, "+
		"all settings at their defaults, pgxpool's default of connections, a further pool of %d for submissions; "+
		"bulk submissions by Store.SubmitAll", store.SchemaVersion, submitConnections),
	Setup: builtIn.setUp, Start: builtIn.start, Preload: builtIn.preload, Channels: channels(builtIn.graph()),
	AddFinishedTasks: addFinishedTasks, Sizes: sizes, TriggerTimes: triggerTimes,
	PartTimes: partTimes, Grow: grow, Costs: measureCosts,
}

const systemName = "cuelight"

// submitConnections is the number of submissions that can run at once.
const submitConnections = 16

// shape is a pipeline of the benchmark. Its tables have no prefix if it is called video.
type shape struct {
	name  string
	chain int // how many stages, each of which needs the one before; 0 for those of the built-in pipeline
	users int // that submit in turns; 0 for tasks without a user
}

var builtIn = shape{name: "video"}

// setUp creates the tables.
func (s shape) setUp(ctx context.Context, url string) error {
	return harness.WithPool(ctx, url, 0, func(pool *pgxpool.Pool) error {
		_, err := store.New(pool, s.graph()).Migrate(ctx)
		return err
	})
}

// preload submits tasks while no worker runs.
func (s shape) preload(ctx context.Context, url string, first int64, n int) error {
	return harness.WithPool(ctx, url, 0, func(pool *pgxpool.Pool) error { return s.submitAll(ctx, pool, first, n) })
}

// channels returns those on which workers are notified.
func channels(g store.Graph) []string {
	all := []string{g.ControlChannel()}
	for _, s := range g.Stages() {
		all = append(all, g.Channel(s))
	}
	return all
}

// submission returns the task with a number.
func submission(task int64) store.Submission {
	return store.Submission{Source: strconv.FormatInt(task, 10)}
}

func (sh shape) submission(task int64) store.Submission {
	s := submission(task)
	if sh.users > 0 {
		s.UserID = fmt.Sprintf("user%d", task%int64(sh.users))
	}
	return s
}

// submitAll submits tasks in one transaction, many with one statement.
func (sh shape) submitAll(ctx context.Context, pool *pgxpool.Pool, first int64, n int) error {
	const batch = 10_000
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		s := store.New(pool, sh.graph()).WithTx(tx)
		for ; n > 0; first, n = first+batch, n-batch {
			subs := make([]store.Submission, min(n, batch))
			for i := range subs {
				subs[i] = sh.submission(first + int64(i))
			}
			if _, err := s.SubmitAll(ctx, subs); err != nil {
				return err
			}
		}
		return nil
	})
}

// graph returns its graph. No stage divides, because no other system does.
func (s shape) graph() store.Graph {
	p, err := (&workers{shape: s}).pipeline()
	if err != nil {
		panic(err) // the stages are constants
	}
	return p.Graph()
}

// pipeline returns the shape with stages that perform the work of the options.
func (w *workers) pipeline() (*stages.Pipeline, error) {
	p, err := stages.New(w.shape.name, w.shape.stages(w)...)
	if err != nil || w.shape.name != builtIn.name {
		return p, err
	}
	return p.WithTablePrefix("")
}

// stages returns the stages of a process. Of a chain, the first and the last have the names of the built-in pipeline's.
func (s shape) stages(w *workers) (all []stages.Stage) {
	for i := range s.chain {
		one := stages.Stage{Name: fmt.Sprintf("step%d", i+1), Slots: w.Slots, Work: nothing}
		switch i {
		case s.chain - 1:
			one.Name, one.Work = harness.Publish.String(), w.work(harness.Publish)
		case 0:
			one.Name, one.Work = harness.Ingest.String(), w.work(harness.Ingest)
		}
		if i > 0 {
			one.Needs = []string{all[i-1].Name}
		}
		all = append(all, one)
	}
	if s.chain > 0 {
		return all
	}
	for i := range harness.StageCount {
		stage := harness.Stage(i)
		one := stages.Stage{Name: stage.String(), Slots: w.slots(stage), Work: w.work(stage)}
		for _, need := range stage.Needs() {
			one.Needs = append(one.Needs, need.String())
		}
		all = append(all, one)
	}
	return all
}

func nothing(context.Context, *stages.Job) (any, error) { return nil, nil }

// slots returns the number of slots of a stage; -1 means that these workers do not run it.
func (w *workers) slots(s harness.Stage) int {
	switch {
	case w.Stages != nil && !slices.Contains(w.Stages, s):
		return -1
	case slices.Contains(w.SingleSlot, s):
		return 1
	}
	return w.Slots
}

func (w *workers) work(s harness.Stage) stages.Work {
	return func(ctx context.Context, job *stages.Job) (any, error) {
		task, err := strconv.ParseInt(job.Source, 10, 64)
		if err != nil {
			return nil, stages.Permanent(err)
		}
		if w.Observe != nil {
			w.numbers.Store(job.Task, task)
		}
		return nil, w.Attempt(ctx, task, s, job.Attempt)
	}
}
