package stages_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// A refused login, a missing privilege or a missing table is not the task's error: the
// report is kept and sent again.
func TestReport_IsSentAgainAfterAccessErrors(t *testing.T) {
	for _, code := range []string{"28P01", "28000", "3D000", "42501", "42P01"} {
		t.Run(code, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := pipeline(t, noop, "one")
				start := time.Now()
				var last []engine.Report
				first := grantOnce(oneClaim())
				f := &fakeBackend{}
				f.exchange = func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
					if len(in.Reports) == 0 {
						return first(in)
					}
					if time.Since(start) < time.Minute {
						return engine.ExchangeResult{}, &pgconn.PgError{Code: code, Message: "password authentication failed"}
					}
					last = in.Reports
					return engine.ExchangeResult{}, nil
				}
				_, stop := runFake(t, f, p, func(r *stages.Runner) { r.Wakes, r.SweepInterval = newFakeListener(), time.Hour })
				time.Sleep(2 * time.Minute)
				stop()
				if len(last) != 1 || last[0].Outcome != engine.Completed {
					t.Errorf("reports are %+v", last)
				}
			})
		})
	}
}

func TestReport_IsSentAgainAfterItsTableWasMissing(t *testing.T) {
	t.Parallel()
	finish := make(chan struct{})
	b := setup(t, stages.Stage{Name: "one", Work: func(ctx context.Context, _ *stages.Job) (any, error) {
		<-finish
		return "an hour of transcoding", nil
	}})
	id := b.submit()
	r := b.start(func(r *stages.Runner) { r.Wakes = b.listening() })
	r.wait(t, stages.StageStarted)
	exec := func(sql string) {
		t.Helper()
		if _, err := b.pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	exec(`alter table test_tasks rename to test_tasks_renamed`) // as during a restore
	close(finish)
	r.wait(t, stages.DatabaseLost)
	exec(`alter table test_tasks_renamed rename to test_tasks`)
	r.wait(t, stages.DatabaseBack)
	waittest.Until(t, "the task has ended", func() bool { s := b.task(id).Status; return s == "dead" || s == "completed" })
	if s := b.task(id).Status; s != "completed" {
		t.Errorf("task is %s: %+v", s, b.history(id))
	}
}

// A report that the database rejects waits without delaying anything else.
func TestReport_RejectedByTheDatabaseDelaysNoClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipeline(t, func(context.Context, *stages.Job) (any, error) { return nil, errors.New("x") }, "one")
		first := grantOnce(oneClaim())
		withoutReports := 0
		f := &fakeBackend{}
		listener := newFakeListener()
		f.exchange = func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
			if len(in.Reports) > 0 {
				return engine.ExchangeResult{}, &pgconn.PgError{Code: "23514"}
			}
			withoutReports++
			return first(in)
		}
		_, stop := runFake(t, f, p, func(r *stages.Runner) { r.Wakes, r.SweepInterval = listener, time.Hour })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		before := withoutReports
		for range 60 {
			listener.Add("cuelight_test_one")
			time.Sleep(10 * time.Second)
		}
		stop()
		if withoutReports == before {
			t.Error("no claim was made for ten minutes because of one rejected report")
		}
	})
}

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

// Until the other workers know the session, they can expire a killed worker only by its
// lease.
func TestHeartbeat_ReportsANewSessionAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var claimedAt, reportedAt time.Duration
		first := grantOnce(oneClaim())
		f := &fakeBackend{}
		f.exchange = func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
			out, err := first(in)
			if len(out.Claims) > 0 {
				claimedAt = time.Since(start)
			}
			return out, err
		}
		f.heartbeat = func(in engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
			if in.Session != 0 && reportedAt == 0 {
				reportedAt = time.Since(start)
			}
			return engine.HeartbeatResult{Now: time.Now()}, nil
		}
		listener := newFakeListener()
		listener.disconnected.Store(true)
		time.AfterFunc(200*time.Millisecond, func() { listener.disconnected.Store(false) }) // connects
		_, stop := runFake(t, f, pipeline(t, workUntilCancelled(make(chan error, 1)), "one"),
			func(r *stages.Runner) { r.Wakes, r.SweepInterval, r.Grace = listener, time.Hour, -1 })
		time.Sleep(10 * time.Second)
		stop()
		if reportedAt-claimedAt > 500*time.Millisecond {
			t.Errorf("claimed after %s, and reported the session after %s", claimedAt, reportedAt)
		}
	})
}

func TestHeartbeat_SlowResponseIsNoClockChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, n, withoutCredit, all := time.Now(), 0, 0, 0
		f := &fakeBackend{heartbeat: func(in engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
			n++
			if time.Since(start) > time.Minute {
				all++
				if in.Credit == nil || in.Credit.Lease > time.Hour {
					withoutCredit++
				}
			}
			if n%10 == 0 {
				time.Sleep(2500 * time.Millisecond) // as if it waited for a connection
			}
			return engine.HeartbeatResult{Now: time.Now()}, nil
		}}
		_, stop := runFake(t, f, pipeline(t, noop, "one"),
			func(r *stages.Runner) { r.Wakes, r.SweepInterval = newFakeListener(), time.Hour })
		time.Sleep(10 * time.Minute)
		stop()
		if withoutCredit > 0 {
			t.Errorf("%d of %d heartbeats had no credit by which workers may expire", withoutCredit, all)
		}
	})
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

func (h *hangingBackend) FindHeldClaims(ctx context.Context, w store.ID) ([]engine.Claim, error) {
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

func TestOutageCredit_LastsForTheGraceDespiteAShortLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var at time.Duration
		f := &fakeBackend{heartbeat: func(in engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
			now := time.Since(start)
			if now > 60*time.Second && now < 80*time.Second {
				return engine.HeartbeatResult{}, syscall.ECONNREFUSED
			}
			if now > 80*time.Second && in.Credit != nil && in.Credit.Grace == 0 && at == 0 {
				at = now - 80*time.Second
			}
			return engine.HeartbeatResult{Now: time.Now()}, nil
		}}
		_, stop := runFake(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) {
			r.Wakes, r.SweepInterval, r.Lease = newFakeListener(), time.Hour, 5*time.Second
		})
		time.Sleep(2 * time.Minute)
		stop()
		if at < 5*time.Second {
			t.Errorf("%s after an outage there is no credit for workers with the default lease", at)
		}
	})
}

func TestSweep_LockedRowOfALostWorkerDelaysNoTask(t *testing.T) {
	t.Parallel()
	b := setup(t, stages.Stage{Name: "one", Workers: 1, Work: noop})
	dead, err := b.backend.RegisterWorker(t.Context(), store.Worker{Host: "x", PID: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.pool.Exec(t.Context(), "update workers set heartbeat_at = now() - interval '1 h' where id = $1", dead)
	if err != nil {
		t.Fatal(err)
	}
	r := b.start(func(r *stages.Runner) { r.Wakes, r.Lease = b.listening(), 5*time.Second })
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "select from workers where id = $1 for no key update", dead); err != nil {
		t.Fatal(err)
	}
	// Eight seconds are enough for sweeps to find the lost worker.
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); {
		submitted := time.Now()
		b.submit()
		r.wait(t, stages.StageCompleted)
		if took := time.Since(submitted); took > 5*time.Second {
			t.Fatalf("a task took %s", took)
		}
	}
}

func TestHeartbeat_UnknownWorkerStopsWorkAndRegistersAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		causes := make(chan error, 1)
		registered := 0
		f := &fakeBackend{exchange: grantOnce(oneClaim()), register: func(store.Worker) { registered++ }}
		var unknown atomic.Bool
		f.heartbeat = func(engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
			if unknown.Swap(false) {
				return engine.HeartbeatResult{}, store.ErrWorkerUnknown
			}
			return engine.HeartbeatResult{Now: time.Now()}, nil
		}
		_, stop := runFake(t, f, pipeline(t, workUntilCancelled(causes), "one"),
			func(r *stages.Runner) { r.Wakes, r.SweepInterval = newFakeListener(), time.Hour })
		time.Sleep(10 * time.Second)
		unknown.Store(true)
		answered := time.Now()
		if err := <-causes; !errors.Is(err, stages.ErrLeaseLost) || time.Since(answered) > 3*time.Second {
			t.Errorf("the work ended after %s, because of %v", time.Since(answered), err)
		}
		stop()
		if registered != 2 {
			t.Errorf("the Runner registered %d times, want twice", registered)
		}
	})
}

func TestSweep_RunsAgainSoonAfterLockedRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sweeps []time.Time
		f := &fakeBackend{sweep: func(engine.SweepRequest) (engine.SweepResult, error) {
			sweeps = append(sweeps, time.Now())
			out := engine.SweepResult{MoreReady: make([]bool, 1), NextDue: noneDue(1), RowsLocked: len(sweeps) == 1}
			if len(sweeps) == 2 {
				return out, &pgconn.PgError{Code: "55P03"}
			}
			return out, nil
		}}
		_, stop := runFake(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) { r.Wakes = newFakeListener() })
		time.Sleep(5 * time.Second)
		stop()
		if len(sweeps) != 3 || sweeps[2].Sub(sweeps[0]) > time.Second {
			t.Errorf("%d sweeps in five seconds: %v", len(sweeps), sweeps)
		}
	})
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
