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
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/bench/system"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// The forms of Cuelight.
var (
	// Local workers have the database.
	Local system.System = form{"cuelight", fmt.Sprintf("this commit, schema version %d; one Runner and one notify.Listener per process, "+
		"all settings at their defaults, pgxpool's default of connections, a further pool of %d for submissions; "+
		"bulk submissions by Store.SubmitAll", store.SchemaVersion, submitConnections), startLocal}
	// Remote is a worker that has no database: its Runner talks over HTTP to a coordinator in the same process. There is
	// no second Runner, which in practice expires lost workers.
	Remote system.System = form{"cuelight_remote", fmt.Sprintf("this commit; one Runner and one remote.Coordinator in a process, "+
		"over HTTP on a loopback address without TLS, all settings at their defaults; a further pool of %d for submissions",
		submitConnections), startRemote}
)

// submitConnections is the number of submissions that can run at once.
const submitConnections = 16

// form is one of them.
type form struct {
	name, settings string
	start          func(ctx context.Context, url string, o system.Options) (system.Workers, error)
}

// Name is that of the figures.
func (f form) Name() string { return f.name }

// Settings describes the workers.
func (f form) Settings() string { return f.settings }

// SetUp creates the tables.
func (form) SetUp(ctx context.Context, url string) error {
	return system.WithPool(ctx, url, 0, func(pool *pgxpool.Pool) error {
		_, err := store.New(pool, graph()).Migrate(ctx)
		return err
	})
}

// Preload submits tasks while no worker runs.
func (form) Preload(ctx context.Context, url string, first int64, n int) error {
	return system.WithPool(ctx, url, 0, func(pool *pgxpool.Pool) error {
		return submitAll(ctx, store.New(pool, graph()), first, n, 0)
	})
}

// Start returns when the Runner is registered in the database and its listener is connected.
func (f form) Start(ctx context.Context, url string, o system.Options) (system.Workers, error) {
	return f.start(ctx, url, o)
}

// Channels returns those on which workers are notified.
func Channels() []string {
	all := []string{graph().ControlChannel()}
	for _, s := range graph().Stages() {
		all = append(all, graph().Channel(s))
	}
	return all
}

// submission returns the task with a number. If there are users, they submit in turns.
func submission(task int64, users int) store.Submission {
	s := store.Submission{Source: strconv.FormatInt(task, 10)}
	if users > 0 {
		s.UserID = fmt.Sprintf("user%d", task%int64(users))
	}
	return s
}

// submitAll submits tasks with one statement.
func submitAll(ctx context.Context, s *store.Store, first int64, n, users int) error {
	subs := make([]store.Submission, n)
	for i := range subs {
		subs[i] = submission(first+int64(i), users)
	}
	_, err := s.SubmitAll(ctx, subs)
	return err
}

// graph is the graph of the pipeline. No stage divides, because no other system does.
var graph = sync.OnceValue(func() store.Graph {
	p, err := (&workers{}).pipeline()
	if err != nil {
		panic(err) // the stages are constants
	}
	return p.Graph()
})

// pipeline returns the built-in pipeline with stages that perform the work of the options.
func (w *workers) pipeline() (*stages.Pipeline, error) {
	var all []stages.Stage
	for _, s := range system.Stages {
		one := stages.Stage{Name: s.String(), Slots: w.slots(s), Work: w.work(s)}
		for _, need := range s.Needs() {
			one.Needs = append(one.Needs, need.String())
		}
		all = append(all, one)
	}
	p, err := stages.New("video", all...)
	if err != nil {
		return nil, err
	}
	return p.WithTablePrefix("")
}

// slots returns the number of slots of a stage; -1 means that these workers do not run it.
func (w *workers) slots(s system.Stage) int {
	switch {
	case w.Stages != nil && !slices.Contains(w.Stages, s):
		return -1
	case slices.Contains(w.SingleSlot, s):
		return 1
	}
	return w.Slots
}

func (w *workers) work(s system.Stage) stages.Work {
	return func(ctx context.Context, job *stages.Job) (any, error) {
		task, err := strconv.ParseInt(job.Source, 10, 64)
		if err != nil {
			return nil, stages.Permanent(err)
		}
		w.numbers.Store(job.Task, task)
		return nil, w.DoWork(ctx, task, s, job.Attempt)
	}
}
