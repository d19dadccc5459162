package stages_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func TestResults_OutageCountsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipeline(t, func(ctx context.Context, j *stages.Job) (any, error) {
			_, err := j.Results(ctx, "zero")
			return nil, err
		}, "one")
		first := grantOnce(oneClaim())
		var reports []engine.Report
		f := &unreadableResults{fakeBackend: &fakeBackend{}, back: time.Now().Add(5 * time.Second)}
		f.exchange = func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
			reports = append(reports, in.Reports...)
			return first(in)
		}
		f.graph = p.Graph()
		_, stop := runFake(t, f.fakeBackend, p,
			func(r *stages.Runner) { r.Backend, r.Wakes, r.SweepInterval = f, newFakeListener(), time.Hour })
		time.Sleep(time.Minute)
		stop()
		if len(reports) != 1 || reports[0].Outcome == engine.Failed {
			t.Errorf("reports are %+v", reports)
		}
	})
}

// unreadableResults fails to read results until the time back.
type unreadableResults struct {
	*fakeBackend
	back time.Time
}

func (f *unreadableResults) Result(context.Context, store.ID, string) (json.RawMessage, error) {
	if time.Now().Before(f.back) {
		return nil, syscall.ECONNREFUSED
	}
	return json.RawMessage("1"), nil
}

func TestAbort_StopsWhileTheDatabaseHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipeline(t, waitForCancel, "one")
		var hang atomic.Bool
		f := &hangingBackend{fakeBackend: &fakeBackend{graph: p.Graph(), exchange: grantOnce(oneClaim())}, hang: &hang}
		listener := newFakeListener()
		abort := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- stages.Runner{
				Backend: f, Pipeline: p, Wakes: listener, SweepInterval: time.Hour, Abort: abort,
			}.Run(ctx)
		}()
		time.Sleep(10 * time.Second)
		hang.Store(true)
		listener.Add("cuelight_test_one")
		time.Sleep(time.Second)
		aborted := time.Now()
		cancel()
		close(abort)
		err := <-done
		if took := time.Since(aborted); took > 20*time.Second {
			t.Errorf("Run returned after %s: %v", took, err)
		}
	})
}

// hangingBackend does not answer while hang is set.
type hangingBackend struct {
	*fakeBackend
	hang *atomic.Bool
}

func (h *hangingBackend) waitWhileHanging(ctx context.Context) error {
	if h.hang.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (h *hangingBackend) Exchange(ctx context.Context, in engine.ExchangeRequest) (engine.ExchangeResult, error) {
	if err := h.waitWhileHanging(ctx); err != nil {
		return engine.ExchangeResult{}, err
	}
	return h.fakeBackend.Exchange(ctx, in)
}

func (h *hangingBackend) FindHeldClaims(ctx context.Context, _ ...store.ID) ([]engine.HeldClaim, error) {
	return nil, h.waitWhileHanging(ctx)
}

func (h *hangingBackend) Heartbeat(ctx context.Context, in engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
	if err := h.waitWhileHanging(ctx); err != nil {
		return engine.HeartbeatResult{}, err
	}
	return h.fakeBackend.Heartbeat(ctx, in)
}

func (h *hangingBackend) DeregisterWorker(ctx context.Context, w store.ID) error {
	return h.waitWhileHanging(ctx)
}

// checkedListener counts the calls of Check.
type checkedListener struct {
	*fakeListener
	checks atomic.Int64
}

func (c *checkedListener) Check() { c.checks.Add(1) }

func TestOutage_EndChecksEveryStageAndTheListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &checkedListener{fakeListener: newFakeListener()}
		var down atomic.Bool
		var claims [2]atomic.Int64
		f := &fakeBackend{exchange: func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
			if down.Load() {
				return engine.ExchangeResult{}, syscall.ECONNREFUSED
			}
			for i, wanted := range in.ClaimFrom {
				if wanted {
					claims[i].Add(1)
				}
			}
			return engine.ExchangeResult{}, nil
		}}
		_, stop := runFake(t, f, pipeline(t, noop, "one", "two"),
			func(r *stages.Runner) { r.Wakes, r.SweepInterval = w, time.Hour })
		time.Sleep(10 * time.Second)
		down.Store(true)
		w.Add("cuelight_test_one")
		time.Sleep(10 * time.Second)
		if n := w.checks.Load() + claims[1].Load(); n != 0 {
			t.Errorf("%d checks and claims before the outage", n)
		}
		down.Store(false)
		time.Sleep(10 * time.Second)
		stop()
		if w.checks.Load() != 1 || claims[1].Load() != 1 {
			t.Errorf("%d checks, and %d claims from stage two, after the outage; want one each",
				w.checks.Load(), claims[1].Load())
		}
	})
}
