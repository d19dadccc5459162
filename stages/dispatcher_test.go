package stages_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/cuelight/cuelight/notify"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// These tests use the clock of synctest and a backend without a database.

// runFake starts a Runner on a fake backend. events returns the kinds of the events
// since its last call; stop drains the Runner and waits for its end.
func runFake(t *testing.T, f *fakeBackend, p *stages.Pipeline,
	change func(*stages.Runner)) (events func() []stages.Kind, stop func()) {
	t.Helper()
	f.graph = p.Graph()
	observed := make(chan stages.Event, 10000)
	r := stages.Runner{Backend: f, Pipeline: p, Observe: func(e stages.Event) { observed <- e }}
	if change != nil {
		change(&r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	synctest.Wait()
	events = func() (kinds []stages.Kind) {
		for len(observed) > 0 {
			if e := <-observed; e.Kind != stages.SweepEnded {
				kinds = append(kinds, e.Kind)
			}
		}
		return kinds
	}
	return events, func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if !f.deregistered {
			t.Error("the worker did not deregister")
		}
	}
}

func TestRunner_SendsAlmostNoRequestsWhenIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sweeps, heartbeats, withoutChecks := 0, 0, 0
		f := &fakeBackend{
			heartbeat: func(in engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
				heartbeats++
				if in.SkipChecks {
					withoutChecks++
				}
				return engine.HeartbeatResult{Now: time.Now()}, nil
			},
			sweep: func(engine.SweepRequest) (engine.SweepResult, error) {
				sweeps++
				return nothingSwept(1), nil
			},
		}
		_, stop := runFake(t, f, pipeline(t, noop, "one"), func(r *stages.Runner) { r.Wakes = notify.NewWakes() })
		time.Sleep(10 * time.Minute)
		stop()
		if n := len(f.requests()); n != 0 {
			t.Errorf("%d exchanges with nothing to do", n)
		}
		if sweeps < 33 || sweeps > 51 || heartbeats < 250 || heartbeats > 375 {
			t.Errorf("%d sweeps and %d heartbeats in ten minutes; want about 40 and 300", sweeps, heartbeats)
		}
		if withoutChecks < heartbeats*8/10 || withoutChecks > heartbeats*9/10 {
			t.Errorf("%d of %d heartbeats skipped the checks; want seven of eight", withoutChecks, heartbeats)
		}
	})
}

func TestWakes_DuringAnExchangeCauseOneMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := notify.NewWakes()
		p := pipeline(t, noop, "one", "two")
		f := &fakeBackend{exchange: func(engine.ExchangeRequest) (engine.ExchangeResult, error) {
			time.Sleep(time.Second) // the round trip
			return engine.ExchangeResult{}, nil
		}}
		_, stop := runFake(t, f, p, func(r *stages.Runner) { r.Wakes, r.SweepInterval = w, time.Hour })
		for range 1000 {
			w.Add(p.Graph().Channel("one"), p.Graph().Channel("two"))
			time.Sleep(time.Millisecond / 2)
		}
		time.Sleep(time.Minute)
		stop()
		if n := len(f.requests()); n != 2 {
			t.Errorf("1000 wakes during one exchange caused %d exchanges, want 2", n)
		}
	})
}

func TestDispatcher_ClaimsARetryWhenItIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := notify.NewWakes()
		p := pipeline(t, noop, "one")
		f := &fakeBackend{exchange: func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
			if in.PromoteDue {
				return engine.ExchangeResult{}, nil
			}
			return engine.ExchangeResult{Wait: noWait(1), NextDue: 90 * time.Second}, nil
		}}
		_, stop := runFake(t, f, p, func(r *stages.Runner) { r.Wakes, r.SweepInterval = w, time.Hour })
		w.Add(p.Graph().Channel("one"))
		time.Sleep(89 * time.Second)
		before := len(f.requests())
		time.Sleep(2 * time.Second)
		exchanges := f.requests()
		stop()
		if before != 1 || len(exchanges) != 2 || !exchanges[1].PromoteDue {
			t.Errorf("%d exchanges before the retry was due and %d after; want one, then one that promotes", before,
				len(exchanges)-before)
		}
	})
}

func TestDispatcher_RetriesLockedRowsSoonThenStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := notify.NewWakes()
		p := pipeline(t, noop, "one")
		f := &fakeBackend{exchange: func(engine.ExchangeRequest) (engine.ExchangeResult, error) {
			return engine.ExchangeResult{MoreReady: []bool{true}}, nil
		}}
		_, stop := runFake(t, f, p, func(r *stages.Runner) { r.Wakes, r.SweepInterval = w, time.Hour })
		w.Add(p.Graph().Channel("one"))
		time.Sleep(5 * time.Millisecond)
		soon := len(f.requests())
		time.Sleep(10 * time.Minute)
		late := len(f.requests())
		stop()
		if soon < 2 || late > 20 {
			t.Errorf("%d tries within 5 ms and %d within ten minutes; want at least 2, then at most 20", soon, late)
		}
	})
}

func TestOutage_IsReportedOnceAndRetriedWithBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := notify.NewWakes()
		p := pipeline(t, noop, "one")
		back := time.Now().Add(5 * time.Minute)
		f := &fakeBackend{exchange: func(engine.ExchangeRequest) (engine.ExchangeResult, error) {
			if time.Now().Before(back) {
				return engine.ExchangeResult{}, errors.New("connection refused")
			}
			return engine.ExchangeResult{}, nil
		}}
		events, stop := runFake(t, f, p, func(r *stages.Runner) { r.Wakes, r.SweepInterval = w, time.Hour })
		w.Add(p.Graph().Channel("one"))
		time.Sleep(10 * time.Minute)
		kinds := map[stages.Kind]int{}
		for _, k := range events() {
			kinds[k]++
		}
		stop()
		if kinds[stages.DatabaseUnavailable] != 1 || kinds[stages.DatabaseAvailable] != 1 {
			t.Errorf("observed %v, want one DatabaseUnavailable and one DatabaseAvailable", kinds)
		}
		if n := len(f.requests()); n > 150 {
			t.Errorf("%d exchanges in five minutes", n)
		}
	})
}

func TestOutage_IsReportedAgainWithItsLatestCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, tries := time.Now(), 0
		f := &fakeBackend{exchange: func(engine.ExchangeRequest) (engine.ExchangeResult, error) {
			tries++
			switch after := time.Since(start); {
			case after < 10*time.Second:
				return engine.ExchangeResult{}, fmt.Errorf("connection %d was reset", tries)
			case after < 10*time.Minute:
				return engine.ExchangeResult{}, errors.New("the password is wrong")
			}
			return engine.ExchangeResult{}, nil
		}}
		var causes []string
		w, p := notify.NewWakes(), pipeline(t, noop, "one")
		_, stop := runFake(t, f, p, func(r *stages.Runner) {
			r.Wakes, r.SweepInterval = w, time.Hour
			r.Observe = func(e stages.Event) {
				if e.Kind == stages.DatabaseUnavailable {
					causes = append(causes, e.Err.Error())
				}
			}
		})
		w.Add(p.Graph().Channel("one"))
		time.Sleep(15 * time.Minute)
		stop()
		if want := []string{"connection 1 was reset", "the password is wrong"}; !slices.Equal(causes, want) {
			t.Errorf("the causes are %q, want %q", causes, want)
		}
	})
}

func TestExchange_IsRetriedSilentlyAfterADeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := notify.NewWakes()
		p := pipeline(t, noop, "one")
		tries := 0
		f := &fakeBackend{}
		f.exchange = func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
			if tries++; tries <= 3 {
				return engine.ExchangeResult{}, &pgconn.PgError{Code: "40P01"}
			}
			return engine.ExchangeResult{}, nil
		}
		events, stop := runFake(t, f, p, func(r *stages.Runner) { r.Wakes, r.SweepInterval = w, time.Hour })
		w.Add(p.Graph().Channel("one"))
		time.Sleep(time.Second)
		for _, k := range events() {
			if k == stages.DatabaseUnavailable {
				t.Error("a deadlock was reported as a lost database")
			}
		}
		stop()
		if tries != 4 {
			t.Errorf("%d exchanges, want 4", tries)
		}
	})
}

func TestReconcile_ReleasesClaimsOfALostResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := notify.NewWakes()
		p := pipeline(t, noop, "one")
		orphan := engine.Claim{Task: store.ID{7}, Token: store.ID{8}, Attempt: 1}
		failed := false
		f := &fakeBackend{}
		f.exchange = func(in engine.ExchangeRequest) (engine.ExchangeResult, error) {
			if !failed {
				failed = true // committed, but the response was lost
				return engine.ExchangeResult{}, errors.New("broken pipe")
			}
			return engine.ExchangeResult{}, nil
		}
		f.held = func() ([]engine.HeldClaim, error) { return []engine.HeldClaim{{Claim: orphan}}, nil }
		_, stop := runFake(t, f, p, func(r *stages.Runner) { r.Wakes, r.SweepInterval = w, time.Hour })
		w.Add(p.Graph().Channel("one"))
		time.Sleep(time.Minute)
		exchanges := f.requests()
		stop()
		last := exchanges[len(exchanges)-1]
		if len(last.Reports) != 1 || last.Reports[0].Token != orphan.Token || last.Reports[0].Outcome != engine.Released {
			t.Errorf("reports are %+v, want the orphan released", last.Reports)
		}
	})
}

func TestLease_StopsWorkBeforeItExpires(t *testing.T) {
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
		f := &fakeBackend{heartbeat: func(engine.HeartbeatRequest) (engine.HeartbeatResult, error) {
			return engine.HeartbeatResult{}, errors.New("no route")
		}}
		f.exchange = grantOnce(engine.Claim{Task: store.ID{7}, Token: store.ID{8}, Attempt: 1})
		_, stop := runFake(t, f, p, func(r *stages.Runner) { r.Wakes = w })
		w.Add(p.Graph().Channel("one"))
		after := <-stopped
		stop()
		if after < 28*time.Second || after > 34*time.Second {
			t.Errorf("work was stopped after %s; others may claim it after 36 s", after)
		}
	})
}

func TestDrain_CancelsWorkAfterTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := notify.NewWakes()
		p := pipeline(t, waitForCancel, "one")
		f := &fakeBackend{exchange: grantOnce(engine.Claim{Task: store.ID{7}, Token: store.ID{8}, Attempt: 1})}
		_, stop := runFake(t, f, p, func(r *stages.Runner) { r.Wakes, r.Grace = w, 40*time.Second })
		w.Add(p.Graph().Channel("one"))
		synctest.Wait()
		stopping := time.Now()
		stop()
		if took := time.Since(stopping); took < 40*time.Second || took > 42*time.Second {
			t.Errorf("stopped after %s, want the grace of 40 s", took)
		}
	})
}

// A database that fails while a process registers must not cause a second worker,
// which other processes would soon report as lost.
func TestRunner_RegistersOnceDespiteDatabaseErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registered, failures := 0, 3
		f := &fakeBackend{
			register: func(store.Worker) { registered++ },
			paused: func() error {
				if failures--; failures >= 0 {
					return &pgconn.PgError{Code: "57P01"}
				}
				return nil
			},
		}
		_, stop := runFake(t, f, pipeline(t, noop, "one"), nil)
		time.Sleep(time.Minute)
		stop()
		if registered != 1 {
			t.Errorf("registered %d times", registered)
		}
	})
}
