package stages_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
)

// fake is a Store without a database, for tests of what depends on time. Its
// functions answer when they are set; otherwise nothing happens, at once.
type fake struct {
	graph store.Graph
	turn  func(store.Turn) (store.Turned, error)
	beat  func(store.Beat) (store.Beaten, error)
	sweep func(store.Sweep) (store.Swept, error)
	held  func() ([]store.Claim, error)

	register func(store.Worker)
	paused   func() error
	forget   func(keep time.Duration) (more bool, err error)

	mu    sync.Mutex
	turns []store.Turn
	left  bool
	told  int // how often readers were, since it left

	workers []store.Worker
	givenUp []store.ID
	asked   int // who is there
}

func (f *fake) Graph() store.Graph { return f.graph }

func (f *fake) Check(context.Context) error { return nil }

func (f *fake) Register(_ context.Context, w store.Worker) (store.ID, error) {
	if f.register != nil {
		f.register(w)
	}
	return store.ID{1}, nil
}

func (f *fake) Drain(context.Context, store.ID) error { return nil }

func (f *fake) Herald(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told++
	return nil
}

func (f *fake) Forget(_ context.Context, keep time.Duration) (bool, error) {
	if f.forget != nil {
		return f.forget(keep)
	}
	return false, nil
}

func (f *fake) Paused(context.Context, string) ([]bool, error) {
	if f.paused != nil {
		return nil, f.paused()
	}
	return nil, nil
}

func (f *fake) Leave(context.Context, store.ID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left, f.told = true, 0
	return nil
}

func (f *fake) Turn(_ context.Context, t store.Turn) (store.Turned, error) {
	f.mu.Lock()
	f.turns = append(f.turns, t)
	f.mu.Unlock()
	n := len(f.graph.Stages())
	if f.turn != nil {
		out, err := f.turn(t)
		if out.Left == nil {
			out.Left = make([]bool, n)
		}
		if out.Next == nil {
			out.Next = never(n)
		}
		if out.Asked == nil {
			out.Asked = t.Free
		}
		if out.Found == nil {
			out.Found = make([]int, n)
		}
		if out.Last == nil {
			out.Last = make([]store.Place, n)
		}
		if out.Yielded == nil {
			out.Yielded = make([]bool, n)
		}
		return out, err
	}
	return store.Turned{
		Left: make([]bool, n), Next: never(n), Asked: t.Free, Found: make([]int, n),
		Last: make([]store.Place, n), Yielded: make([]bool, n),
	}, nil
}

func (f *fake) Settled(context.Context, []store.Report) (map[store.ID]bool, error) { return nil, nil }

func (f *fake) Held(context.Context, store.ID) ([]store.Claim, error) {
	if f.held != nil {
		return f.held()
	}
	return nil, nil
}

func (f *fake) Beat(_ context.Context, b store.Beat) (store.Beaten, error) {
	if f.beat != nil {
		return f.beat(b)
	}
	return store.Beaten{Now: time.Now()}, nil
}

func (f *fake) Workers(context.Context, bool) ([]store.Worker, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	return f.workers, nil
}

func (f *fake) Lost(context.Context, []store.Claim) ([]store.LostClaim, error) { return nil, nil }

func (f *fake) GiveUp(_ context.Context, workers []store.ID) ([]store.ID, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.givenUp = append(f.givenUp, workers...)
	return workers, nil
}

func (f *fake) Sweep(_ context.Context, s store.Sweep) (store.Swept, error) {
	n := len(f.graph.Stages())
	if f.sweep != nil {
		return f.sweep(s)
	}
	return store.Swept{Left: make([]bool, n), Next: never(n)}, nil
}

func (f *fake) Result(context.Context, store.ID, string) (json.RawMessage, error) { return nil, nil }

// seen are the turns so far.
func (f *fake) seen() []store.Turn {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]store.Turn(nil), f.turns...)
}

// claimed hands out the claims once, to the first turn that looks.
func claimed(claims ...store.Claim) func(store.Turn) (store.Turned, error) {
	return func(t store.Turn) (store.Turned, error) {
		for _, look := range t.Look {
			if look && claims != nil {
				out := store.Turned{Claims: claims, Found: make([]int, len(t.Look))}
				for _, c := range claims {
					out.Found[c.Stage]++
				}
				claims = nil
				return out, nil
			}
		}
		return store.Turned{}, nil
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
