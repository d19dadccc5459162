package stages_test

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store/engine"
)

// Work continues without an answer of the database for a time that depends on what other
// workers see of the database and of this worker's session.
func TestLease_StopsWorkBeforeOthersMayClaimIt(t *testing.T) {
	for name, c := range map[string]struct {
		session     bool
		err         error
		least, most time.Duration
		proxied     bool
	}{
		"session held, no answer": {
			true, context.DeadlineExceeded, 30 * time.Second, 35 * time.Second, false,
		},
		"session ended, no answer": {
			false, context.DeadlineExceeded, 6 * time.Second, 7 * time.Second, false,
		},
		"session ended, connection refused": {
			false, syscall.ECONNREFUSED, 30 * time.Second, 35 * time.Second, false,
		},
		"session ended, connection to a proxy refused": {
			false, syscall.ECONNREFUSED, 6 * time.Second, 7 * time.Second, true,
		},
		"session ended, server starting behind a proxy": {
			false, &pgconn.PgError{Code: "57P03"}, 30 * time.Second, 35 * time.Second, true,
		},
		"session ended, backend terminated": {false, &pgconn.PgError{Code: "57P01"}, 6 * time.Second, 7 * time.Second, false},
		"session ended, server starting": {
			false, &pgconn.PgError{Code: "57P03"}, 30 * time.Second, 35 * time.Second, false,
		},
		"session ended, one of two addresses refuses": {
			false, errors.Join(syscall.ECONNREFUSED, context.DeadlineExceeded), 6 * time.Second, 7 * time.Second, false},
		"session ended, both refuse": {
			false, errors.Join(syscall.ECONNREFUSED, syscall.ECONNREFUSED), 30 * time.Second, 35 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener, causes := newFakeListener(), make(chan error, 1)
				p := pipeline(t, workUntilCancelled(causes), "one")
				f := &fakeBackend{exchange: grantOnce(oneClaim())}
				down := atomic.Bool{}
				f.heartbeat = func(engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
					if down.Load() {
						return engine.HeartbeatResult{}, c.err
					}
					return engine.HeartbeatResult{Now: time.Now()}, nil
				}
				_, stop := runFake(t, f, p, func(r *stages.Runner) { r.Wakes, r.SweepInterval = listener, time.Hour })
				time.Sleep(10 * time.Second)
				down.Store(true)
				listener.disconnected.Store(!c.session)
				listener.proxied.Store(c.proxied)
				start := time.Now()
				if err := <-causes; !errors.Is(err, stages.ErrLeaseLost) {
					t.Errorf("cause is %v", err)
				}
				// The last answer came up to three seconds before the database went down, and
				// the worker does not wait for a heartbeat that would come too late.
				if took := time.Since(start); took < c.least-4*time.Second || took > c.most {
					t.Errorf("work was stopped after %s without an answer", took)
				}
				stop()
			})
		})
	}
}

func TestDispatcher_PollsEveryTwoSecondsWithoutNotifications(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listener := newFakeListener()
		listener.disconnected.Store(true)
		f := &fakeBackend{}
		_, stop := runFake(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) { r.Wakes = listener })
		time.Sleep(time.Minute)
		disconnected := len(f.requests())
		listener.disconnected.Store(false)
		time.Sleep(3 * time.Second) // the last poll may be under way
		before := len(f.requests())
		time.Sleep(time.Minute)
		stop()
		if idle := len(f.requests()) - before; disconnected < 15 || disconnected > 40 || idle != 0 {
			t.Errorf("%d exchanges in a minute without a connection, and %d in a minute with one", disconnected, idle)
		}
	})
}

func TestStall_FailsAnAttemptWithoutProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		work := func(ctx context.Context, j *stages.Job) (any, error) {
			for i := range 10 {
				time.Sleep(50 * time.Second)
				j.Progress(stages.Progress{Percent: float64(i), Speed: 1})
			}
			for i := range 10 { // the speed rises, the progress does not
				j.Progress(stages.Progress{Percent: 9, Speed: float64(i)})
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-time.After(20 * time.Second):
				}
			}
			return nil, nil
		}
		p, err := stages.New("test", stages.Stage{Name: "one", Work: work, Stall: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		var reports []engine.Report
		first := grantOnce(oneClaim())
		f := &fakeBackend{exchange: func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
			reports = append(reports, in.Reports...)
			return first(in)
		}}
		_, stop := runFake(t, f, p, func(r *stages.Runner) { r.Wakes, r.SweepInterval = newFakeListener(), time.Hour })
		time.Sleep(time.Hour)
		stop()
		if len(reports) != 1 || reports[0].Outcome != engine.Failed || reports[0].Class != "stalled" || reports[0].Dead {
			t.Errorf("reports are %+v", reports)
		}
	})
}

// Work that does not return keeps its slot in use, and nothing else: its attempt is
// reported, so that another worker can claim the stage.
func TestTimeout_ReportsWorkThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p, err := stages.New("test", stages.Stage{Name: "one", Timeout: time.Minute, Slots: 2,
			Work: func(context.Context, *stages.Job) (any, error) { <-release; return "late", nil }})
		if err != nil {
			t.Fatal(err)
		}
		var reports []engine.Report
		free := 0
		first := grantOnce(oneClaim())
		f := &fakeBackend{exchange: func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
			reports, free = append(reports, in.Reports...), in.FreeSlots[0]
			return first(in)
		}}
		listener := newFakeListener()
		_, stop := runFake(t, f, p, func(r *stages.Runner) { r.Wakes, r.SweepInterval = listener, time.Hour })
		time.Sleep(90 * time.Second)
		synctest.Wait()
		if len(reports) != 1 || reports[0].Class != "timeout" || free != 1 {
			t.Errorf("%d slots are free, reports are %+v", free, reports)
		}
		close(release)
		time.Sleep(time.Second)
		listener.Add(p.Graph().Channel("one"))
		time.Sleep(time.Second)
		synctest.Wait()
		if len(reports) != 1 || free != 2 {
			t.Errorf("after the work returned, %d slots are free, reports are %+v", free, reports)
		}
		stop()
	})
}

func TestDrain_ReleasesWorkThatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		p := pipeline(t, func(context.Context, *stages.Job) (any, error) { <-release; return nil, nil }, "one")
		var reports []engine.Report
		first := grantOnce(oneClaim())
		f := &fakeBackend{graph: p.Graph(), exchange: func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
			reports = append(reports, in.Reports...)
			return first(in)
		}}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		started := time.Now()
		err := stages.Runner{Backend: f, Pipeline: p, Wakes: newFakeListener(), Grace: 10 * time.Second}.Run(ctx)
		took := time.Since(started) - time.Minute
		if !errors.Is(err, stages.ErrIgnoredCancel) || took < 20*time.Second || took > 40*time.Second || !f.deregistered {
			t.Errorf("Run returned %v after %s", err, took)
		}
		if len(reports) != 1 || reports[0].Outcome != engine.Released {
			t.Errorf("reports are %+v", reports)
		}
	})
}
