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

// queued is a store with many tasks of one stage, and turns that take a while.
func queued(most *atomic.Int64, turn time.Duration) *fake {
	var n uint32
	var held int
	return &fake{turn: func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
		time.Sleep(turn)
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
		out.Granted, out.Requested = []int{len(out.Claims)}, []int{len(out.Claims)}
		return out, nil
	}}
}

// firstQuick is work that is quick a hundred times, and then goes on for ever.
func firstQuick(begun *atomic.Int64) stages.Work {
	return func(ctx context.Context, _ *stages.Job) (any, error) {
		if begun.Add(1) < 100 {
			time.Sleep(time.Millisecond)
			return nil, nil
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
}

func TestOnlyQuickWorkIsClaimedAheadAndNotFarAhead(t *testing.T) {
	for work, want := range map[time.Duration]int64{
		50 * time.Millisecond: 2, // what the two slots do
		time.Millisecond:      4, // and as many again
	} {
		t.Run(work.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var most atomic.Int64
				p := pipeline(t, func(context.Context, *stages.Job) (any, error) {
					time.Sleep(work)
					return nil, nil
				}, "one")
				_, stop := run(t, queued(&most, 5*time.Millisecond), p, func(r *stages.Runner) { r.Wakes = newEar() })
				time.Sleep(2 * time.Second)
				stop()
				if n := most.Load(); n != want {
					t.Errorf("it held %d claims at once, want %d", n, want)
				}
			})
		})
	}
}

// A queue behind a stage would only grow by what is claimed ahead before it. A stage in
// between must have room for what goes on there, else it gets a queue of its own.
func TestQueueOfALaterStage_EndsClaimingAheadInTheFirstStageAlone(t *testing.T) {
	for queue, want := range map[bool][]int{false: {2 * 2, 3 * 2}, true: {2, 3 * 2}} {
		t.Run(fmt.Sprint("queue:", queue), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				quick := func(context.Context, *stages.Job) (any, error) { time.Sleep(time.Millisecond); return nil, nil }
				p, err := stages.New("test", stages.Stage{Name: "one", Work: quick, Workers: 2},
					stages.Stage{Name: "between", Needs: []string{"one"}, Work: quick, Workers: 2},
					stages.Stage{Name: "last", Needs: []string{"between"}, Work: quick, Workers: 2})
				if err != nil {
					t.Fatal(err)
				}
				most := make([]int, 2)
				var n byte
				_, stop := run(t, &fake{graph: p.Graph(), turn: func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
					time.Sleep(5 * time.Millisecond)
					out := engine.ExchangeResult{MoreReady: []bool{true, false, queue}, Granted: in.FreeSlots} // there is always more
					if n++; n < 20 {                                                                           // until it is known how long the work takes
						out.Claims = []engine.Claim{{Task: store.ID{n}, Token: store.ID{n}, Attempt: 1}, {Stage: 1, Task: store.ID{n}, Token: store.ID{n, 1}, Attempt: 1}}
						return out, nil
					}
					for i := range most {
						most[i] = max(most[i], in.FreeSlots[i])
					}
					return out, nil
				}}, p, func(r *stages.Runner) { r.Wakes = newEar() })
				time.Sleep(2 * time.Second)
				stop()
				if !slices.Equal(most, want) {
					t.Errorf("it had room for %v tasks, want %v", most, want)
				}
			})
		})
	}
}

// What was claimed ahead of work that then takes long is for others to do.
func TestClaimThatFindsNoSlotIsGivenBackWithoutCountingAsAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var most, begun atomic.Int64
		f := queued(&most, 5*time.Millisecond)
		p := pipeline(t, firstQuick(&begun), "one")
		released := make(chan stages.Event, 10)
		_, stop := run(t, f, p, func(r *stages.Runner) {
			r.Wakes = newEar()
			r.Observe = func(e stages.Event) {
				if e.Kind == stages.ClaimReleased {
					released <- e
				}
			}
		})
		e := <-released
		if e.Err == nil || errors.Is(e.Err, stages.ErrDraining) || e.Attempt != 1 || e.RetryIn != 0 {
			t.Errorf("it was released with %+v", e)
		}
		stop()
		if begun.Load() != 101 { // one in each slot for as long as it lasted
			t.Errorf("%d attempts were begun", begun.Load())
		}
	})
}

// Where turns take long, claims that will not start in time would only be given
// back, again and again.
func TestSlowDatabaseIsNotKeptBusyWithClaimsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var most, begun, released atomic.Int64
		p := pipeline(t, firstQuick(&begun), "one")
		_, stop := run(t, queued(&most, 300*time.Millisecond), p, func(r *stages.Runner) {
			r.Wakes = newEar()
			r.Observe = func(e stages.Event) {
				if e.Kind == stages.ClaimReleased {
					released.Add(1)
				}
			}
		})
		time.Sleep(10 * time.Minute)
		if n := released.Load(); n > 2 {
			t.Errorf("%d claims were given back; want no more than there are slots", n)
		}
		stop()
	})
}

// Work that computes keeps the processors; the dispatcher must get its turn.
func TestDispatcherGoesOnAmongWorkThatComputes(t *testing.T) {
	var over atomic.Bool
	var turns atomic.Int64
	second := make(chan struct{})
	f := &fake{turn: func(engine.ExchangeRequest) (engine.ExchangeResult, error) {
		out := engine.ExchangeResult{MoreReady: []bool{true}}
		switch turns.Add(1) {
		case 1:
			for i := range byte(8) {
				out.Claims = append(out.Claims, engine.Claim{Task: store.ID{i, 1}, Token: store.ID{i, 2}, Attempt: 1})
			}
			out.Granted, out.Requested = []int{8}, []int{9}
		case 2:
			close(second)
		}
		return out, nil
	}}
	p, err := stages.New("test", stages.Stage{Name: "one", Workers: 9, Work: func(context.Context, *stages.Job) (any, error) {
		for n := 0; !over.Load(); n++ {
			_ = n * n
		}
		return nil, nil
	}})
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
		t.Error("no second turn in five seconds")
	}
	over.Store(true)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A task whose row was locked when a claim came by is behind the place that claims go
// on from, and nobody is told of it.
func TestLongQueueIsLookedAtFromItsBeginningNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		var last, longest time.Duration // since the beginning was looked at
		began, n, places := time.Now(), uint32(0), 0
		f.turn = func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
			time.Sleep(time.Millisecond)
			out := engine.ExchangeResult{MoreReady: []bool{true}, LastPosition: make([]engine.Position, 1)}
			for range in.FreeSlots[0] {
				n++
				c := engine.Claim{Attempt: 1}
				binary.BigEndian.PutUint32(c.Task[:], n)
				binary.BigEndian.PutUint32(c.Token[:], n)
				out.Claims = append(out.Claims, c)
				out.LastPosition[0].Task = c.Task
			}
			out.Granted, out.Requested = []int{len(out.Claims)}, []int{len(out.Claims)}
			if now := time.Since(began); in.After[0].Task.IsZero() {
				longest, last = max(longest, now-last), now
			} else {
				places++
			}
			return out, nil
		}
		p := pipeline(t, func(context.Context, *stages.Job) (any, error) {
			time.Sleep(time.Millisecond)
			return nil, nil
		}, "one")
		_, stop := run(t, f, p, func(r *stages.Runner) { r.Wakes = newEar() })
		time.Sleep(time.Second)
		stop()
		if longest = max(longest, time.Second-last); longest > 30*time.Millisecond {
			t.Errorf("for %v it was not looked at from its beginning", longest)
		}
		if places < 200 {
			t.Errorf("only %d turns of a second went on from a place", places)
		}
	})
}
