package stages_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// fake is a Store without a database, for tests of what depends on time. Its
// functions answer when they are set; otherwise nothing happens, at once.
type fake struct {
	graph store.Graph
	turn  func(engine.ExchangeRequest) (engine.ExchangeResult, error)
	beat  func(engine.HeartbeatRequest) (engine.HeartbeatResult, error)
	sweep func(engine.SweepRequest) (engine.SweepResult, error)
	held  func() ([]engine.Claim, error)

	register func(store.Worker)
	paused   func() error
	forget   func(keep time.Duration) (more bool, err error)

	mu    sync.Mutex
	turns []engine.ExchangeRequest
	left  bool
	told  int // how often readers were, since it left

	workers []store.Worker
	givenUp []store.ID
	asked   int // who is there
}

func (f *fake) Graph() store.Graph { return f.graph }

func (f *fake) Check(context.Context) error { return nil }

func (f *fake) RegisterWorker(_ context.Context, w store.Worker) (store.ID, error) {
	if f.register != nil {
		f.register(w)
	}
	return store.ID{1}, nil
}

func (f *fake) DrainWorker(context.Context, store.ID) error { return nil }

func (f *fake) NotifyEvents(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told++
	return nil
}

func (f *fake) PruneEvents(_ context.Context, keep time.Duration) (bool, error) {
	if f.forget != nil {
		return f.forget(keep)
	}
	return false, nil
}

func (f *fake) PausedStages(context.Context, string) ([]bool, error) {
	if f.paused != nil {
		return nil, f.paused()
	}
	return nil, nil
}

func (f *fake) DeregisterWorker(context.Context, store.ID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left, f.told = true, 0
	return nil
}

func (f *fake) Exchange(_ context.Context, t engine.ExchangeRequest) (engine.ExchangeResult, error) {
	f.mu.Lock()
	f.turns = append(f.turns, t)
	f.mu.Unlock()
	n := len(f.graph.Stages())
	if f.turn != nil {
		out, err := f.turn(t)
		if out.MoreReady == nil {
			out.MoreReady = make([]bool, n)
		}
		if out.NextDue == nil {
			out.NextDue = never(n)
		}
		if out.Requested == nil {
			out.Requested = t.FreeSlots
		}
		if out.Granted == nil {
			out.Granted = make([]int, n)
		}
		if out.LastPosition == nil {
			out.LastPosition = make([]engine.Position, n)
		}
		if out.NewlyReady == nil {
			out.NewlyReady = make([]bool, n)
		}
		return out, err
	}
	return engine.ExchangeResult{
		MoreReady: make([]bool, n), NextDue: never(n), Requested: t.FreeSlots, Granted: make([]int, n),
		LastPosition: make([]engine.Position, n), NewlyReady: make([]bool, n),
	}, nil
}

func (f *fake) FindRecordedOutcomes(context.Context, []engine.Report) (map[store.ID]bool, error) {
	return nil, nil
}

func (f *fake) FindHeldClaims(context.Context, store.ID) ([]engine.Claim, error) {
	if f.held != nil {
		return f.held()
	}
	return nil, nil
}

func (f *fake) Heartbeat(_ context.Context, b engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
	if f.beat != nil {
		return f.beat(b)
	}
	return engine.HeartbeatResult{Now: time.Now()}, nil
}

func (f *fake) Workers(context.Context, bool) ([]store.Worker, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	return f.workers, nil
}

func (f *fake) FindLostClaims(context.Context, []engine.Claim) ([]engine.LostClaim, error) {
	return nil, nil
}

func (f *fake) ExpireWorkers(_ context.Context, workers []store.ID) ([]store.ID, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.givenUp = append(f.givenUp, workers...)
	return workers, nil
}

func (f *fake) Sweep(_ context.Context, s engine.SweepRequest) (engine.SweepResult, error) {
	n := len(f.graph.Stages())
	if f.sweep != nil {
		return f.sweep(s)
	}
	return engine.SweepResult{MoreReady: make([]bool, n), NextDue: never(n)}, nil
}

func (f *fake) Result(context.Context, store.ID, string) (json.RawMessage, error) { return nil, nil }

// seen are the turns so far.
func (f *fake) seen() []engine.ExchangeRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]engine.ExchangeRequest(nil), f.turns...)
}

// claimed hands out the claims once, to the first turn that looks.
func claimed(claims ...engine.Claim) func(engine.ExchangeRequest) (engine.ExchangeResult, error) {
	return func(t engine.ExchangeRequest) (engine.ExchangeResult, error) {
		for _, look := range t.ClaimFrom {
			if look && claims != nil {
				out := engine.ExchangeResult{Claims: claims, Granted: make([]int, len(t.ClaimFrom))}
				for _, c := range claims {
					out.Granted[c.Stage]++
				}
				claims = nil
				return out, nil
			}
		}
		return engine.ExchangeResult{}, nil
	}
}

// pipeline is one of stages without needs, all doing the same.
func pipeline(t *testing.T, work stages.Work, names ...string) *stages.Pipeline {
	t.Helper()
	var list []stages.Stage
	for _, n := range names {
		list = append(list, stages.Stage{Name: n, Work: work, Workers: 2})
	}
	p, err := stages.New("test", list...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
