package stages_test

import (
	"context"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store/engine"
)

// A worker does not count its own outage against others. It lets no worker expire after
// the database's clock changed, or when it has just started.
func TestOutageCredit_ExtendsTheLeasesOfOthers(t *testing.T) {
	const hour = time.Hour
	for name, c := range map[string]struct {
		disturb    func(*engine.HeartbeatResult) error
		from, last time.Duration // when disturb is called, and for how long
		// The credit by the time since the start; -1 where no worker may expire.
		grace, lease map[time.Duration]time.Duration
	}{
		"just started": {nil, hour, 0,
			map[time.Duration]time.Duration{3 * time.Second: -1, 10 * time.Second: 0},
			map[time.Duration]time.Duration{10 * time.Second: -1, 45 * time.Second: 0}},
		"an outage of 20 s": {
			func(*engine.HeartbeatResult) error { return context.DeadlineExceeded }, 60 * time.Second, 20 * time.Second,
			map[time.Duration]time.Duration{55 * time.Second: 0, 84 * time.Second: 20 * time.Second, 115 * time.Second: 0},
			map[time.Duration]time.Duration{55 * time.Second: 0, 84 * time.Second: 20 * time.Second, 145 * time.Second: 0},
		},
		"clock an hour ahead": {
			func(out *engine.HeartbeatResult) error { out.Now = out.Now.Add(hour); return nil }, 60 * time.Second, hour,
			map[time.Duration]time.Duration{55 * time.Second: 0, 65 * time.Second: -1, 72 * time.Second: 0},
			map[time.Duration]time.Duration{72 * time.Second: -1, 105 * time.Second: 0},
		},
		"clock an hour back": {
			func(out *engine.HeartbeatResult) error { out.Now = out.Now.Add(-hour); return nil }, 60 * time.Second, hour,
			map[time.Duration]time.Duration{55 * time.Second: 0, 65 * time.Second: -1, 72 * time.Second: 0},
			map[time.Duration]time.Duration{72 * time.Second: -1, 105 * time.Second: 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				credits := map[time.Duration]*engine.OutageCredit{} // by second
				f := &fakeBackend{heartbeat: func(in engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
					at := time.Since(start)
					credits[at.Truncate(time.Second)] = in.Credit
					out := engine.HeartbeatResult{Now: time.Now()}
					if at >= c.from && at < c.from+c.last {
						err := c.disturb(&out)
						return out, err
					}
					return out, nil
				}}
				_, stop := runFake(t, f, pipeline(t, noop, "one"),
					func(r *stages.Runner) { r.Wakes, r.SweepInterval = newFakeListener(), hour })
				time.Sleep(150 * time.Second)
				stop()
				creditAt := func(at time.Duration) *engine.OutageCredit {
					for d := range 3 {
						if credit, ok := credits[at+time.Duration(d)*time.Second]; ok {
							return credit
						}
					}
					t.Fatalf("no heartbeat about %s", at)
					return nil
				}
				check := func(what string, want map[time.Duration]time.Duration, of func(*engine.OutageCredit) time.Duration) {
					t.Helper()
					for at, want := range want {
						got := time.Duration(-1)
						if credit := creditAt(at); credit != nil && of(credit) < 10*hour {
							got = of(credit)
						}
						// An outage lasts from the last answer before it to the first one after it.
						if (want < 0) != (got < 0) || want >= 0 && (got < want || got > want+5*time.Second) {
							t.Errorf("%s at %s is %s, want %s", what, at, got, want)
						}
					}
				}
				check("grace", c.grace, func(credit *engine.OutageCredit) time.Duration { return credit.DisconnectGrace })
				check("lease", c.lease, func(credit *engine.OutageCredit) time.Duration { return credit.Lease })
			})
		})
	}
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
			if now > 80*time.Second && in.Credit != nil && in.Credit.DisconnectGrace == 0 && at == 0 {
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
