package stages_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

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

func TestHeartbeat_IsRareWithALongLease(t *testing.T) {
	for name, c := range map[string]struct {
		lease     time.Duration
		listening bool
		min, max  int // heartbeats in ten minutes
	}{
		"default": {0, true, 290, 380}, "short": {9 * time.Second, true, 1100, 1500}, "two minutes": {2 * time.Minute, true, 290, 380},
		"an hour": {time.Hour, true, 9, 12}, "an hour, without notifications": {time.Hour, false, 290, 700},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var heartbeats atomic.Int32
				f := &fakeBackend{heartbeat: func(engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
					heartbeats.Add(1)
					return engine.HeartbeatResult{Now: time.Now()}, nil
				}}
				listener := newFakeListener()
				_, stop := runFake(t, f, pipeline(t, noop, "one"),
					func(r *stages.Runner) { r.Wakes, r.SweepInterval, r.Lease = listener, time.Hour, c.lease })
				time.Sleep(time.Minute)
				listener.disconnected.Store(!c.listening)
				time.Sleep(time.Minute)
				heartbeats.Store(0)
				time.Sleep(10 * time.Minute)
				if n := int(heartbeats.Load()); n < c.min || n > c.max {
					t.Errorf("%d heartbeats in ten minutes, want %d to %d", n, c.min, c.max)
				}
				stop()
			})
		})
	}
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

// While the server's notification queue is nearly full, triggers do not notify.
func TestHeartbeat_MakesTheDispatcherAskWhileTheNotificationQueueIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full atomic.Bool
		f := &fakeBackend{heartbeat: func(engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
			return engine.HeartbeatResult{Now: time.Now(), QueueFull: full.Load()}, nil
		}}
		_, stop := runFake(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) {
			r.Wakes, r.SweepInterval = &fakeListener{Wakes: notify.NewWakes()}, time.Hour
		})
		time.Sleep(20 * time.Second)
		before := len(f.requests())
		full.Store(true)
		time.Sleep(20 * time.Second)
		during := len(f.requests()) - before
		full.Store(false)
		time.Sleep(4 * time.Second) // until it knows
		ended := len(f.requests())
		time.Sleep(20 * time.Second)
		after := len(f.requests()) - ended
		stop()
		if before != 0 || during < 7 || during > 13 || after != 0 {
			t.Errorf("%d exchanges before, %d in 20 s with a full queue, %d after", before, during, after)
		}
	})
}
