package stages_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// fakeBackend is a stages.Backend without a database, for tests under synctest. A
// method calls the function of its name if that is set; otherwise it returns an empty
// result at once. Slices that an ExchangeResult lacks are filled with zeros.
type fakeBackend struct {
	graph     store.Graph
	exchange  func(engine.ExchangeRequest) (engine.ExchangeResult, error)
	heartbeat func(engine.HeartbeatRequest) (engine.HeartbeatResult, error)
	sweep     func(engine.SweepRequest) (engine.SweepResult, error)
	held      func() ([]engine.HeldClaim, error)

	register    func(store.Worker)
	paused      func() error
	pruneEvents func(keep time.Duration) (n int, more bool, err error)

	mu            sync.Mutex
	exchanges     []engine.ExchangeRequest
	deregistered  bool
	notifications int // calls of NotifyEvents since the deregistration

	workers        []store.Worker
	expiredWorkers []store.ID
	workerQueries  int // calls of Workers
}

func (f *fakeBackend) Graph() store.Graph { return f.graph }

func (f *fakeBackend) Check(context.Context) error { return nil }

func (f *fakeBackend) RegisterWorker(_ context.Context, w store.Worker) (id store.ID, paused []bool, err error) {
	if f.paused != nil {
		if err := f.paused(); err != nil {
			return id, nil, err
		}
	}
	if f.register != nil {
		f.register(w)
	}
	return store.ID{1}, nil, nil
}

func (f *fakeBackend) PartResults(context.Context, store.ID, string) ([]json.RawMessage, error) {
	return nil, nil
}

func (f *fakeBackend) DrainWorker(context.Context, store.ID) error { return nil }

func (f *fakeBackend) NotifyEvents(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notifications++
	return nil
}

func (f *fakeBackend) PruneEvents(_ context.Context, keep time.Duration) (int, bool, error) {
	if f.pruneEvents != nil {
		return f.pruneEvents(keep)
	}
	return 0, false, nil
}

func (f *fakeBackend) DeregisterWorker(context.Context, store.ID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deregistered, f.notifications = true, 0
	return nil
}

func (f *fakeBackend) Exchange(_ context.Context, in engine.ExchangeRequest) (engine.ExchangeResult, error) {
	f.mu.Lock()
	f.exchanges = append(f.exchanges, in)
	f.mu.Unlock()
	var out engine.ExchangeResult
	var err error
	if f.exchange != nil {
		out, err = f.exchange(in)
	}
	n := len(f.graph.Stages())
	if out.MoreReady == nil {
		out.MoreReady = make([]bool, n)
	}
	if out.Claimed == nil {
		out.Claimed = make([]int, n)
	}
	if out.Next == nil {
		out.Next = make([]engine.Position, n)
	}
	if out.Wait == nil {
		out.Wait, out.NextDue = noWait(n), -1
	}
	return out, err
}

func (f *fakeBackend) FindRecordedOutcomes(context.Context, []engine.Report) (map[store.ID]bool, error) {
	return nil, nil
}

func (f *fakeBackend) Reconcile(context.Context, store.ID, time.Duration) error { return nil }

func (f *fakeBackend) Prune(context.Context, store.PruneOptions) (store.PruneResult, error) {
	return store.PruneResult{}, nil
}
func (f *fakeBackend) ClaimToUnpublish(context.Context) ([]store.DeletedTask, error) { return nil, nil }
func (f *fakeBackend) RecordUnpublished(context.Context, store.DeletedTask) error    { return nil }
func (f *fakeBackend) PostponeUnpublish(context.Context, store.DeletedTask) error    { return nil }
func (f *fakeBackend) ClaimToPurge(context.Context, time.Duration) ([]store.DeletedTask, error) {
	return nil, nil
}
func (f *fakeBackend) Purge(context.Context, store.ID, string) error { return nil }

func (f *fakeBackend) FindHeldClaims(context.Context, ...store.ID) ([]engine.HeldClaim, error) {
	if f.held != nil {
		return f.held()
	}
	return nil, nil
}

func (f *fakeBackend) Heartbeat(_ context.Context, in engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
	if f.heartbeat != nil {
		return f.heartbeat(in)
	}
	return engine.HeartbeatResult{Now: time.Now()}, nil
}

func (f *fakeBackend) Workers(context.Context, bool) ([]store.Worker, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.workerQueries++
	return f.workers, nil
}

func (f *fakeBackend) FindLostClaims(context.Context, []engine.Claim) ([]engine.LostClaim, error) {
	return nil, nil
}

func (f *fakeBackend) ExpireWorkers(_ context.Context, workers []store.ID) ([]store.ID, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expiredWorkers = append(f.expiredWorkers, workers...)
	return workers, nil
}

func (f *fakeBackend) Sweep(_ context.Context, in engine.SweepRequest) (engine.SweepResult, error) {
	n := len(f.graph.Stages())
	if f.sweep != nil {
		return f.sweep(in)
	}
	return nothingSwept(n), nil
}

// nothingSwept is the result of a sweep that found nothing.
func nothingSwept(queues int) engine.SweepResult {
	return engine.SweepResult{First: make([]*engine.Position, queues), Wait: noWait(queues), NextDue: -1}
}

// foundReady is the result of a sweep that may have found a ready step of the only queue: that of oneClaim.
func foundReady(found bool) engine.SweepResult {
	out := nothingSwept(1)
	if found {
		out.First[0] = &engine.Position{Task: store.ID{7}}
	}
	return out
}

func noWait(queues int) []time.Duration { return slices.Repeat([]time.Duration{-1}, queues) }

func (f *fakeBackend) Result(context.Context, store.ID, string) (json.RawMessage, error) {
	return nil, nil
}

// requests returns the exchanges so far.
func (f *fakeBackend) requests() []engine.ExchangeRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.exchanges)
}

// grantOnce returns an exchange function that grants the claims once, to the first
// request that claims.
func grantOnce(claims ...engine.Claim) func(engine.ExchangeRequest) (engine.ExchangeResult, error) {
	return func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
		if claims == nil || !slices.Contains(in.ClaimFrom, true) {
			return engine.ExchangeResult{}, nil
		}
		out := engine.ExchangeResult{Claims: claims, Claimed: make([]int, len(in.ClaimFrom))}
		for _, c := range claims {
			out.Claimed[c.Stage]++
		}
		claims = nil
		return out, nil
	}
}

// pipeline returns a pipeline of stages without needs that all do the same work.
func pipeline(t *testing.T, work stages.Work, names ...string) *stages.Pipeline {
	t.Helper()
	var list []stages.Stage
	for _, n := range names {
		list = append(list, stages.Stage{Name: n, Work: work, Slots: 2})
	}
	p, err := stages.New("test", list...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// fakeListener is Wakes with a session, and a connection that the test can break.
type fakeListener struct {
	*notify.Wakes
	disconnected, proxied atomic.Bool
}

// newFakeListener returns a listener that was notified of stage one.
func newFakeListener() *fakeListener {
	l := &fakeListener{Wakes: notify.NewWakes()}
	l.Add("cuelight_test_one")
	return l
}

func (l *fakeListener) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (l *fakeListener) Check() {}

func (l *fakeListener) Connected() bool { return !l.disconnected.Load() }

func (l *fakeListener) Direct() bool { return !l.proxied.Load() }

func (l *fakeListener) Session() (int64, bool) { return 7, !l.disconnected.Load() }

func oneClaim() engine.Claim {
	return engine.Claim{Task: store.ID{7}, Token: store.ID{8}, Attempt: 1, Position: engine.Position{Task: store.ID{7}}}
}
