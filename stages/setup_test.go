package stages_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/internal/pgtest"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// bundle is a test's database with its pipeline.
type bundle struct {
	*store.Store
	backend  stages.Database
	t        testing.TB
	pool     *pgxpool.Pool
	pipeline *stages.Pipeline
}

func setup(t testing.TB, list ...stages.Stage) bundle {
	t.Helper()
	p, err := stages.New("test", list...)
	if err != nil {
		t.Fatal(err)
	}
	pool := pgtest.New(t, pgtest.SQL(p.Graph().SchemaSQL(), p.Graph().TriggersSQL()))
	return newBundle(t, pool, p)
}

func newBundle(t testing.TB, pool *pgxpool.Pool, p *stages.Pipeline) bundle {
	return bundle{store.New(pool, p.Graph()), stages.NewBackend(pool, p.Graph()), t, pool, p}
}

// withPool returns the bundle with another pool to the same database.
func (b bundle) withPool(change func(*pgxpool.Config)) bundle {
	b.t.Helper()
	config := b.pool.Config()
	change(config)
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(pool.Close)
	return newBundle(b.t, pool, b.pipeline)
}

// samePool is for [bundle.withPool]: it keeps the pool's configuration.
func samePool(*pgxpool.Config) {}

// runner is a running Runner, as one worker process would have it.
type runner struct {
	stages.Runner
	events chan stages.Event
	stop   func() // drains and waits
}

// start runs the pipeline until the test ends or stop is called. change may be
// nil.
func (b bundle) start(change func(*stages.Runner)) *runner {
	b.t.Helper()
	r := &runner{events: make(chan stages.Event, 100000)}
	r.Runner = stages.Runner{
		Backend: b.backend, Pipeline: b.pipeline, SweepInterval: time.Hour, Grace: 10 * time.Second,
		Observe: func(e stages.Event) { r.events <- e },
	}
	if change != nil {
		change(&r.Runner)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Errorf("run: %v", err)
		}
	})
	b.t.Cleanup(r.stop)
	r.wait(b.t, stages.WorkerStarted)
	return r
}

// runningListener is a listener that is already running, so that the Runner does not
// run it.
type runningListener struct{ *notify.Listener }

// Run hides Listener.Run.
func (runningListener) Run() {}

// listening starts a listener and waits until it is connected.
func (b bundle) listening() runningListener {
	b.t.Helper()
	connected := make(chan struct{}, 1)
	l := notify.New(b.pool, notify.Options{Channels: b.pipeline.Channels(), OnChange: func(bool, error) {
		select {
		case connected <- struct{}{}:
		default: // only the first connection is waited for
		}
	}})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(ctx) }()
	b.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
	})
	<-connected
	return runningListener{l}
}

// wait receives events until one of the kind arrives, and returns it.
func (r *runner) wait(t testing.TB, kind stages.Kind) stages.Event {
	t.Helper()
	timeout := time.NewTimer(30 * time.Second)
	defer timeout.Stop()
	for {
		select {
		case e := <-r.events:
			if e.Kind == kind {
				return e
			}
		case <-timeout.C:
			t.Fatalf("no event %s within 30 s", kind)
		}
	}
}

func (b bundle) submit() store.ID {
	b.t.Helper()
	receipt, err := b.Submit(b.t.Context(), store.Submission{Source: "a", Params: []byte(`{"n": 1}`)})
	if err != nil {
		b.t.Fatal(err)
	}
	return receipt.ID
}

func (b bundle) task(id store.ID) store.Task {
	b.t.Helper()
	t, err := b.Get(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return t
}

// status returns the status of one stage of a task.
func (b bundle) status(id store.ID, stage int) store.Status {
	b.t.Helper()
	return b.task(id).Stages[stage].Status
}

func (b bundle) history(id store.ID) []store.Attempt {
	b.t.Helper()
	h, err := b.History(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return h
}

func noop(context.Context, *stages.Job) (any, error) { return nil, nil }

func waitForCancel(ctx context.Context, _ *stages.Job) (any, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// workUntilCancelled returns work that ends when its context does, and sends the cause.
func workUntilCancelled(causes chan<- error) stages.Work {
	return func(ctx context.Context, _ *stages.Job) (any, error) {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil, ctx.Err()
	}
}

func workTaking(d time.Duration) stages.Work {
	return func(context.Context, *stages.Job) (any, error) {
		time.Sleep(d)
		return nil, nil
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
