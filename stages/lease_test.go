package stages_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// fakeListener is Wakes with a session, and a connection that the test can break.
type fakeListener struct {
	*notify.Wakes
	disconnected, proxied atomic.Bool
}

// newFakeListener returns a listener that was notified of stage one.
func newFakeListener() *fakeListener {
	l := &fakeListener{Wakes: notify.NewWakes()}
	l.Add("cuelight_test_one")
	return l
}

func (l *fakeListener) Connected() bool        { return !l.disconnected.Load() }
func (l *fakeListener) Direct() bool           { return !l.proxied.Load() }
func (l *fakeListener) Session() (int64, bool) { return 7, !l.disconnected.Load() }

func oneClaim() engine.Claim { return engine.Claim{Task: store.ID{7}, Token: store.ID{8}, Attempt: 1} }

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
				return engine.SweepResult{
					MoreReady: make([]bool, 1), NextDue: noneDue(1), ExpiredWorkers: []store.ID{{9}}, ExpiredClaims: 1,
				}, nil
			},
		}
		events, stop := runFake(t, f, pipeline(t, noop, "one"),
			func(r *stages.Runner) { r.Wakes, r.SweepInterval = listener, time.Hour })
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
				check("grace", c.grace, func(credit *engine.OutageCredit) time.Duration { return credit.Grace })
				check("lease", c.lease, func(credit *engine.OutageCredit) time.Duration { return credit.Lease })
			})
		})
	}
}

func TestSweep_ReportsMissedWakes(t *testing.T) {
	for name, c := range map[string]struct {
		woken bool // a notification arrives half a second after the sweep
		want  int
	}{"without a notification": {false, 1}, "with a late notification": {true, 0}} {
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
					return engine.SweepResult{MoreReady: []bool{sweeps == 2}, NextDue: noneDue(1)}, nil
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
		p, err := stages.New("test", stages.Stage{Name: "one", Timeout: time.Minute, Workers: 2,
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

// A worker that starts again on a host expires its predecessor, whose work it gets at once.
func TestRunner_ExpiresItsDeadPredecessorsAtStart(t *testing.T) {
	var self store.Worker
	probe := &fakeBackend{register: func(w store.Worker) { self = w }}
	synctest.Test(t, func(t *testing.T) {
		_, stop := runFake(t, probe, pipeline(t, noop, "one"), nil)
		stop()
	})
	if self.ProcessIdentity == "//" {
		t.Skip("this system does not identify processes")
	}
	boot, namespace, start := self.ProcessIdentity, "", ""
	if parts := strings.Split(self.ProcessIdentity, "/"); len(parts) == 3 {
		boot, namespace, start = parts[0], parts[1], parts[2]
	}
	other := func(id byte, pid int, host, identity string) store.Worker {
		w := self
		w.ID, w.PID, w.Host, w.ProcessIdentity = store.ID{id}, pid, host, identity
		return w
	}
	const unusedPID = 1<<22 + 1 // above any system's limit
	identity := strings.Join([]string{boot, namespace, start}, "/")
	dead := other(2, unusedPID, self.Host, identity)
	reused := other(3, os.Getpid(), self.Host, boot+"/"+namespace+"/"+start+"1")
	alive := other(4, os.Getpid(), self.Host, identity)
	otherHost := other(5, unusedPID, "other-host", identity)
	otherBoot := other(6, unusedPID, self.Host, "x/"+namespace+"/"+start)
	otherNamespace := other(7, unusedPID, self.Host, boot+"/x/"+start)
	unidentified := other(8, unusedPID, self.Host, "")
	want := []store.ID{dead.ID}
	if start != "" {
		want = append(want, reused.ID)
	}
	f := &fakeBackend{workers: []store.Worker{dead, reused, alive, otherHost, otherBoot, otherNamespace, unidentified}}
	synctest.Test(t, func(t *testing.T) {
		_, stop := runFake(t, f, pipeline(t, noop, "one"), nil)
		time.Sleep(time.Minute)
		stop()
	})
	if !slices.Equal(f.expiredWorkers, want) {
		t.Errorf("expired workers are %v, want the dead one, and the one whose pid was reused: %v", f.expiredWorkers, want)
	}
	if f.workerQueries != 1 {
		t.Errorf("the Runner queried the workers %d times, want once", f.workerQueries)
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
