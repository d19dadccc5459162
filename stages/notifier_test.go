package stages_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

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
