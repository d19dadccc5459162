package stages_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// slowHousekeeping is a Backend whose exchanges and heartbeats answer at once, and everything else after a delay.
type slowHousekeeping struct {
	*fakeBackend
	delay time.Duration
}

// wait waits, but not for longer than ctx.
func (b slowHousekeeping) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(b.delay):
		return nil
	}
}

func (b slowHousekeeping) NotifyEvents(ctx context.Context) error { return b.wait(ctx) }

func (b slowHousekeeping) PruneEvents(ctx context.Context, _ time.Duration) (int, bool, error) {
	return 0, false, b.wait(ctx)
}

func (b slowHousekeeping) Workers(ctx context.Context, _ bool) ([]store.Worker, error) {
	return nil, b.wait(ctx)
}

func (b slowHousekeeping) FindHeldClaims(ctx context.Context, _ ...store.ID) ([]engine.HeldClaim, error) {
	return nil, b.wait(ctx)
}

func (b slowHousekeeping) Reconcile(ctx context.Context, _ store.ID, _ time.Duration) error {
	return b.wait(ctx)
}

func (b slowHousekeeping) Sweep(ctx context.Context, _ engine.SweepRequest) (engine.SweepResult, error) {
	return nothingSwept(1), b.wait(ctx)
}

func (b slowHousekeeping) Prune(ctx context.Context, _ store.PruneOptions) (store.PruneResult, error) {
	return store.PruneResult{}, b.wait(ctx)
}

func (b slowHousekeeping) ClaimToUnpublish(ctx context.Context) ([]store.DeletedTask, error) {
	return nil, b.wait(ctx)
}

func (b slowHousekeeping) ClaimToPurge(ctx context.Context, _ time.Duration) ([]store.DeletedTask, error) {
	return nil, b.wait(ctx)
}

// Work of a second each in two slots is claimed and reported at once, whatever else the process waits for.
func TestHousekeeping_DelaysNoExchange(t *testing.T) {
	for name, delay := range map[string]time.Duration{
		"slower than the sweep's interval": 20 * time.Second, "without an answer": time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reported, claimed := 0, byte(0)
				f := &fakeBackend{exchange: func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
					time.Sleep(time.Millisecond)
					reported += len(in.Reports)
					out := engine.ExchangeResult{Claimed: []int{0}, MoreReady: []bool{true}}
					for i := 0; in.ClaimFrom[0] && i < in.FreeSlots[0]; i++ {
						claimed++
						c := oneClaim()
						c.Task, c.Token = store.ID{claimed}, store.ID{claimed, 1}
						out.Claims = append(out.Claims, c)
						out.Claimed[0]++
					}
					return out, nil
				}}
				work := func(context.Context, *stages.Job) (any, error) {
					time.Sleep(time.Second)
					return nil, nil
				}
				var failures []error
				_, stop := runFake(t, f, pipeline(t, work, "one"), func(r *stages.Runner) {
					r.Backend, r.Wakes = slowHousekeeping{f, delay}, newFakeListener()
					r.Retention, r.Observe = &stages.Retention{}, func(e stages.Event) {
						switch e.Kind {
						case stages.DatabaseUnavailable:
							t.Errorf("the database counts as unavailable: %v", e.Err)
						case stages.SweepFailed:
							failures = append(failures, e.Err)
						}
					}
				})
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				n := reported
				stop()
				if want := int(delay / time.Hour); len(failures) != want {
					t.Errorf("failures of sweeps are reported as %v, want %d", failures, want)
				}
				if want := 2 * 600; n < want*95/100 {
					t.Errorf("%d attempts of a second were reported in 10 minutes, want almost %d", n, want)
				}
			})
		})
	}
}

// A sweep asks which claims the process holds, and the answer arrives when the attempt has ended.
func TestSweep_DoesNotReleaseAnAttemptThatEndedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		claimed, late, recorded := false, false, make(chan struct{})
		f := &fakeBackend{
			exchange: func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
				out := engine.ExchangeResult{Claimed: []int{0}, MoreReady: []bool{false}}
				if !claimed && in.ClaimFrom[0] {
					claimed = true
					out.Claims, out.Claimed = []engine.Claim{oneClaim()}, []int{1}
				}
				for _, r := range in.Reports {
					if r.Outcome == engine.Completed {
						close(recorded)
					} else {
						t.Errorf("%s was reported", r.Outcome)
					}
				}
				return out, nil
			},
			held: func() ([]engine.HeldClaim, error) {
				select {
				case <-recorded:
					return nil, nil
				default:
				}
				if !claimed {
					return nil, nil
				}
				late = true
				<-recorded
				return []engine.HeldClaim{{Claim: oneClaim(), Age: time.Minute}}, nil
			},
		}
		work := func(context.Context, *stages.Job) (any, error) {
			time.Sleep(30 * time.Second)
			return nil, nil
		}
		events, stop := runFake(t, f, pipeline(t, work, "one"), nil)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		stop()
		if !late {
			t.Error("no sweep waited for the end of the attempt")
		}
		for _, kind := range events() {
			if kind == stages.ClaimReleased || kind == stages.ClaimRevoked {
				t.Errorf("the attempt ended as %s after it was completed", kind)
			}
		}
	})
}
