package stages

import (
	"context"
	"encoding/json"
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
	FindHeldClaims(ctx context.Context, workers ...store.ID) ([]engine.HeldClaim, error)
	FindLostClaims(ctx context.Context, claims []engine.Claim) ([]engine.LostClaim, error)
	Result(ctx context.Context, task store.ID, stage string) (json.RawMessage, error)
	PartResults(ctx context.Context, task store.ID, stage string) ([]json.RawMessage, error)
	NotifyEvents(ctx context.Context) error
	PruneEvents(ctx context.Context, keep time.Duration) (deleted int, more bool, err error)
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

func (b *storeBackend) PartResults(ctx context.Context, task store.ID, stage string) ([]json.RawMessage, error) {
	return b.store.PartResults(ctx, task, stage)
}

func (b *storeBackend) NotifyEvents(ctx context.Context) error { return b.store.NotifyEvents(ctx) }

func (b *storeBackend) PruneEvents(ctx context.Context, keep time.Duration) (deleted int, more bool, err error) {
	return b.store.PruneEvents(ctx, keep)
}

func (b *storeBackend) ClaimToUnpublish(ctx context.Context) ([]store.DeletedTask, error) {
	return b.store.ClaimToUnpublish(ctx)
}

func (b *storeBackend) RecordUnpublished(ctx context.Context, task store.DeletedTask) error {
	return b.store.RecordUnpublished(ctx, task)
}

func (b *storeBackend) PostponeUnpublish(ctx context.Context, task store.DeletedTask) error {
	return b.store.PostponeUnpublish(ctx, task)
}

func (b *storeBackend) ClaimToPurge(ctx context.Context, keep time.Duration) ([]store.DeletedTask, error) {
	return b.store.ClaimToPurge(ctx, keep)
}

func (b *storeBackend) Purge(ctx context.Context, task store.ID, remember string) error {
	return b.store.Purge(ctx, task, remember)
}

func (b *storeBackend) Prune(ctx context.Context, o store.PruneOptions) (store.PruneResult, error) {
	return b.store.Prune(ctx, o)
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
	// Take returns the channels notified since the last call, with the payloads.
	Take() []notify.Wake
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

	// Grace is how long attempts may go on after Run's context is done, before they are
	// cancelled and released. Default 30 s; negative for none.
	Grace time.Duration

	// Abort ends the grace at once when it is closed.
	Abort <-chan struct{}

	// SweepInterval is the time between two sweeps, varied by a fifth. Default 15 s. Where sweeps have found nothing that a
	// notification should have announced for 20 intervals, they become rarer, up to every four intervals; after
	// one did, they follow every quarter of it for four intervals. They do not become rarer without notifications, or with AgeAfter.
	SweepInterval time.Duration

	// Lease is how long this process may miss its heartbeats before other workers take its
	// claims. It sends one every [store.HeartbeatInterval], and cancels its attempts after five sixths of it without an answer. When the
	// process dies, the end of its session shows it, and the others take its claims after
	// [store.DisconnectGrace]. So the session of Wakes should not end before the Lease when
	// the network is interrupted (notify.Options.KeepSession). Default 36 s.
	Lease time.Duration

	// AgeAfter is how long a task waits behind tasks of higher priority before it is claimed
	// first, the oldest first. Sweeps find such tasks, so add a SweepInterval. Default 0:
	// priority is strict, and tasks of low priority may wait for ever.
	AgeAfter time.Duration

	// MaxRunningPerUser limits the tasks of each user that have started and are not finished, not counting those that wait for a
	// retry of their first stage: no more are started by this process. Give all processes the same. Default 0: no limit.
	MaxRunningPerUser int

	// KeepEvents is how long events are kept; with several processes the shortest counts.
	// Default 7 days; negative for ever.
	KeepEvents time.Duration

	// Retention says what this process deletes, and what it does with deleted tasks. Default nil: nothing, because it
	// may not have their files.
	Retention *Retention

	// OnlyTasks are the only tasks to work on. Default nil: all.
	OnlyTasks []store.ID

	// Name is this process's in the list of workers, the history and the events; see
	// [store.CheckWorkerName]. It need not be unique. Default: the host's name.
	Name string

	// Version and Capabilities, a JSON object, describe this process in the list of workers. Tasks
	// may require and prefer what the members labels and encoders list; see [store.Placement]. The
	// Runner adds the member stages: the names of those that this process has slots for.
	Version      string
	Capabilities json.RawMessage

	// OnAlive is called by each loop of the Runner, with its name, at least once a minute,
	// even while the database does not answer. Without it the process hangs.
	OnAlive func(loop string)

	// Observe receives events. It must not block, and several goroutines may call it at once.
	Observe func(Event)
}
