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

// A login that is refused for a while, a privilege or a table that is missing,
// say nothing of the work that was done.
func TestCompletedWorkSurvivesWhateverTheDatabaseHasAgainstUs(t *testing.T) {
	for _, code := range []string{"28P01", "28000", "3D000", "42501", "42P01"} {
		t.Run(code, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := pipeline(t, noop, "one")
				start := time.Now()
				var last []engine.Report
				first := claimed(oneClaim())
				f := &fake{}
				f.turn = func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
					if len(in.Reports) == 0 {
						return first(in)
					}
					if time.Since(start) < time.Minute {
						return engine.ExchangeResult{}, &pgconn.PgError{Code: code, Message: "password authentication failed"}
					}
					last = in.Reports
					return engine.ExchangeResult{}, nil
				}
				_, stop := run(t, f, p, func(r *stages.Runner) { r.Wakes, r.SweepInterval = newEar(), time.Hour })
				time.Sleep(2 * time.Minute)
				stop()
				if len(last) != 1 || last[0].Outcome != engine.Completed {
					t.Errorf("handed in: %+v", last)
				}
			})
		})
	}
}

func TestCompletedWorkSurvivesARestoreOfItsTable(t *testing.T) {
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
	exec(`alter table test_tasks rename to test_tasks_away`) // a restore under way
	close(finish)
	r.wait(t, stages.DatabaseLost)
	exec(`alter table test_tasks_away rename to test_tasks`)
	r.wait(t, stages.DatabaseBack)
	waittest.Until(t, "task ended", func() bool { s := b.task(id).Status; return s == "dead" || s == "completed" })
	if s := b.task(id).Status; s != "completed" {
		t.Errorf("task is %s: %+v", s, b.history(id))
	}
}

// What the database does not take of one task waits by itself.
func TestRefusedFailureStopsNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipeline(t, func(context.Context, *stages.Job) (any, error) { return nil, errors.New("x") }, "one")
		first := claimed(oneClaim())
		clean := 0
		f := &fake{}
		e := newEar()
		f.turn = func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
			if len(in.Reports) > 0 {
				return engine.ExchangeResult{}, &pgconn.PgError{Code: "23514"}
			}
			clean++
			return first(in)
		}
		_, stop := run(t, f, p, func(r *stages.Runner) { r.Wakes, r.SweepInterval = e, time.Hour })
		time.Sleep(10 * time.Second)
		synctest.Wait()
		before := clean
		for range 60 {
			e.Add("cuelight_test_one")
			time.Sleep(10 * time.Second)
		}
		stop()
		if clean == before {
			t.Errorf("no claim was made for ten minutes because of one refused report")
		}
	})
}

func TestOutageWhileReadingAResultBurnsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipeline(t, func(ctx context.Context, j *stages.Job) (any, error) {
			_, err := j.Results(ctx, "zero")
			return nil, err
		}, "one")
		first := claimed(oneClaim())
		var reports []engine.Report
		f := &awayResults{fake: &fake{}, back: time.Now().Add(5 * time.Second)}
		f.turn = func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
			reports = append(reports, in.Reports...)
			return first(in)
		}
		f.graph = p.Graph()
		_, stop := run(t, f.fake, p, func(r *stages.Runner) { r.Backend, r.Wakes, r.SweepInterval = f, newEar(), time.Hour })
		time.Sleep(time.Minute)
		stop()
		if len(reports) != 1 || reports[0].Outcome == engine.Failed {
			t.Errorf("reports %+v", reports)
		}
	})
}

type awayResults struct {
	*fake
	back time.Time
}

func (f *awayResults) Result(context.Context, store.ID, string) (json.RawMessage, error) {
	if time.Now().Before(f.back) {
		return nil, syscall.ECONNREFUSED
	}
	return json.RawMessage("1"), nil
}

// Before the others know of the session, only the lease would show a death.
func TestSessionIsToldAsSoonAsItIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var claimedAt, told time.Duration
		first := claimed(oneClaim())
		f := &fake{}
		f.turn = func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
			out, err := first(in)
			if len(out.Claims) > 0 {
				claimedAt = time.Since(start)
			}
			return out, err
		}
		f.beat = func(b engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
			if b.Session != 0 && told == 0 {
				told = time.Since(start)
			}
			return engine.HeartbeatResult{Now: time.Now()}, nil
		}
		e := newEar()
		e.deaf.Store(true)
		time.AfterFunc(200*time.Millisecond, func() { e.deaf.Store(false) }) // connects
		_, stop := run(t, f, pipeline(t, obedient(make(chan error, 1)), "one"), func(r *stages.Runner) { r.Wakes, r.SweepInterval, r.Grace = e, time.Hour, -1 })
		time.Sleep(10 * time.Second)
		stop()
		if told-claimedAt > 500*time.Millisecond {
			t.Errorf("claimed after %s, and told of the session after %s", claimedAt, told)
		}
	})
}

func TestSlowBeatIsNoChangedClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, n, never, all := time.Now(), 0, 0, 0
		f := &fake{beat: func(b engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
			n++
			if time.Since(start) > time.Minute {
				all++
				if b.Credit == nil || b.Credit.Lease > time.Hour {
					never++
				}
			}
			if n%10 == 0 {
				time.Sleep(2500 * time.Millisecond) // until a connection was free
			}
			return engine.HeartbeatResult{Now: time.Now()}, nil
		}}
		_, stop := run(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) { r.Wakes, r.SweepInterval = newEar(), time.Hour })
		time.Sleep(10 * time.Minute)
		stop()
		if never > 0 {
			t.Errorf("%d of %d beats could not judge by the lease", never, all)
		}
	})
}

func TestSecondSignalStopsAtOnceAlsoWhileTheDatabaseHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipeline(t, func(ctx context.Context, _ *stages.Job) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, "one")
		first := claimed(oneClaim())
		var hang atomic.Bool
		var ended time.Time
		f := &hanging{fake: &fake{graph: p.Graph()}, hang: &hang}
		f.fake.turn = first
		e := newEar()
		abort := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- stages.Runner{Backend: f, Pipeline: p, Wakes: e, SweepInterval: time.Hour, Abort: abort, Observe: func(ev stages.Event) {}}.Run(ctx)
		}()
		time.Sleep(10 * time.Second)
		hang.Store(true)
		e.Add("cuelight_test_one")
		time.Sleep(time.Second)
		t0 := time.Now()
		cancel()
		close(abort)
		err := <-done
		ended = time.Now()
		if ended.Sub(t0) > 20*time.Second {
			t.Errorf("it ended after %s with %v", ended.Sub(t0), err)
		}
	})
}

type hanging struct {
	*fake
	hang *atomic.Bool
}

func (h *hanging) stuck(ctx context.Context) error {
	if h.hang.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}
func (h *hanging) Exchange(ctx context.Context, in engine.ExchangeRequest) (engine.ExchangeResult, error) {
	if err := h.stuck(ctx); err != nil {
		return engine.ExchangeResult{}, err
	}
	return h.fake.Exchange(ctx, in)
}
func (h *hanging) FindHeldClaims(ctx context.Context, w store.ID) ([]engine.Claim, error) {
	return nil, h.stuck(ctx)
}
func (h *hanging) Heartbeat(ctx context.Context, b engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
	if err := h.stuck(ctx); err != nil {
		return engine.HeartbeatResult{}, err
	}
	return engine.HeartbeatResult{Now: time.Now()}, nil
}
func (h *hanging) DeregisterWorker(ctx context.Context, w store.ID) error { return h.stuck(ctx) }

func TestShortLeaseGivesOthersTheirGraceAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var at time.Duration
		f := &fake{beat: func(b engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
			s := time.Since(start)
			if s > 60*time.Second && s < 80*time.Second {
				return engine.HeartbeatResult{}, syscall.ECONNREFUSED
			}
			if s > 80*time.Second && b.Credit != nil && b.Credit.Grace == 0 && at == 0 {
				at = s - 80*time.Second
			}
			return engine.HeartbeatResult{Now: time.Now()}, nil
		}}
		_, stop := run(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) {
			r.Wakes, r.SweepInterval, r.Lease = newEar(), time.Hour, 5*time.Second
		})
		time.Sleep(2 * time.Minute)
		stop()
		if at < 5*time.Second {
			t.Errorf("%s after an outage, workers with the default lease are judged as if it had not been", at)
		}
	})
}

func TestLockedRowOfADeadWorkerStopsNobody(t *testing.T) {
	t.Parallel()
	b := setup(t, stages.Stage{Name: "one", Workers: 1, Work: noop})
	dead, err := b.backend.RegisterWorker(t.Context(), store.Worker{Host: "x", PID: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.pool.Exec(t.Context(), "update workers set heartbeat_at = now() - interval '1 h' where id = $1", dead); err != nil {
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
	// Long enough for it to be found gone.
	for late := time.Now().Add(8 * time.Second); time.Now().Before(late); {
		t0 := time.Now()
		b.submit()
		r.wait(t, stages.StageCompleted)
		if took := time.Since(t0); took > 5*time.Second {
			t.Fatalf("a task took %s", took)
		}
	}
}

func TestWorkerThatIsUnknownStopsItsWorkAndRegistersAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := make(chan error, 1)
		registered := 0
		f := &fake{turn: claimed(oneClaim()), register: func(store.Worker) { registered++ }}
		var unknown atomic.Bool
		f.beat = func(engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
			if unknown.Swap(false) {
				return engine.HeartbeatResult{}, store.ErrWorkerUnknown
			}
			return engine.HeartbeatResult{Now: time.Now()}, nil
		}
		_, stop := run(t, f, pipeline(t, obedient(why), "one"), func(r *stages.Runner) { r.Wakes, r.SweepInterval = newEar(), time.Hour })
		time.Sleep(10 * time.Second)
		unknown.Store(true)
		asked := time.Now()
		if err := <-why; !errors.Is(err, stages.ErrLeaseLost) || time.Since(asked) > 3*time.Second {
			t.Errorf("after %s the work ended for %v", time.Since(asked), err)
		}
		stop()
		if registered != 2 {
			t.Errorf("it registered %d times", registered)
		}
	})
}

func TestWhatOneSweepCouldNotTakeTheNextTakesSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sweeps []time.Time
		f := &fake{sweep: func(engine.SweepRequest) (engine.SweepResult, error) {
			sweeps = append(sweeps, time.Now())
			out := engine.SweepResult{MoreReady: make([]bool, 1), NextDue: never(1), RowsLocked: len(sweeps) == 1}
			if len(sweeps) == 2 {
				return out, &pgconn.PgError{Code: "55P03"}
			}
			return out, nil
		}}
		_, stop := run(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) { r.Wakes = newEar() })
		time.Sleep(5 * time.Second)
		stop()
		if len(sweeps) != 3 || sweeps[2].Sub(sweeps[0]) > time.Second {
			t.Errorf("%d sweeps in five seconds: %v", len(sweeps), sweeps)
		}
	})
}

// checked is an ear that can be doubted.
type checked struct {
	*ear
	checks atomic.Int64
}

func (c *checked) Check() { c.checks.Add(1) }

func TestAfterAnOutageEverythingIsLookedAtAndTheListenerDoubted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &checked{ear: newEar()}
		var down atomic.Bool
		var looks [2]atomic.Int64
		f := &fake{turn: func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
			if down.Load() {
				return engine.ExchangeResult{}, syscall.ECONNREFUSED
			}
			for i, look := range in.ClaimFrom {
				if look {
					looks[i].Add(1)
				}
			}
			return engine.ExchangeResult{}, nil
		}}
		_, stop := run(t, f, pipeline(t, noop, "one", "two"), func(r *stages.Runner) { r.Wakes, r.SweepInterval = w, time.Hour })
		time.Sleep(10 * time.Second)
		down.Store(true)
		w.Add("cuelight_test_one")
		time.Sleep(10 * time.Second)
		if n := w.checks.Load() + looks[1].Load(); n != 0 {
			t.Errorf("%d checks and looks before the outage", n)
		}
		down.Store(false)
		time.Sleep(10 * time.Second)
		stop()
		if w.checks.Load() != 1 || looks[1].Load() != 1 {
			t.Errorf("%d checks, and stage two was looked at %d times, after the outage", w.checks.Load(), looks[1].Load())
		}
	})
}
