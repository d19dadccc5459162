package stages_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

func TestPruneEvents_RunsPeriodically(t *testing.T) {
	week := 7 * 24 * time.Hour
	for name, c := range map[string]struct {
		keep, want time.Duration
	}{"by default": {0, week}, "for an hour": {time.Hour, time.Hour}, "without a limit": {-1, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var at []time.Time
				f := &fakeBackend{pruneEvents: func(keep time.Duration) (bool, error) {
					if keep != c.want {
						t.Errorf("events are kept for %s, want %s", keep, c.want)
					}
					at = append(at, time.Now())
					return len(at) == 2, nil // the second call leaves more events
				}}
				_, stop := runFake(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) { r.KeepEvents = c.keep })
				time.Sleep(10 * time.Minute)
				stop()
				switch n := len(at); {
				case c.want == 0 && n != 0:
					t.Errorf("PruneEvents was called %d times, want none", n)
				case c.want != 0 && (n < 8 || n > 14):
					t.Errorf("PruneEvents was called %d times in ten minutes", n)
				case c.want != 0 && at[2].Sub(at[1]) > 2*time.Second:
					t.Errorf("the call after one that left more events came after %s", at[2].Sub(at[1]))
				}
			})
		})
	}
}

func TestPruneEvents_ReportsARepeatedErrorOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		unreachable, calls := errors.New("connection refused"), 0
		f := &fakeBackend{pruneEvents: func(time.Duration) (bool, error) {
			if calls++; calls == 4 || calls > 7 {
				return false, nil
			}
			return false, unreachable
		}}
		var reported []error
		_, stop := runFake(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) {
			r.Observe = func(e stages.Event) {
				if e.Kind == stages.PruneFailed {
					reported = append(reported, e.Err)
				}
			}
		})
		time.Sleep(20 * time.Minute)
		stop()
		if !slices.Equal(reported, []error{unreachable, unreachable}) || calls < 10 {
			t.Errorf("after %d calls, reported %v; want one error for each of two outages", calls, reported)
		}
	})
}

func TestNotifyEvents_RunsAfterDeregistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeBackend{}
		_, stop := runFake(t, f, pipeline(t, noop, "one"), nil)
		time.Sleep(time.Second)
		synctest.Wait()
		if f.notifications == 0 {
			t.Error("NotifyEvents was not called after the start")
		}
		stop()
		if !f.deregistered || f.notifications != 1 {
			t.Errorf("deregistered: %t; NotifyEvents was called %d times after it, want once", f.deregistered, f.notifications)
		}
	})
}

func TestPause_ReleasesPrefetchedClaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var claims []engine.Claim
		for i := range byte(3) { // one more than there are slots
			claims = append(claims, engine.Claim{Task: store.ID{i, 1}, Token: store.ID{i, 2}, Attempt: 1})
		}
		grant, heartbeat, heartbeats := grantOnce(claims...), make(chan struct{}), 0
		f := &fakeBackend{
			exchange: func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
				<-heartbeat
				return grant(in)
			},
			heartbeat: func(engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
				if heartbeats++; heartbeats == 2 {
					close(heartbeat)
					time.Sleep(100 * time.Millisecond) // the claims arrive, and two attempts start
				}
				return engine.HeartbeatResult{Now: time.Now(), Paused: []bool{heartbeats > 1}}, nil
			},
		}
		p := pipeline(t, waitForCancel, "one")
		_, stop := runFake(t, f, p, func(r *stages.Runner) { r.Wakes = newFakeListener() })
		time.Sleep(5 * time.Second)
		var reports []engine.Report
		for _, exchange := range f.requests() {
			reports = append(reports, exchange.Reports...)
		}
		if len(reports) != 1 || reports[0].Outcome != engine.Released || reports[0].Error != "stage is paused" ||
			reports[0].Class != "interrupted" {
			t.Errorf("reports are %+v", reports)
		}
		stop()
	})
}
