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

// Backend is where a Runner registers, claims and reports: a database, or a coordinator that has one. A Runner with a Pool makes
// its own, from an [engine.Engine] and a [store.Store]; see [Runner.Backend].
type Backend interface {
	Check(ctx context.Context) error
	// RegisterWorker also returns, by stage, whether it is paused on this host; nil if that is not known yet.
	RegisterWorker(ctx context.Context, w store.Worker) (id store.ID, paused []bool, err error)
	DrainWorker(ctx context.Context, worker store.ID) error
	DeregisterWorker(ctx context.Context, worker store.ID) error
	// Workers and ExpireWorkers end the claims of earlier processes on this machine.
	Workers(ctx context.Context, all bool) ([]store.Worker, error)
	ExpireWorkers(ctx context.Context, workers []store.ID) ([]store.ID, error)

	Exchange(ctx context.Context, in engine.ExchangeRequest) (engine.ExchangeResult, error)
	Heartbeat(ctx context.Context, in engine.HeartbeatRequest) (engine.HeartbeatResult, error)
	FindLostClaims(ctx context.Context, claims []engine.Claim) ([]engine.LostClaim, error)
	Result(ctx context.Context, task store.ID, stage string) (json.RawMessage, error)
}

// housekeeper is a Backend with the database: what a process does besides its own claims, for all processes of the pipeline. Only
// that of a Runner with a Pool is one.
type housekeeper interface {
	// Sweep, Reconcile and PruneEvents find what was lost, missed, or is old.
	Sweep(ctx context.Context, in engine.SweepRequest) (engine.SweepResult, error)
	Reconcile(ctx context.Context, worker store.ID, within time.Duration) error
	NotifyEvents(ctx context.Context) error
	PruneEvents(ctx context.Context, keep time.Duration) (deleted int, more bool, err error)

	// FindRecordedOutcomes and FindHeldClaims say what an exchange has done whose answer was lost. A coordinator says so
	// with its next answer.
	FindRecordedOutcomes(ctx context.Context, reports []engine.Report) (map[store.ID]bool, error)
	FindHeldClaims(ctx context.Context, workers ...store.ID) ([]engine.HeldClaim, error)
	PartResults(ctx context.Context, task store.ID, stage string) ([]json.RawMessage, error)

	remover
}

// database is the Backend of a Runner with a Pool.
type database struct {
	*engine.Engine
	*storeBackend
}

var _ housekeeper = database{}

// storeBackend hides the methods that a Store and an Engine both have.
type storeBackend struct{ store *store.Store }

func newDatabase(pool *pgxpool.Pool, g store.Graph) database {
	return database{engine.New(pool, g), &storeBackend{store.New(pool, g)}}
}

// RegisterWorker reads the pauses first: an error after the registration would leave a worker that the others soon find lost.
func (d database) RegisterWorker(ctx context.Context, w store.Worker) (id store.ID, paused []bool, err error) {
	if paused, err = d.PausedStages(ctx, w.Host); err == nil {
		id, err = d.Engine.RegisterWorker(ctx, w)
	}
	return id, paused, err
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

// WakeSource reports which stages may have ready tasks. Notifications may come late, twice, or never: without them everything
// works, only later. A *notify.Wakes is one.
type WakeSource interface {
	// C yields a value when there are notifications.
	C() <-chan struct{}
	// Take returns the channels notified since the last call, with the payloads.
	Take() []notify.Wake
}

// Listener is a WakeSource with a connection, as a *notify.Listener is one.
type Listener interface {
	WakeSource
	// Run is called by the Runner, and ends when the work has drained.
	Run(ctx context.Context) error
	// Connected reports whether notifications arrive. While they do not, the Runner asks the database every two seconds.
	Connected() bool
	// Check says that the database was unreachable, so that the connection may not be one any more.
	Check()
	// Session returns the key of an advisory lock that is held, shared, in a session of this process; its end shows other
	// workers that the process died. 0 for none.
	Session() (key int64, held bool)
	// Direct reports whether no proxy is between this process and the server, so that a refused connection means that
	// the server is down for everybody.
	Direct() bool
}
