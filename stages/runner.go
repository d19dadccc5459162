package stages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cuelight/cuelight/store"
)

// Store is what a Runner needs of the database. A *[store.Store] has it.
type Backend interface {
	Graph() store.Graph
	Check(ctx context.Context) error
	RegisterWorker(ctx context.Context, w store.Worker) (store.ID, error)
	Paused(ctx context.Context, host string) ([]bool, error)
	DeregisterWorker(ctx context.Context, worker store.ID) error
	Exchange(ctx context.Context, t store.ExchangeRequest) (store.ExchangeResult, error)
	FindRecordedOutcomes(ctx context.Context, reports []store.Report) (map[store.ID]bool, error)
	FindHeldClaims(ctx context.Context, worker store.ID) ([]store.Claim, error)
	Heartbeat(ctx context.Context, b store.HeartbeatRequest) (store.HeartbeatResult, error)
	Workers(ctx context.Context, all bool) ([]store.Worker, error)
	FindLostClaims(ctx context.Context, claims []store.Claim) ([]store.LostClaim, error)
	ExpireWorkers(ctx context.Context, workers []store.ID) ([]store.ID, error)
	DrainWorker(ctx context.Context, worker store.ID) error
	NotifyEvents(ctx context.Context) error
	PruneEvents(ctx context.Context, keep time.Duration) (more bool, err error)
	Sweep(ctx context.Context, s store.SweepRequest) (store.SweepResult, error)
	Result(ctx context.Context, task store.ID, stage string) (json.RawMessage, error)
}

// Wakes brings the news that a stage may have something to claim. A
// *notify.Listener has it. News may come late, twice, or never: everything
// works without, only slower.
//
// Four further methods are used where they are there, as the Listener's are.
// Connected() bool says whether news comes in at all; while it does not, the
// Runner looks every two seconds. Check() tells them that the database has been
// away, so that they make sure of that. Session() (key int64, held bool) is the key of
// an advisory lock that is held, shared, in a session of this process's own; by
// its end others see at once that the process died. Direct() bool says that
// nothing stands between this process and the server, so that a refused
// connection means that nobody else has the server either.
type WakeSource interface {
	// C yields a value when there is news.
	C() <-chan struct{}
	// Take returns the channels there was news on since the last call.
	Take() []string
}

// Runner works on a pipeline: it claims what is ready, as far as it has free
// slots, runs the stages' Work, and reports what became of it. Store and
// Pipeline must be set; every other field has a useful zero value.
type Runner struct {
	Store    Backend
	Pipeline *Pipeline

	// Wakes says when to look. Without it the Runner looks when it completes
	// something itself, and at every sweep.
	Wakes WakeSource

	// Grace is how long work may go on after Run's context is done, before it
	// is cancelled and given back. Default 30 s; negative for none.
	Grace time.Duration

	// Abort, when it is closed, ends the grace at once.
	Abort <-chan struct{}

	// Sweep is the time between two slow passes, more or less a fifth. Default
	// 15 s.
	SweepInterval time.Duration

	// Lease is how long this process may be silent before others take what it
	// holds. It beats every two seconds, or at an eighteenth of the Lease if
	// that is less, and stops its own work after five sixths of it without an
	// answer. If it dies, others see its session end and take its work after
	// [store.Grace] instead; so the session of the Wakes should not end before
	// the Lease does when the network falls silent (notify.Options.Keep). Default
	// 36 s.
	Lease time.Duration

	// AgeAfter is how long a task may be ready for a stage while others of higher
	// priority begin before it. Then it begins before them, the oldest first. The sweep
	// looks for such tasks, so add the time between two sweeps. Where everything waits
	// for longer, the order is that of submission. Default 0: priority is strict, and
	// tasks of lower priority wait for as long as there are others.
	AgeAfter time.Duration

	// KeepEvents is how long events are kept before they are deleted; with
	// several processes the shortest counts. Default 7 days; negative for ever.
	KeepEvents time.Duration

	// Only are the tasks to work on; others are left to other processes.
	// Default nil: all.
	OnlyTasks []store.ID

	// Version and Capabilities, a JSON object, say in the list of workers what
	// this process is.
	Version      string
	Capabilities json.RawMessage

	// Pulse is called by each of the Runner's loops, with its name, every time
	// round: at least once a minute, also while the database is away. Where it
	// is not, the process is stuck.
	Heartbeat func(loop string)

	// Observe is told what happens. It must not block. It may be called by
	// several goroutines at once.
	Observe func(Event)
}

// Run works until ctx is done, then drains: it claims nothing more, lets work
// finish within the Grace, cancels what is left, gives that back and says
// good-bye. It returns nil after a drain, or [ErrStubborn] if there was work that
// did not heed its context: its claims were given back, too, and what it still
// does is in vain. A database that is away is waited for, however long; Run
// returns another error only where it cannot begin.
func (r Runner) Run(ctx context.Context) error {
	if err := r.prepare(); err != nil {
		return fmt.Errorf("run pipeline: %w", err)
	}
	d := newDispatcher(&r)
	if err := d.register(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("run pipeline: %w", err)
	}
	// The database is still needed while the work drains, and so is the beat.
	life := context.WithoutCancel(ctx)
	beating, end := context.WithCancel(life)
	wait := d.runBackground(beating)
	err := d.run(ctx, life)
	end()
	wait()
	d.deregister(life)
	if err != nil {
		return fmt.Errorf("run pipeline: %w", err)
	}
	return nil
}

// Listener is Wakes that have to be run. A *notify.Listener is one.
type Listener interface {
	WakeSource
	Run(ctx context.Context) error
}

// RunWith runs the listener, and with it as Wakes the Runner. The listener goes
// on until the work has drained, however long that takes after ctx is done: its
// news tell of claims that are cancelled meanwhile, and its session tells others
// that this process is there. A listener that cannot run ends the Runner, after
// a drain.
func (r Runner) RunWith(ctx context.Context, l Listener) error {
	r.Wakes = l
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	listening, quit := context.WithCancel(context.WithoutCancel(ctx))
	defer quit()
	heard := make(chan error, 1)
	go func() {
		defer stop()
		heard <- l.Run(listening)
	}()
	err := r.Run(ctx)
	quit()
	return errors.Join(err, <-heard)
}

func (r *Runner) prepare() error {
	switch {
	case r.Store == nil:
		return errors.New("no Store")
	case r.Pipeline == nil:
		return errors.New("no Pipeline")
	case r.Store.Graph().Name() != r.Pipeline.graph.Name() || r.Store.Graph().String() != r.Pipeline.graph.String():
		return fmt.Errorf("the Store is of pipeline %s (%s), the Pipeline is %s (%s)",
			r.Store.Graph().Name(), r.Store.Graph(), r.Pipeline.graph.Name(), r.Pipeline.graph)
	}
	if r.Grace == 0 {
		r.Grace = 30 * time.Second
	}
	if r.SweepInterval <= 0 {
		r.SweepInterval = 15 * time.Second
	}
	if r.Lease <= 0 {
		r.Lease = store.DefaultLease
	}
	if r.KeepEvents == 0 {
		r.KeepEvents = 7 * 24 * time.Hour
	}
	if r.Heartbeat == nil {
		r.Heartbeat = func(string) {}
	}
	if r.Observe == nil {
		r.Observe = func(Event) {}
	}
	return nil
}

// self describes this process to the others.
func (r *Runner) self() store.Worker {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	return store.Worker{
		Host: host, PID: os.Getpid(), ProcessIdentity: currentProcess().String(),
		Lease: r.Lease, Version: r.Version, Capabilities: r.Capabilities,
	}
}
