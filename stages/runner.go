package stages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// Backend is the database as a Runner uses it. A Runner with a Pool makes its own, from
// an [engine.Engine] and a [store.Store]; see [Runner.Backend].
type Backend interface {
	Check(ctx context.Context) error
	RegisterWorker(ctx context.Context, w store.Worker) (store.ID, error)
	DeregisterWorker(ctx context.Context, worker store.ID) error
	ExpireWorkers(ctx context.Context, workers []store.ID) ([]store.ID, error)
	Workers(ctx context.Context, all bool) ([]store.Worker, error)
	DrainWorker(ctx context.Context, worker store.ID) error
	PausedStages(ctx context.Context, host string) ([]bool, error)
	Exchange(ctx context.Context, in engine.ExchangeRequest) (engine.ExchangeResult, error)
	Heartbeat(ctx context.Context, in engine.HeartbeatRequest) (engine.HeartbeatResult, error)
	Sweep(ctx context.Context, in engine.SweepRequest) (engine.SweepResult, error)
	FindRecordedOutcomes(ctx context.Context, reports []engine.Report) (map[store.ID]bool, error)
	FindHeldClaims(ctx context.Context, worker store.ID) ([]engine.Claim, error)
	FindLostClaims(ctx context.Context, claims []engine.Claim) ([]engine.LostClaim, error)
	Result(ctx context.Context, task store.ID, stage string) (json.RawMessage, error)
	NotifyEvents(ctx context.Context) error
	PruneEvents(ctx context.Context, keep time.Duration) (more bool, err error)
}

// database is the Backend of a Runner with a Pool.
type database struct {
	*engine.Engine
	*storeBackend
}

// storeBackend hides the methods that a Store and an Engine both have.
type storeBackend struct{ store *store.Store }

func newDatabase(pool *pgxpool.Pool, g store.Graph) Backend {
	return database{engine.New(pool, g), &storeBackend{store.New(pool, g)}}
}

func (b *storeBackend) Check(ctx context.Context) error { return b.store.Check(ctx) }

func (b *storeBackend) Workers(ctx context.Context, all bool) ([]store.Worker, error) {
	return b.store.Workers(ctx, all)
}

func (b *storeBackend) DrainWorker(ctx context.Context, worker store.ID) error {
	return b.store.DrainWorker(ctx, worker)
}

func (b *storeBackend) Result(ctx context.Context, task store.ID, stage string) (json.RawMessage, error) {
	return b.store.Result(ctx, task, stage)
}

// WakeSource reports which stages may have ready tasks. A *notify.Listener is one.
// Notifications may come late, twice, or never: without them everything works, only
// later.
//
// Five more methods are used if the value has them, as the Listener does:
//
//   - Run(ctx) error: the Runner runs it until the work has drained.
//   - Connected() bool: whether notifications arrive. While they do not, the Runner
//     asks the database every two seconds.
//   - Check(): the database was unreachable, so make sure of the connection.
//   - Session() (key int64, held bool): the key of an advisory lock that is held, shared,
//     in a session of this process; its end shows other workers that the process died.
//   - Direct() bool: no proxy is between this process and the server, so that a
//     refused connection means that the server is down for everybody.
type WakeSource interface {
	// C yields a value when there are notifications.
	C() <-chan struct{}
	// Take returns the channels notified since the last call.
	Take() []string
}

// Runner works on a pipeline: it claims ready tasks while it has free slots, runs the
// stages' Work, and reports the outcomes. Pipeline and Pool must be set; every other
// field has a useful zero value.
type Runner struct {
	Pipeline *Pipeline

	// Pool is the database. The Runner uses up to half of its connections for queries
	// of Work, one for heartbeats, one for exchanges, and one to listen.
	Pool *pgxpool.Pool

	// Wakes reports which stages may have ready tasks. Default: a notify.Listener on
	// Pool. A value with a Run method is run by the Runner.
	Wakes WakeSource

	// Backend replaces the database, for tests. Default: the tables in Pool.
	Backend Backend

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
	if l, ok := r.Wakes.(listener); ok {
		return r.runWith(ctx, l)
	}
	return r.run(ctx)
}

func (r Runner) run(ctx context.Context) error {
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

// listener is a [WakeSource] that has to be run.
type listener interface {
	WakeSource
	Run(ctx context.Context) error
}

// runWith runs the listener until the work has drained: notifications tell of claims that
// are cancelled meanwhile, and the listener's session shows other workers that this
// process is alive. A listener that cannot run ends the Runner, after a drain.
func (r Runner) runWith(ctx context.Context, l listener) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	listening, quit := context.WithCancel(context.WithoutCancel(ctx))
	defer quit()
	ended := make(chan error, 1)
	go func() {
		defer stop()
		ended <- l.Run(listening)
	}()
	err := r.run(ctx)
	quit()
	return errors.Join(err, <-ended)
}

func (r *Runner) prepare() error {
	switch {
	case r.Pipeline == nil:
		return errors.New("no Pipeline")
	case r.Pool == nil && r.Backend == nil:
		return errors.New("no Pool")
	}
	if r.Backend == nil {
		r.Backend = newDatabase(r.Pool, r.Pipeline.graph)
	}
	if r.Wakes == nil && r.Pool != nil {
		r.Wakes = notify.New(r.Pool, notify.Options{Channels: r.Pipeline.Channels()})
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
