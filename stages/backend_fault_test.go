package stages_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// faultyBackend is a real backend that can be made to fail.
type faultyBackend struct {
	stages.Database
	down atomic.Bool

	mu        sync.Mutex
	exchanges int
	sweeps    int
	exchange  func(n int, real func() (engine.ExchangeResult, error)) (engine.ExchangeResult, error) // n is 1 for the first exchange
}

var errDown = errors.New("connection refused")

func (f *faultyBackend) Exchange(ctx context.Context, in engine.ExchangeRequest) (engine.ExchangeResult, error) {
	if f.down.Load() {
		return engine.ExchangeResult{}, errDown
	}
	f.mu.Lock()
	f.exchanges++
	n := f.exchanges
	f.mu.Unlock()
	real := func() (engine.ExchangeResult, error) { return f.Database.Exchange(ctx, in) }
	if f.exchange != nil {
		return f.exchange(n, real)
	}
	return real()
}

func (f *faultyBackend) Heartbeat(ctx context.Context, in engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
	if f.down.Load() {
		return engine.HeartbeatResult{}, errDown
	}
	return f.Database.Heartbeat(ctx, in)
}

func (f *faultyBackend) Sweep(ctx context.Context, in engine.SweepRequest) (engine.SweepResult, error) {
	if f.down.Load() {
		return engine.SweepResult{}, errDown
	}
	f.mu.Lock()
	f.sweeps++
	f.mu.Unlock()
	return f.Database.Sweep(ctx, in)
}

func (f *faultyBackend) FindHeldClaims(ctx context.Context, w ...store.ID) ([]engine.HeldClaim, error) {
	if f.down.Load() {
		return nil, errDown
	}
	return f.Database.FindHeldClaims(ctx, w...)
}

func TestReconcile_CompletesTasksAfterRepeatedLostResponses(t *testing.T) {
	t.Parallel()
	b := setup(t, stages.Stage{Name: "one", Slots: 2, Work: noop})
	f := &faultyBackend{Database: b.backend}
	f.exchange = func(n int, real func() (engine.ExchangeResult, error)) (engine.ExchangeResult, error) {
		switch n {
		case 1: // committed, but the response is lost
			if _, err := real(); err != nil {
				t.Error(err)
			}
			return engine.ExchangeResult{}, errors.New("unexpected EOF")
		case 2, 3:
			return engine.ExchangeResult{}, errors.New("unexpected EOF")
		}
		return real()
	}
	first := b.submit()
	r := b.start(func(r *stages.Runner) { r.Backend, r.SweepInterval = f, 50*time.Millisecond })
	r.wait(t, stages.StageCompleted)
	second := b.submit()
	r.wait(t, stages.StageCompleted)
	for _, id := range []store.ID{first, second} {
		if s := b.task(id).Status; s != store.StatusCompleted {
			t.Errorf("task is %s", s)
		}
	}
}

func TestDispatcher_SweepsAndStopsUnderFullLoad(t *testing.T) {
	t.Parallel()
	b := setup(t, stages.Stage{Name: "one", Slots: 4, Work: noop})
	_, err := b.pool.Exec(t.Context(), "insert into test_tasks (source) select 'x' from generate_series(1, 20000)")
	if err != nil {
		t.Fatal(err)
	}
	f := &faultyBackend{Database: b.backend}
	r := b.start(func(r *stages.Runner) { r.Backend, r.SweepInterval, r.Grace = f, 10*time.Millisecond, -1 })
	for range 500 {
		r.wait(t, stages.StageCompleted)
	}
	r.stop()
	if f.sweeps < 3 {
		t.Errorf("%d sweeps", f.sweeps)
	}
	for status, want := range map[store.Status]int{store.StatusPending: 1, store.StatusInProgress: 0} {
		tasks, err := b.List(t.Context(), store.ListQuery{Filter: store.Filter{Status: status, Limit: 1}})
		if err != nil || len(tasks) != want {
			t.Errorf("after the stop: %v, %v; want %d tasks or more with the status %s", tasks, err, want, status)
		}
	}
}

func TestProgress_InvalidValuesDoNotStopHeartbeats(t *testing.T) {
	t.Parallel()
	for _, p := range []stages.Progress{
		{Speed: math.Inf(1), Percent: math.NaN()},
		{Note: "a \x00 and \xff", Percent: math.Inf(-1), ETA: -1},
	} {
		b := setup(t,
			stages.Stage{Name: "bad", Work: func(ctx context.Context, j *stages.Job) (any, error) {
				j.Progress(p)
				return waitForCancel(ctx, j)
			}},
			stages.Stage{Name: "good", Work: waitForCancel},
		)
		b.submit()
		b.start(func(r *stages.Runner) { r.Lease, r.Grace = 600*time.Millisecond, -1 })
		var last store.Worker
		waittest.Until(t, "a heartbeat lists both attempts", func() bool {
			all, err := b.Workers(t.Context(), false)
			if err != nil || len(all) != 1 {
				t.Fatal(all, err)
			}
			last = all[0]
			return len(last.Running) == 2
		})
		first := last.HeartbeatAt
		waittest.Until(t, "further heartbeats follow", func() bool {
			all, err := b.Workers(t.Context(), false)
			return err == nil && len(all) == 1 && all[0].HeartbeatAt.After(first.Add(time.Second))
		})
	}
}

func TestOutage_LongerThanTheLeaseCountsNoAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t, stages.Stage{Name: "one", MaxAttempts: 1, Work: waitForCancel})
	var all []*faultyBackend
	var runners []*runner
	for range 3 {
		b.submit()
		f := &faultyBackend{Database: b.backend}
		all = append(all, f)
		runners = append(runners, b.start(func(r *stages.Runner) {
			r.Backend, r.Lease, r.SweepInterval, r.Grace = f, 900*time.Millisecond, 50*time.Millisecond, -1
		}))
	}
	for _, r := range runners {
		r.wait(t, stages.StageStarted)
	}
	for _, f := range all {
		f.down.Store(true)
	}
	time.Sleep(2 * time.Second) // the outage, twice as long as the lease
	for _, f := range all {
		f.down.Store(false)
	}
	for _, r := range runners {
		r.wait(t, stages.ClaimReleased) // the heartbeat stopped the attempt
		r.wait(t, stages.StageStarted)
	}
	tasks, err := b.List(t.Context(), store.ListQuery{Filter: store.Filter{}})
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if s := task.Stages[0]; s.Status == store.StatusDead || s.Attempts > 1 {
			t.Errorf("stage is %s after %d attempts: %+v", s.Status, s.Attempts, b.history(task.ID))
		}
	}
}

func TestRunner_RegistersAgainAfterItWasLost(t *testing.T) {
	t.Parallel()
	var ran atomic.Int64
	b := setup(t, stages.Stage{Name: "one", Work: func(ctx context.Context, j *stages.Job) (any, error) {
		if ran.Add(1) == 1 {
			return waitForCancel(ctx, j)
		}
		return nil, nil
	}})
	id := b.submit()
	r := b.start(func(r *stages.Runner) { r.Lease, r.SweepInterval = time.Second, 50*time.Millisecond })
	first := r.wait(t, stages.StageStarted).Worker
	if _, err := b.pool.Exec(t.Context(), "update test_workers set lost_at = now()"); err != nil {
		t.Fatal(err)
	}
	if second := r.wait(t, stages.WorkerStarted).Worker; second == first {
		t.Error("it still uses the id of the lost worker")
	}
	r.wait(t, stages.StageCompleted)
	// Either its own sweep expired the claim, or it released it before.
	h := b.history(id)
	if len(h) != 2 || h[0].Outcome != "expired" && h[0].Outcome != "released" || h[0].Worker != first ||
		h[1].Worker == first {
		t.Errorf("history is %+v", h)
	}
}

func TestDrain_EndsDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := notify.NewWakes()
		p := pipeline(t, noop, "one")
		calls := 0
		f := &fakeBackend{exchange: func(engine.ExchangeRequest) (engine.ExchangeResult, error) {
			return engine.ExchangeResult{}, errors.New("broken pipe")
		}}
		f.held = func() ([]engine.HeldClaim, error) {
			if calls++; calls > 2 {
				return nil, errors.New("connection refused")
			}
			return []engine.HeldClaim{{Claim: oneClaim()}}, nil
		}
		_, stop := runFake(t, f, p, func(r *stages.Runner) { r.Wakes, r.SweepInterval = w, time.Hour })
		w.Add(p.Graph().Channel("one"))
		time.Sleep(10 * time.Second)
		stopping := time.Now()
		stop()
		if took := time.Since(stopping); took > time.Minute {
			t.Errorf("stopped after %s", took)
		}
	})
}

// A coordinator that has revoked the key of a remote worker refuses it for good.
func TestWorker_CancelsItsWorkAndEndsWhenItsBackendRefusesIt(t *testing.T) {
	refusal := stages.Permanent(errors.New("the key is revoked"))
	for name, refuse := range map[string]func(f *fakeBackend){
		"a heartbeat": func(f *fakeBackend) {
			f.heartbeat = func(in engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
				if len(in.Claims) > 0 {
					return engine.HeartbeatResult{}, refusal
				}
				return engine.HeartbeatResult{Now: time.Now()}, nil
			}
		},
		"an exchange": func(f *fakeBackend) {
			first := f.exchange
			f.exchange = func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
				if in.FreeSlots[0] == 1 { // the other one has the claim
					return engine.ExchangeResult{}, refusal
				}
				return first(in)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				why := make(chan error, 1)
				f := &fakeBackend{exchange: grantOnce(oneClaim())}
				refuse(f)
				p := pipeline(t, workUntilCancelled(why), "one")
				f.graph = p.Graph()
				events := make(chan stages.Event, 100)
				listener := newFakeListener()
				started := time.Now()
				time.AfterFunc(time.Second, func() { listener.Add("cuelight_test_one") })
				err := stages.Runner{
					Pipeline: p, Backend: f, Wakes: listener, Grace: time.Hour, Observe: func(e stages.Event) { events <- e },
				}.Run(t.Context())
				if err == nil || err.Error() != "run pipeline: the key is revoked" {
					t.Errorf("run returned %v", err)
				}
				if took := time.Since(started); took > 3*time.Second {
					t.Errorf("the worker ended after %s", took)
				}
				if cause := <-why; !errors.Is(cause, stages.ErrLeaseLost) {
					t.Errorf("the work was cancelled because of %v", cause)
				}
				for e := <-events; e.Kind != stages.WorkerStopped; e = <-events {
					if e.Kind == stages.ClaimReleased || e.Kind == stages.AttemptFailed {
						t.Errorf("an outcome that was not recorded is observed: %+v", e)
					}
				}
			})
		})
	}
}
