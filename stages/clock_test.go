package stages_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// These tests run by synctest's clock, over a Store that is no database.

func never(n int) []time.Duration {
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = -1
	}
	return all
}

// run starts a Runner on a fake; the returned function drains it and waits.
func run(t *testing.T, f *fake, p *stages.Pipeline, change func(*stages.Runner)) (events func() []stages.Kind, stop func()) {
	t.Helper()
	f.graph = p.Graph()
	told := make(chan stages.Event, 10000)
	r := stages.Runner{Backend: f, Pipeline: p, Observe: func(e stages.Event) { told <- e }}
	if change != nil {
		change(&r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	synctest.Wait()
	events = func() (kinds []stages.Kind) {
		for len(told) > 0 {
			kinds = append(kinds, (<-told).Kind)
		}
		return kinds
	}
	return events, func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if !f.left {
			t.Error("the worker did not say good-bye")
		}
	}
}

func TestIdleProcessAsksNextToNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sweeps, beats, brief := 0, 0, 0
		f := &fake{
			beat: func(b engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
				beats++
				if b.SkipChecks {
					brief++
				}
				return engine.HeartbeatResult{Now: time.Now()}, nil
			},
			sweep: func(engine.SweepRequest) (engine.SweepResult, error) {
				sweeps++
				return engine.SweepResult{MoreReady: make([]bool, 1), NextDue: never(1)}, nil
			},
		}
		_, stop := run(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) { r.Wakes = notify.NewWakes() })
		time.Sleep(10 * time.Minute)
		stop()
		if n := len(f.seen()); n != 0 {
			t.Errorf("%d turns with nothing to do", n)
		}
		if sweeps < 33 || sweeps > 51 || beats < 250 || beats > 375 {
			t.Errorf("%d sweeps and %d beats in ten minutes; want about 40 and 300", sweeps, beats)
		}
		if brief < beats*8/10 || brief > beats*9/10 {
			t.Errorf("%d of %d beats asked for nothing more; want seven of eight", brief, beats)
		}
	})
}

func TestWakesCoalesceIntoOneTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := notify.NewWakes()
		p := pipeline(t, noop, "one", "two")
		f := &fake{turn: func(engine.ExchangeRequest) (engine.ExchangeResult, error) {
			time.Sleep(time.Second) // the round trip
			return engine.ExchangeResult{}, nil
		}}
		_, stop := run(t, f, p, func(r *stages.Runner) { r.Wakes, r.SweepInterval = w, time.Hour })
		for range 1000 {
			w.Add(p.Graph().Channel("one"), p.Graph().Channel("two"))
			time.Sleep(time.Millisecond / 2)
		}
		time.Sleep(time.Minute)
		stop()
		if n := len(f.seen()); n != 2 {
			t.Errorf("1000 wakes within a round trip made %d turns, want the first and one for all the others", n)
		}
	})
}

func TestRetryIsLookedForWhenItsTimeComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := notify.NewWakes()
		p := pipeline(t, noop, "one")
		f := &fake{turn: func(t engine.ExchangeRequest) (engine.ExchangeResult, error) {
			if t.PromoteDue[0] {
				return engine.ExchangeResult{}, nil
			}
			return engine.ExchangeResult{NextDue: []time.Duration{90 * time.Second}}, nil
		}}
		_, stop := run(t, f, p, func(r *stages.Runner) { r.Wakes, r.SweepInterval = w, time.Hour })
		w.Add(p.Graph().Channel("one"))
		time.Sleep(89 * time.Second)
		before := len(f.seen())
		time.Sleep(2 * time.Second)
		turns := f.seen()
		stop()
		if before != 1 || len(turns) != 2 || !turns[1].PromoteDue[0] || !turns[1].ClaimFrom[0] {
			t.Errorf("%d turns before the time and %d after; want one, then one that matures", before, len(turns)-before)
		}
	})
}

func TestMissedRowIsTriedAgainSoonAndNotForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := notify.NewWakes()
		p := pipeline(t, noop, "one")
		f := &fake{turn: func(engine.ExchangeRequest) (engine.ExchangeResult, error) {
			return engine.ExchangeResult{MoreReady: []bool{true}}, nil
		}}
		_, stop := run(t, f, p, func(r *stages.Runner) { r.Wakes, r.SweepInterval = w, time.Hour })
		w.Add(p.Graph().Channel("one"))
		time.Sleep(5 * time.Millisecond)
		soon := len(f.seen())
		time.Sleep(10 * time.Minute)
		late := len(f.seen())
		stop()
		if soon < 2 || late > 20 {
			t.Errorf("%d tries within 5 ms and %d within ten minutes; want some, then an end", soon, late)
		}
	})
}

func TestDatabaseThatIsAwayIsToldOfOnceAndAskedLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := notify.NewWakes()
		p := pipeline(t, noop, "one")
		back := time.Now().Add(5 * time.Minute)
		f := &fake{turn: func(engine.ExchangeRequest) (engine.ExchangeResult, error) {
			if time.Now().Before(back) {
				return engine.ExchangeResult{}, errors.New("connection refused")
			}
			return engine.ExchangeResult{}, nil
		}}
		events, stop := run(t, f, p, func(r *stages.Runner) { r.Wakes, r.SweepInterval = w, time.Hour })
		w.Add(p.Graph().Channel("one"))
		time.Sleep(10 * time.Minute)
		kinds := map[stages.Kind]int{}
		for _, k := range events() {
			kinds[k]++
		}
		stop()
		if kinds[stages.DatabaseLost] != 1 || kinds[stages.DatabaseBack] != 1 {
			t.Errorf("told %v, want one loss and one return", kinds)
		}
		if n := len(f.seen()); n > 150 {
			t.Errorf("asked %d times in five minutes", n)
		}
	})
}

func TestDeadlockIsRunAgainWithoutAWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := notify.NewWakes()
		p := pipeline(t, noop, "one")
		tries := 0
		f := &fake{}
		f.turn = func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
			if tries++; tries <= 3 {
				return engine.ExchangeResult{}, &pgconn.PgError{Code: "40P01"}
			}
			return engine.ExchangeResult{}, nil
		}
		events, stop := run(t, f, p, func(r *stages.Runner) { r.Wakes, r.SweepInterval = w, time.Hour })
		w.Add(p.Graph().Channel("one"))
		time.Sleep(time.Second)
		for _, k := range events() {
			if k == stages.DatabaseLost {
				t.Error("a deadlock was told as a lost database")
			}
		}
		stop()
		if tries != 4 {
			t.Errorf("the turn was made %d times, want 4", tries)
		}
	})
}

func TestClaimNobodyHeardOfIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := notify.NewWakes()
		p := pipeline(t, noop, "one")
		orphan := engine.Claim{Task: store.ID{7}, Token: store.ID{8}, Attempt: 1}
		failed := false
		f := &fake{}
		f.turn = func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
			if !failed {
				failed = true // committed, but the answer was lost
				return engine.ExchangeResult{}, errors.New("broken pipe")
			}
			return engine.ExchangeResult{}, nil
		}
		f.held = func() ([]engine.Claim, error) { return []engine.Claim{orphan}, nil }
		_, stop := run(t, f, p, func(r *stages.Runner) { r.Wakes, r.SweepInterval = w, time.Hour })
		w.Add(p.Graph().Channel("one"))
		time.Sleep(time.Minute)
		turns := f.seen()
		stop()
		last := turns[len(turns)-1]
		if len(last.Reports) != 1 || last.Reports[0].Token != orphan.Token || last.Reports[0].Outcome != engine.Released {
			t.Errorf("reports are %+v, want the orphan released", last.Reports)
		}
	})
}

func TestProcessWithoutAHeartbeatStopsItsWorkBeforeOthersTakeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := notify.NewWakes()
		start := time.Now()
		stopped := make(chan time.Duration, 1)
		p := pipeline(t, func(ctx context.Context, _ *stages.Job) (any, error) {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), stages.ErrLeaseLost) {
				t.Errorf("cause is %v", context.Cause(ctx))
			}
			stopped <- time.Since(start)
			return nil, ctx.Err()
		}, "one")
		f := &fake{beat: func(engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
			return engine.HeartbeatResult{}, errors.New("no route")
		}}
		f.turn = claimed(engine.Claim{Task: store.ID{7}, Token: store.ID{8}, Attempt: 1})
		_, stop := run(t, f, p, func(r *stages.Runner) { r.Wakes = w })
		w.Add(p.Graph().Channel("one"))
		after := <-stopped
		stop()
		if after < 28*time.Second || after > 34*time.Second {
			t.Errorf("work was stopped after %s; others may take it after 36 s", after)
		}
	})
}

func TestGraceEndsByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := notify.NewWakes()
		p := pipeline(t, func(ctx context.Context, _ *stages.Job) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, "one")
		f := &fake{turn: claimed(engine.Claim{Task: store.ID{7}, Token: store.ID{8}, Attempt: 1})}
		_, stop := run(t, f, p, func(r *stages.Runner) { r.Wakes, r.Grace = w, 40*time.Second })
		w.Add(p.Graph().Channel("one"))
		synctest.Wait()
		began := time.Now()
		stop()
		if took := time.Since(began); took < 40*time.Second || took > 42*time.Second {
			t.Errorf("stopped after %s, want the grace of 40 s", took)
		}
	})
}

func TestOutcomesAreHandedInAsSoonAsTheDatabaseIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := notify.NewWakes()
		p := pipeline(t, noop, "one")
		start := time.Now()
		var handedIn time.Duration
		first := claimed(engine.Claim{Task: store.ID{7}, Token: store.ID{8}, Attempt: 1})
		f := &fake{}
		f.turn = func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
			if len(in.Reports) == 0 {
				return first(in)
			}
			if time.Since(start) < time.Minute {
				return engine.ExchangeResult{}, errors.New("connection refused")
			}
			handedIn = time.Since(start)
			return engine.ExchangeResult{}, nil
		}
		_, stop := run(t, f, p, func(r *stages.Runner) { r.Wakes, r.SweepInterval = w, time.Hour })
		w.Add(p.Graph().Channel("one"))
		time.Sleep(2 * time.Minute)
		stop()
		if handedIn < time.Minute || handedIn > 70*time.Second {
			t.Errorf("the outcome was handed in after %s; the database was back after a minute", handedIn)
		}
	})
}

// A database that goes away while a process registers leaves no second worker
// behind, of which others would soon say that it is lost.
func TestProcessRegistersOnceThoughTheDatabaseStumbles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registered, stumbles := 0, 3
		f := &fake{
			register: func(store.Worker) { registered++ },
			paused: func() error {
				if stumbles--; stumbles >= 0 {
					return &pgconn.PgError{Code: "57P01"}
				}
				return nil
			},
		}
		_, stop := run(t, f, pipeline(t, noop, "one"), nil)
		time.Sleep(time.Minute)
		stop()
		if registered != 1 {
			t.Errorf("registered %d times", registered)
		}
	})
}
