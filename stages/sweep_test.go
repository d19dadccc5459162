package stages_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func TestSweep_RunsAtOnceForAnExpiredWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener, expired := newFakeListener(), atomic.Bool{}
		var sweeps []engine.SweepRequest
		f := &fakeBackend{
			heartbeat: func(engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
				return engine.HeartbeatResult{Now: time.Now(), WorkerExpired: expired.Swap(false)}, nil
			},
			sweep: func(in engine.SweepRequest) (engine.SweepResult, error) {
				sweeps = append(sweeps, in)
				out := nothingSwept(1)
				out.ExpiredWorkers, out.ExpiredClaims = []store.ID{{9}}, 1
				return out, nil
			},
		}
		events, stop := runFake(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) {
			r.Wakes, r.SweepInterval = listener, time.Hour
			observe := r.Observe
			r.Observe = func(e stages.Event) {
				if e.Predecessor {
					t.Errorf("%v is no earlier process of this one", e.LostWorker)
				}
				observe(e)
			}
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		events()
		before := len(sweeps)
		expired.Store(true)
		time.Sleep(3 * time.Second)
		kinds := events()
		stop()
		if before != 1 || len(sweeps) != 2 || len(kinds) != 2 || kinds[0] != stages.WorkerLost ||
			kinds[1] != stages.AttemptsExpired {
			t.Fatalf("%d sweeps before the expiry, %d in all, observed %v", before, len(sweeps), kinds)
		}
		second := sweeps[1]
		clockError := time.Since(second.ExpectedClock)
		if second.Credit == nil || *second.Credit != (engine.OutageCredit{}) || clockError > 4*time.Second {
			t.Errorf("the sweep's credit is %+v, and its clock is wrong by %s", second.Credit, clockError)
		}
	})
}

func TestSweep_ReportsMissedWakes(t *testing.T) {
	for name, c := range map[string]struct {
		woken bool     // a notification arrives half a second after the sweep
		found store.ID // the step that the sweep finds; oneClaim is the one that is claimed
		want  int
	}{
		"without a notification":           {false, oneClaim().Task, 1},
		"with a late notification":         {true, oneClaim().Task, 0},
		"of a step that was claimed since": {false, store.ID{1}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := &fakeListener{Wakes: notify.NewWakes()}
				p := pipeline(t, noop, "one")
				sweeps := 0
				f := &fakeBackend{exchange: grantOnce(oneClaim())}
				f.sweep = func(engine.SweepRequest) (engine.SweepResult, error) {
					sweeps++
					if c.woken && sweeps == 2 {
						time.AfterFunc(500*time.Millisecond, func() { listener.Add(p.Graph().Channel("one")) })
					}
					out := foundReady(sweeps == 2)
					if out.First[0] != nil {
						out.First[0].Task = c.found
					}
					return out, nil
				}
				events, stop := runFake(t, f, p, func(r *stages.Runner) { r.Wakes = listener })
				time.Sleep(time.Minute)
				missed, completed := 0, 0
				for _, k := range events() {
					switch k {
					case stages.WakeMissed:
						missed++
					case stages.StageCompleted:
						completed++
					}
				}
				stop()
				if missed != c.want || completed != 1 {
					t.Errorf("%d missed and %d completed", missed, completed)
				}
			})
		})
	}
}

// A ready task that the sweep finds before the listener's first connection is no missed wake.
func TestSweep_ReportsNoMissedWakeBeforeTheListenerConnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := &fakeListener{Wakes: notify.NewWakes()}
		listener.disconnected.Store(true)
		time.AfterFunc(500*time.Millisecond, func() {
			listener.disconnected.Store(false)
			listener.Add("cuelight_test_one")
		})
		f := &fakeBackend{exchange: grantOnce(oneClaim())}
		events, stop := runFake(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) { r.Wakes = listener })
		time.Sleep(10 * time.Second)
		kinds := events()
		stop()
		if !slices.Contains(kinds, stages.StageCompleted) || slices.Contains(kinds, stages.WakeMissed) {
			t.Errorf("observed %v", kinds)
		}
	})
}

func TestSweep_LockedRowOfALostWorkerDelaysNoTask(t *testing.T) {
	t.Parallel()
	b := setup(t, stages.Stage{Name: "one", Slots: 1, Work: noop})
	dead, _, err := b.backend.RegisterWorker(t.Context(), store.Worker{Host: "x", PID: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.pool.Exec(t.Context(), "update test_workers set heartbeat_at = now() - interval '1 h' where id = $1", dead)
	if err != nil {
		t.Fatal(err)
	}
	r := b.start(func(r *stages.Runner) { r.Wakes, r.Lease = b.listening(), 5*time.Second })
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), "select from test_workers where id = $1 for no key update", dead); err != nil {
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

func TestSweep_RunsAgainSoonAfterLockedRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sweeps []time.Time
		f := &fakeBackend{sweep: func(engine.SweepRequest) (engine.SweepResult, error) {
			sweeps = append(sweeps, time.Now())
			out := nothingSwept(1)
			out.RowsLocked = len(sweeps) == 1
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

func TestSweep_AdaptsToWhatItFinds(t *testing.T) {
	const base = 15 * time.Second
	for name, c := range map[string]struct {
		listening     bool
		ageAfter      time.Duration
		early, late   time.Duration // between two sweeps in the first minutes, and after an hour
		missed, after time.Duration // soon after a miss, and ten minutes later
	}{
		"with notifications":    {true, 0, base, 4 * base, base / 4, 2 * base},
		"without notifications": {false, 0, base, base, base / 4, base},
		"with ageing":           {true, time.Hour, base, base, base / 4, base},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := newFakeListener()
				listener.disconnected.Store(!c.listening)
				var sweeps atomic.Int32
				var missed atomic.Bool
				f := &fakeBackend{
					sweep: func(engine.SweepRequest) (engine.SweepResult, error) {
						sweeps.Add(1)
						return foundReady(missed.Load()), nil
					},
					exchange: func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
						if !in.ClaimFrom[0] || !missed.Swap(false) {
							return engine.ExchangeResult{}, nil
						}
						return engine.ExchangeResult{Claims: []engine.Claim{oneClaim()}, Claimed: []int{1}}, nil
					},
				}
				_, stop := runFake(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) {
					r.Wakes, r.AgeAfter, r.SweepInterval = listener, c.ageAfter, base
				})
				// want checks the mean time between two sweeps in the next minutes.
				want := func(when string, minutes int, interval time.Duration) {
					t.Helper()
					sweeps.Store(0)
					time.Sleep(time.Duration(minutes) * time.Minute)
					synctest.Wait()
					mean := time.Duration(minutes) * time.Minute / time.Duration(max(sweeps.Load(), 1))
					if mean < interval*7/10 || mean > interval*14/10 {
						t.Errorf("%s there is a sweep every %s, want %s", when, mean, interval)
					}
				}
				want("at first", 4, c.early)
				time.Sleep(time.Hour)
				want("after an hour", 10, c.late)
				missed.Store(true)
				for missed.Load() {
					time.Sleep(time.Second)
				}
				want("after a miss", 1, c.missed)
				time.Sleep(8 * time.Minute)
				want("ten minutes later", 4, c.after)
				stop()
			})
		})
	}
}

// While a transaction elsewhere holds a snapshot, a thorough sweep takes longer and longer. It must not take the time of the database.
func TestSweep_IsThoroughForATwentiethOfTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quick, thorough := 0, 0
		f := &fakeBackend{sweep: func(in engine.SweepRequest) (engine.SweepResult, error) {
			if in.IsQuick {
				quick++
			} else {
				thorough++
				time.Sleep(10 * time.Second)
			}
			return nothingSwept(1), nil
		}}
		_, stop := runFake(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) { r.Observe = func(stages.Event) {} })
		time.Sleep(20 * time.Minute)
		stop()
		if thorough < 4 || thorough > 7 || quick < thorough {
			t.Errorf("in 20 minutes there were %d thorough sweeps of 10 s and %d quick ones", thorough, quick)
		}
	})
}

// A quick sweep does not find the claims of a worker that a sweep before has expired and could not end.
func TestSweep_IsThoroughAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var afterFailure []bool
		quick := 0
		f := &fakeBackend{sweep: func(in engine.SweepRequest) (engine.SweepResult, error) {
			time.Sleep(time.Second)
			if quick >= 3 {
				afterFailure = append(afterFailure, in.IsQuick)
			} else if in.IsQuick {
				if quick++; quick == 3 {
					return engine.SweepResult{}, errors.New("connection reset by peer")
				}
			}
			return nothingSwept(1), nil
		}}
		_, stop := runFake(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) { r.Observe = func(stages.Event) {} })
		time.Sleep(10 * time.Minute)
		stop()
		if len(afterFailure) == 0 || afterFailure[0] {
			t.Errorf("after the third quick sweep, which failed, they were quick as in %v; want a thorough one first", afterFailure)
		}
	})
}
