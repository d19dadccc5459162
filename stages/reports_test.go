package stages_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cuelight/cuelight/internal/waittest"
	"github.com/cuelight/cuelight/notify"
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
	r.wait(t, stages.DatabaseUnavailable)
	exec(`alter table test_tasks_renamed rename to test_tasks`)
	r.wait(t, stages.DatabaseAvailable)
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

func TestReport_ForALockedRowDelaysNoOtherTask(t *testing.T) {
	t.Parallel()
	first, finish := make(chan struct{}), make(chan struct{})
	var ran atomic.Int64
	b := setup(t, stages.Stage{Name: "one", Slots: 2, Work: func(context.Context, *stages.Job) (any, error) {
		if ran.Add(1) == 1 {
			close(first)
			<-finish
		}
		return nil, nil
	}})
	id := b.submit()
	r := b.start(nil)
	<-first
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "update test_tasks set priority = 1 where id = $1", id); err != nil {
		t.Fatal(err)
	}
	close(finish)
	others := b.start(func(r *stages.Runner) { r.Wakes = b.listening() })
	for range 20 {
		b.submit()
	}
	for range 20 {
		others.wait(t, stages.StageCompleted)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e := r.wait(t, stages.StageCompleted); e.Task != id {
		t.Errorf("task %s was completed", e.Task)
	}
}

func TestReports_AreSentSoonAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := notify.NewWakes()
		p := pipeline(t, noop, "one")
		start := time.Now()
		var reportedAfter time.Duration
		first := grantOnce(engine.Claim{Task: store.ID{7}, Token: store.ID{8}, Attempt: 1})
		f := &fakeBackend{}
		f.exchange = func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
			if len(in.Reports) == 0 {
				return first(in)
			}
			if time.Since(start) < time.Minute {
				return engine.ExchangeResult{}, errors.New("connection refused")
			}
			reportedAfter = time.Since(start)
			return engine.ExchangeResult{}, nil
		}
		_, stop := runFake(t, f, p, func(r *stages.Runner) { r.Wakes, r.SweepInterval = w, time.Hour })
		w.Add(p.Graph().Channel("one"))
		time.Sleep(2 * time.Minute)
		stop()
		if reportedAfter < time.Minute || reportedAfter > 70*time.Second {
			t.Errorf("the outcome was reported after %s; the database was back after a minute", reportedAfter)
		}
	})
}

func TestEvent_OfACompletedStageHasTheTimeUntilItWasRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		grant := grantOnce(oneClaim())
		f := &fakeBackend{exchange: func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
			if len(in.Reports) > 0 {
				time.Sleep(3 * time.Second) // the files are checked
			}
			return grant(in)
		}}
		work := func(context.Context, *stages.Job) (any, error) { time.Sleep(time.Minute); return nil, nil }
		completed := make(chan stages.Event, 1)
		_, stop := runFake(t, f, pipeline(t, work, "one"), func(r *stages.Runner) {
			r.Observe = func(e stages.Event) {
				if e.Kind == stages.StageCompleted {
					completed <- e
				}
			}
		})
		e := <-completed
		stop()
		if e.Duration != time.Minute || e.Reporting < 3*time.Second || e.Reporting > 4*time.Second {
			t.Errorf("the work took %v, and its report %v", e.Duration, e.Reporting)
		}
	})
}
