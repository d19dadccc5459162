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

// ear is Wakes with a session and a connection that may be lost.
type ear struct {
	*notify.Wakes
	deaf, proxied atomic.Bool
}

// newEar has heard of stage one already.
func newEar() *ear {
	e := &ear{Wakes: notify.NewWakes()}
	e.Add("cuelight_test_one")
	return e
}

func (e *ear) Connected() bool        { return !e.deaf.Load() }
func (e *ear) Direct() bool           { return !e.proxied.Load() }
func (e *ear) Session() (int64, bool) { return 7, !e.deaf.Load() }
func oneClaim() engine.Claim          { return engine.Claim{Task: store.ID{7}, Token: store.ID{8}, Attempt: 1} }
func obedient(why chan<- error) stages.Work {
	return func(ctx context.Context, _ *stages.Job) (any, error) {
		<-ctx.Done()
		why <- context.Cause(ctx)
		return nil, ctx.Err()
	}
}

// How long work goes on while the database does not answer depends on what the
// others see meanwhile.
func TestProcessStopsItsWorkBeforeOthersMayTakeIt(t *testing.T) {
	for name, c := range map[string]struct {
		session     bool
		err         error
		least, most time.Duration
		proxied     bool
	}{
		"session held, no answer":                       {true, context.DeadlineExceeded, 30 * time.Second, 35 * time.Second, false},
		"session ended, no answer":                      {false, context.DeadlineExceeded, 6 * time.Second, 7 * time.Second, false},
		"session ended, nobody listens":                 {false, syscall.ECONNREFUSED, 30 * time.Second, 35 * time.Second, false},
		"session ended, nobody listens at a proxy":      {false, syscall.ECONNREFUSED, 6 * time.Second, 7 * time.Second, true},
		"session ended, server starting behind a proxy": {false, &pgconn.PgError{Code: "57P03"}, 30 * time.Second, 35 * time.Second, true},
		"session ended, somebody ended our backend":     {false, &pgconn.PgError{Code: "57P01"}, 6 * time.Second, 7 * time.Second, false},
		"session ended, server starting":                {false, &pgconn.PgError{Code: "57P03"}, 30 * time.Second, 35 * time.Second, false},
		"session ended, one of two addresses refuses": {
			false, errors.Join(syscall.ECONNREFUSED, context.DeadlineExceeded), 6 * time.Second, 7 * time.Second, false},
		"session ended, both refuse": {
			false, errors.Join(syscall.ECONNREFUSED, syscall.ECONNREFUSED), 30 * time.Second, 35 * time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, why := newEar(), make(chan error, 1)
				p := pipeline(t, obedient(why), "one")
				f := &fake{turn: claimed(oneClaim())}
				down := atomic.Bool{}
				f.beat = func(engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
					if down.Load() {
						return engine.HeartbeatResult{}, c.err
					}
					return engine.HeartbeatResult{Now: time.Now()}, nil
				}
				_, stop := run(t, f, p, func(r *stages.Runner) { r.Wakes, r.SweepInterval = e, time.Hour })
				time.Sleep(10 * time.Second)
				down.Store(true)
				e.deaf.Store(!c.session)
				e.proxied.Store(c.proxied)
				start := time.Now()
				if err := <-why; !errors.Is(err, stages.ErrLeaseLost) {
					t.Errorf("cause is %v", err)
				}
				// The last answer came up to three seconds before the first silence,
				// and nobody waits for a beat that would come too late.
				if took := time.Since(start); took < c.least-4*time.Second || took > c.most {
					t.Errorf("work was stopped after %s of silence", took)
				}
				stop()
			})
		})
	}
}

func TestWorkerThatWentAwayIsSweptForAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, gone := newEar(), atomic.Bool{}
		var swept []engine.SweepRequest
		f := &fake{
			beat: func(b engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
				return engine.HeartbeatResult{Now: time.Now(), WorkerExpired: gone.Swap(false)}, nil
			},
			sweep: func(s engine.SweepRequest) (engine.SweepResult, error) {
				swept = append(swept, s)
				return engine.SweepResult{MoreReady: make([]bool, 1), NextDue: never(1), ExpiredWorkers: []store.ID{{9}}, ExpiredClaims: 1}, nil
			},
		}
		events, stop := run(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) { r.Wakes, r.SweepInterval = e, time.Hour })
		time.Sleep(time.Minute)
		synctest.Wait()
		events()
		before := len(swept)
		gone.Store(true)
		time.Sleep(3 * time.Second)
		kinds := events()
		stop()
		if before != 1 || len(swept) != 2 || len(kinds) != 2 || kinds[0] != stages.WorkerLost || kinds[1] != stages.AttemptsExpired {
			t.Fatalf("%d sweeps before, %d after, told %v", before, len(swept), kinds)
		}
		s := swept[1]
		if off := time.Since(s.ExpectedClock); s.Credit == nil || *s.Credit != (engine.OutageCredit{}) || off > 4*time.Second {
			t.Errorf("the sweep judges by %+v, and a clock that is %s off", s.Credit, off)
		}
	})
}

// Whoever was away himself does not hold that time against the others; and
// nobody is judged by a clock that was changed, or by somebody who just came.
func TestOthersAreJudgedByTheTimeTheyCouldHaveBeatenIn(t *testing.T) {
	const hour = time.Hour
	for name, c := range map[string]struct {
		spoil      func(*engine.HeartbeatResult) error
		when, long time.Duration // the spoilt time
		// by how long after the start, what is allowed; -1 for judging nobody
		grace, lease map[time.Duration]time.Duration
	}{
		"just came": {nil, hour, 0,
			map[time.Duration]time.Duration{3 * time.Second: -1, 10 * time.Second: 0},
			map[time.Duration]time.Duration{10 * time.Second: -1, 45 * time.Second: 0}},
		"an outage of 20 s": {func(*engine.HeartbeatResult) error { return context.DeadlineExceeded }, 60 * time.Second, 20 * time.Second,
			map[time.Duration]time.Duration{55 * time.Second: 0, 84 * time.Second: 20 * time.Second, 115 * time.Second: 0},
			map[time.Duration]time.Duration{55 * time.Second: 0, 84 * time.Second: 20 * time.Second, 145 * time.Second: 0}},
		"clock an hour ahead": {func(b *engine.HeartbeatResult) error { b.Now = b.Now.Add(hour); return nil }, 60 * time.Second, hour,
			map[time.Duration]time.Duration{55 * time.Second: 0, 65 * time.Second: -1, 72 * time.Second: 0},
			map[time.Duration]time.Duration{72 * time.Second: -1, 105 * time.Second: 0}},
		"clock an hour back": {func(b *engine.HeartbeatResult) error { b.Now = b.Now.Add(-hour); return nil }, 60 * time.Second, hour,
			map[time.Duration]time.Duration{55 * time.Second: 0, 65 * time.Second: -1, 72 * time.Second: 0},
			map[time.Duration]time.Duration{72 * time.Second: -1, 105 * time.Second: 0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				heard := map[time.Duration]*engine.OutageCredit{} // by second
				f := &fake{beat: func(b engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
					at := time.Since(start)
					heard[at.Truncate(time.Second)] = b.Credit
					out := engine.HeartbeatResult{Now: time.Now()}
					if at >= c.when && at < c.when+c.long {
						err := c.spoil(&out)
						return out, err
					}
					return out, nil
				}}
				_, stop := run(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) { r.Wakes, r.SweepInterval = newEar(), hour })
				time.Sleep(150 * time.Second)
				stop()
				near := func(at time.Duration) *engine.OutageCredit {
					for d := range 3 {
						if a, ok := heard[at+time.Duration(d)*time.Second]; ok {
							return a
						}
					}
					t.Fatalf("no beat about %s", at)
					return nil
				}
				check := func(what string, want map[time.Duration]time.Duration, of func(*engine.OutageCredit) time.Duration) {
					t.Helper()
					for at, want := range want {
						got := time.Duration(-1)
						if a := near(at); a != nil && of(a) < 10*hour {
							got = of(a)
						}
						// An outage is seen from the last answer before to the first one after.
						if (want < 0) != (got < 0) || want >= 0 && (got < want || got > want+5*time.Second) {
							t.Errorf("%s at %s is %s, want %s", what, at, got, want)
						}
					}
				}
				check("grace", c.grace, func(a *engine.OutageCredit) time.Duration { return a.Grace })
				check("lease", c.lease, func(a *engine.OutageCredit) time.Duration { return a.Lease })
			})
		})
	}
}

func TestWhatOnlyTheSweepFoundIsCounted(t *testing.T) {
	for name, c := range map[string]struct {
		woken bool // news comes half a second after the sweep
		want  int
	}{"no news": {false, 1}, "news that was on its way": {true, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := &ear{Wakes: notify.NewWakes()}
				p := pipeline(t, noop, "one")
				sweeps := 0
				f := &fake{turn: claimed(oneClaim())}
				f.sweep = func(engine.SweepRequest) (engine.SweepResult, error) {
					sweeps++
					if c.woken && sweeps == 2 {
						time.AfterFunc(500*time.Millisecond, func() { e.Add(p.Graph().Channel("one")) })
					}
					return engine.SweepResult{MoreReady: []bool{sweeps == 2}, NextDue: never(1)}, nil
				}
				events, stop := run(t, f, p, func(r *stages.Runner) { r.Wakes = e })
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

func TestProcessWithoutNewsLooksEveryTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEar()
		e.deaf.Store(true)
		f := &fake{}
		_, stop := run(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) { r.Wakes = e })
		time.Sleep(time.Minute)
		deaf := len(f.seen())
		e.deaf.Store(false)
		time.Sleep(3 * time.Second) // the last look may have been asked for already
		back := len(f.seen())
		time.Sleep(time.Minute)
		stop()
		if idle := len(f.seen()) - back; deaf < 15 || deaf > 40 || idle != 0 {
			t.Errorf("%d looks in a minute without news, and %d in one with", deaf, idle)
		}
	})
}

func TestStalledAttemptFailsAndOneThatMovesDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEar()
		work := func(ctx context.Context, j *stages.Job) (any, error) {
			for i := range 10 {
				time.Sleep(50 * time.Second)
				j.Progress(stages.Progress{Percent: float64(i), Speed: 1})
			}
			for i := range 10 { // faster and faster, and yet nowhere
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
		first := claimed(oneClaim())
		f := &fake{turn: func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
			reports = append(reports, in.Reports...)
			return first(in)
		}}
		_, stop := run(t, f, p, func(r *stages.Runner) { r.Wakes, r.SweepInterval = e, time.Hour })
		time.Sleep(time.Hour)
		stop()
		if len(reports) != 1 || reports[0].Outcome != engine.Failed || reports[0].Class != "stalled" || reports[0].Dead {
			t.Errorf("reports are %+v", reports)
		}
	})
}

// Work that does not return costs a slot, and nothing else: its claim goes on
// somewhere else.
func TestWorkThatDoesNotHeedItsContextHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p, err := stages.New("test", stages.Stage{Name: "one", Timeout: time.Minute, Workers: 2,
			Work: func(context.Context, *stages.Job) (any, error) { <-release; return "late", nil }})
		if err != nil {
			t.Fatal(err)
		}
		var reports []engine.Report
		free := 0
		first := claimed(oneClaim())
		f := &fake{turn: func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
			reports, free = append(reports, in.Reports...), in.FreeSlots[0]
			return first(in)
		}}
		e := newEar()
		_, stop := run(t, f, p, func(r *stages.Runner) { r.Wakes, r.SweepInterval = e, time.Hour })
		time.Sleep(90 * time.Second)
		synctest.Wait()
		if len(reports) != 1 || reports[0].Class != "timeout" || free != 1 {
			t.Errorf("%d slots are free, reports are %+v", free, reports)
		}
		close(release)
		time.Sleep(time.Second)
		e.Add(p.Graph().Channel("one"))
		time.Sleep(time.Second)
		synctest.Wait()
		if len(reports) != 1 || free != 2 {
			t.Errorf("after its end %d slots are free, reports are %+v", free, reports)
		}
		stop()
	})
}

func TestDrainGivesBackWhatDoesNotHeedItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		defer close(release)
		p := pipeline(t, func(context.Context, *stages.Job) (any, error) { <-release; return nil, nil }, "one")
		var reports []engine.Report
		first := claimed(oneClaim())
		f := &fake{graph: p.Graph(), turn: func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
			reports = append(reports, in.Reports...)
			return first(in)
		}}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		began := time.Now()
		err := stages.Runner{Backend: f, Pipeline: p, Wakes: newEar(), Grace: 10 * time.Second}.Run(ctx)
		took := time.Since(began) - time.Minute
		if !errors.Is(err, stages.ErrIgnoredCancel) || took < 20*time.Second || took > 40*time.Second || !f.left {
			t.Errorf("it ended after %s with %v", took, err)
		}
		if len(reports) != 1 || reports[0].Outcome != engine.Released {
			t.Errorf("reports are %+v", reports)
		}
	})
}

// A host that starts again takes up its own work at once.
func TestThoseWhoDiedHereBeforeAreGivenUpAtTheStart(t *testing.T) {
	var self store.Worker
	probe := &fake{register: func(w store.Worker) { self = w }}
	synctest.Test(t, func(t *testing.T) {
		_, stop := run(t, probe, pipeline(t, noop, "one"), nil)
		stop()
	})
	if self.ProcessIdentity == "//" {
		t.Skip("this system does not say where a process runs")
	}
	boot, space, start := self.ProcessIdentity, "", ""
	if parts := strings.Split(self.ProcessIdentity, "/"); len(parts) == 3 {
		boot, space, start = parts[0], parts[1], parts[2]
	}
	other := func(id byte, pid int, host, place string) store.Worker {
		w := self
		w.ID, w.PID, w.Host, w.ProcessIdentity = store.ID{id}, pid, host, place
		return w
	}
	const nobody = 1<<22 + 1 // above any limit
	here := strings.Join([]string{boot, space, start}, "/")
	dead := other(2, nobody, self.Host, here)
	reused := other(3, os.Getpid(), self.Host, boot+"/"+space+"/"+start+"1")
	alive := other(4, os.Getpid(), self.Host, here)
	elsewhere := other(5, nobody, "elsewhere", here)
	otherBoot := other(6, nobody, self.Host, "x/"+space+"/"+start)
	otherSpace := other(7, nobody, self.Host, boot+"/x/"+start)
	silent := other(8, nobody, self.Host, "")
	want := []store.ID{dead.ID}
	if start != "" {
		want = append(want, reused.ID)
	}
	f := &fake{workers: []store.Worker{dead, reused, alive, elsewhere, otherBoot, otherSpace, silent}}
	synctest.Test(t, func(t *testing.T) {
		_, stop := run(t, f, pipeline(t, noop, "one"), nil)
		time.Sleep(time.Minute)
		stop()
	})
	if !slices.Equal(f.givenUp, want) {
		t.Errorf("given up are %v, want the dead one, and the one whose id is somebody else's now: %v", f.givenUp, want)
	}
	if f.asked != 1 {
		t.Errorf("it asked %d times who was there, want once", f.asked)
	}
}

// While the listener connects for the first time nobody could have been woken.
func TestNothingIsMissedBeforeTheListenerCouldHear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &ear{Wakes: notify.NewWakes()}
		e.deaf.Store(true)
		time.AfterFunc(500*time.Millisecond, func() {
			e.deaf.Store(false)
			e.Add("cuelight_test_one")
		})
		f := &fake{turn: claimed(oneClaim())}
		events, stop := run(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) { r.Wakes = e })
		time.Sleep(10 * time.Second)
		kinds := events()
		stop()
		if !slices.Contains(kinds, stages.StageCompleted) || slices.Contains(kinds, stages.WakeMissed) {
			t.Errorf("told %v", kinds)
		}
	})
}
