package stages_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// manyTasks is a backend with many tasks of one stage, whose exchanges take a while. It
// stores in most how many claims were held at once.
func manyTasks(most *atomic.Int64, exchangeTime time.Duration) *fakeBackend {
	var n uint32
	var held int
	return &fakeBackend{exchange: func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
		time.Sleep(exchangeTime)
		held -= len(in.Reports)
		out := engine.ExchangeResult{MoreReady: []bool{true}}
		if in.ClaimFrom[0] {
			for range in.FreeSlots[0] {
				n++
				c := engine.Claim{Attempt: 1}
				binary.BigEndian.PutUint32(c.Task[:], n)
				binary.BigEndian.PutUint32(c.Token[:], n)
				out.Claims = append(out.Claims, c)
			}
		}
		held += len(out.Claims)
		most.Store(max(most.Load(), int64(held)))
		out.Claimed = []int{len(out.Claims)}
		return out, nil
	}}
}

// quickThenEndless returns work that is quick a hundred times, and then never ends.
func quickThenEndless(started *atomic.Int64) stages.Work {
	return func(ctx context.Context, _ *stages.Job) (any, error) {
		if started.Add(1) < 100 {
			time.Sleep(time.Millisecond)
			return nil, nil
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
}

func TestPrefetch_IsLimitedAndOnlyForQuickWork(t *testing.T) {
	for work, want := range map[time.Duration]int64{
		50 * time.Millisecond: 2, // for the two slots
		time.Millisecond:      4, // and as many prefetched
	} {
		t.Run(work.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var most atomic.Int64
				p := pipeline(t, workTaking(work), "one")
				_, stop := runFake(t, manyTasks(&most, 5*time.Millisecond), p,
					func(r *stages.Runner) { r.Wakes = newFakeListener() })
				time.Sleep(2 * time.Second)
				stop()
				if n := most.Load(); n != want {
					t.Errorf("%d claims were held at once, want %d", n, want)
				}
			})
		})
	}
}

// Prefetching before a stage with a queue would only make that queue longer. A stage in
// between prefetches more, so that tasks continue there and need no queue.
func TestPrefetch_StopsInTheFirstStageForALaterQueue(t *testing.T) {
	for queue, want := range map[bool][]int{false: {2 * 2, 3 * 2}, true: {2, 3 * 2}} {
		t.Run(fmt.Sprint("queue:", queue), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				quick := workTaking(time.Millisecond)
				p, err := stages.New("test", stages.Stage{Name: "one", Work: quick, Slots: 2},
					stages.Stage{Name: "between", Needs: []string{"one"}, Work: quick, Slots: 2},
					stages.Stage{Name: "last", Needs: []string{"between"}, Work: quick, Slots: 2})
				if err != nil {
					t.Fatal(err)
				}
				most := make([]int, 2)
				var n byte
				_, stop := runFake(t,
					&fakeBackend{graph: p.Graph(), exchange: func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
						time.Sleep(5 * time.Millisecond)
						out := engine.ExchangeResult{MoreReady: []bool{true, false, queue}, Claimed: in.FreeSlots}
						if n++; n < 20 { // until the dispatcher knows how long the work takes
							out.Claims = []engine.Claim{
								{Task: store.ID{n}, Token: store.ID{n}, Attempt: 1},
								{Stage: 1, Task: store.ID{n}, Token: store.ID{n, 1}, Attempt: 1},
							}
							return out, nil
						}
						for i := range most {
							most[i] = max(most[i], in.FreeSlots[i])
						}
						return out, nil
					}}, p, func(r *stages.Runner) { r.Wakes = newFakeListener() })
				time.Sleep(2 * time.Second)
				stop()
				if !slices.Equal(most, want) {
					t.Errorf("FreeSlots was at most %v, want %v", most, want)
				}
			})
		})
	}
}

// Claims that were prefetched, but whose slots stay in use, are released for others.
func TestPrefetch_ReleasesClaimsThatFindNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var most, started atomic.Int64
		f := manyTasks(&most, 5*time.Millisecond)
		p := pipeline(t, quickThenEndless(&started), "one")
		released := make(chan stages.Event, 10)
		_, stop := runFake(t, f, p, func(r *stages.Runner) {
			r.Wakes = newFakeListener()
			r.Observe = func(e stages.Event) {
				if e.Kind == stages.ClaimReleased {
					released <- e
				}
			}
		})
		e := <-released
		if e.Err == nil || errors.Is(e.Err, stages.ErrDraining) || e.Attempt != 1 || e.RetryIn != 0 {
			t.Errorf("released: %+v", e)
		}
		stop()
		if started.Load() != 101 { // 99 quick ones, and then one in each slot
			t.Errorf("%d attempts were started, want 101", started.Load())
		}
	})
}

// If exchanges take long, prefetched claims do not start in time, and are released
// again and again.
func TestPrefetch_StopsWithASlowDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var most, started, released atomic.Int64
		p := pipeline(t, quickThenEndless(&started), "one")
		_, stop := runFake(t, manyTasks(&most, 300*time.Millisecond), p, func(r *stages.Runner) {
			r.Wakes = newFakeListener()
			r.Observe = func(e stages.Event) {
				if e.Kind == stages.ClaimReleased {
					released.Add(1)
				}
			}
		})
		time.Sleep(10 * time.Minute)
		if n := released.Load(); n > 2 {
			t.Errorf("%d claims were released; want at most one per slot", n)
		}
		stop()
	})
}

// Work that computes keeps all processors busy; the dispatcher must still run.
func TestDispatcher_RunsDespiteBusyProcessors(t *testing.T) {
	var stop atomic.Bool
	var exchanges atomic.Int64
	second := make(chan struct{})
	f := &fakeBackend{exchange: func(engine.ExchangeRequest) (engine.ExchangeResult, error) {
		out := engine.ExchangeResult{MoreReady: []bool{true}}
		switch exchanges.Add(1) {
		case 1:
			for i := range byte(8) {
				out.Claims = append(out.Claims, engine.Claim{Task: store.ID{i, 1}, Token: store.ID{i, 2}, Attempt: 1})
			}
			out.Claimed = []int{8}
		case 2:
			close(second)
		}
		return out, nil
	}}
	p, err := stages.New("test", stages.Stage{
		Name: "one", Slots: 9, Work: func(context.Context, *stages.Job) (any, error) {
			for n := 0; !stop.Load(); n++ {
				_ = n * n
			}
			return nil, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.graph = p.Graph()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- stages.Runner{Backend: f, Pipeline: p, Grace: time.Minute}.Run(ctx) }()
	select {
	case <-second:
	case <-time.After(5 * time.Second):
		t.Error("no second exchange in five seconds")
	}
	stop.Store(true)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
